// Which kernels resize images on a GPU.
#pragma once

#include "plan.h"
#include "upsample_bilinear2d.h"

namespace detector::upsample_bilinear2d {

struct Request {
  Resizing sizes;
  int64_t images, channels;
  bool channels_last;
  int element_size;  // in bytes; 8 is double
  bool aligned;      // both tensors begin at multiples of 16 bytes

  int pack() const { return 16 / element_size; }  // elements of 16 bytes
};

constexpr int kThreads = 256;
constexpr int kStrip = 16;                 // lines of a walk: few where there is little to do
constexpr int kLongStrip = 64;             // fewer strips are fewer beginnings, which half types feel most
constexpr int64_t kEnough = 1 << 19;       // threads that fill a GPU
constexpr int64_t kEnoughPacks = 1 << 17;  // the same where each has several packs of half types on their way

// int indices do.
inline bool is_small(const Request& r) {
  const int64_t most = std::max(r.sizes.in_height * r.sizes.in_width, r.sizes.out_height * r.sizes.out_width);
  return r.images * r.channels <= (std::numeric_limits<int>::max() - kThreads) / most;
}

inline bool takes_packs(const Request& r, int64_t length) {
  return is_small(r) && r.aligned && length % r.pack() == 0;
}

template <bool kLast>
bool has_layout(const Request& r) {
  return r.channels_last == kLast;
}
inline bool has_small_planes(const Request& r) { return !r.channels_last && is_small(r); }
inline bool has_channel_packs(const Request& r) { return r.channels_last && takes_packs(r, r.channels); }
inline bool has_column_packs(const Request& r) {
  return !r.channels_last && takes_packs(r, r.sizes.out_width);
}

// Whether planes are made exactly twice as wide with half_pixel positions, by far the usual case.
inline bool is_doubled(const Request& r) {
  const auto twice = [](const auto& axis) {
    return axis.out == 2 * axis.in && axis.scale == 0.5 && axis.shift == 0.5 && axis.in < 1 << 20;
  };
  const bool doubled =
      r.element_size == 8 ? twice(r.sizes.horizontal<double>()) : twice(r.sizes.horizontal<float>());
  return doubled && has_column_packs(r);
}

inline bool has_one_pixel(const Request& r) { return r.sizes.in_height == 1 && r.sizes.in_width == 1; }

// A thread walks along a strip of lines; strips lie side by side.
struct Strips {
  int number, lines;
  Launch launch;
};

// `others` threads walk side by side along all `lines`, where `enough` fill a GPU.
inline Strips strips_of(const Request& r, int64_t others, int64_t lines, int64_t enough) {
  const int most = r.element_size == 2 ? kLongStrip : kStrip;
  const int strip = others * ceil_div(lines, most) >= enough ? most : kStrip;
  const int64_t number = ceil_div(lines, strip);
  return {int(number), strip, {ceil_div(others * number, kThreads), 1, 1, kThreads, 0}};
}

// ---- forward ----

template <bool kPacks>
Strips forward_channels_strips(const Request& r) {
  const int64_t others = r.images * r.sizes.out_height * (r.channels / (kPacks ? r.pack() : 1));
  return strips_of(r, others, r.sizes.out_width, kEnough);
}
template <bool kPacks>
Strips forward_planes_strips(const Request& r) {
  const int64_t others = r.images * r.channels * (r.sizes.out_width / (kPacks ? r.pack() : 1));
  return strips_of(r, others, r.sizes.out_height, kEnough);
}

template <auto kStrips>
Launch launch_of(const Request& r) {
  return kStrips(r).launch;
}

enum class Forward { kChannelPacks, kChannels, kPlanePacks, kPlanes, kPlanes64 };

constexpr Candidate<Request> kForwardTable[] = {
    {"channel_packs", has_channel_packs, "channels-last, 16-byte packs of channels, below 2^31 elements",
     "87 % of the copy bandwidth, 16 x 256 x 128 x 128 float32 times 2 (H200)",
     launch_of<forward_channels_strips<true>>},
    {"channels", has_layout<true>, "channels-last", "any number of channels and elements",
     launch_of<forward_channels_strips<false>>},
    {"plane_packs", has_column_packs, "contiguous, 16-byte packs of output columns, below 2^31 elements",
     "88 % of the copy bandwidth, packs of 8 bytes 78 (H200)", launch_of<forward_planes_strips<true>>},
    {"planes", has_small_planes, "contiguous, below 2^31 elements",
     "any width: 16 x 256 x 127 x 127 times 2 0.54 ms, with indices of 64 bits 0.69 (H200)",
     launch_of<forward_planes_strips<false>>},
    {"planes_64", has_layout<false>, "contiguous", "indices of 64 bits",
     launch_of<forward_planes_strips<false>>},
};

static_assert(is_table_of(int(Forward::kPlanes64) + 1, kForwardTable));

inline Forward forward_kernel(const Request& request) {
  return Forward(plan("upsample_bilinear2d", kForwardTable, request));
}

// ---- backward ----

inline Strips doubled_strips(const Request& r) {
  const int64_t others = r.images * r.channels * (r.sizes.in_width / (r.pack() / 2));
  return strips_of(r, others, r.sizes.in_height, kEnough);
}
template <bool kPacks>
Strips backward_channels_strips(const Request& r) {
  const int64_t others = r.images * r.sizes.in_height * (r.channels / (kPacks ? r.pack() : 1));
  return strips_of(r, others, r.sizes.in_width, kPacks ? kEnoughPacks : kEnough);
}
inline Strips backward_planes_strips(const Request& r) {
  return strips_of(r, r.images * r.channels * r.sizes.in_width, r.sizes.in_height, kEnough);
}

enum class Backward { kSum, kDoubled, kChannelPacks, kChannels, kPlanes };

constexpr Candidate<Request> kBackwardTable[] = {
    {"sum", has_one_pixel, "images of 1 x 1, whose pixel is all of the output",
     "torch's sum; one thread would read a plane by itself"},
    {"doubled", is_doubled,
     "contiguous, exactly twice as wide with half_pixel positions, 16-byte packs, below 2^31 elements",
     "95 % of the copy bandwidth, planes 54 (H200)", launch_of<doubled_strips>},
    {"channel_packs", has_channel_packs, "channels-last, 16-byte packs of channels, below 2^31 elements",
     "90 % of the copy bandwidth (H200)", launch_of<backward_channels_strips<true>>},
    {"channels", has_layout<true>, "channels-last", "any number of channels and elements",
     launch_of<backward_channels_strips<false>>},
    {"planes", has_layout<false>, "contiguous", "any factor and number of elements",
     launch_of<backward_planes_strips>},
};

static_assert(is_table_of(int(Backward::kPlanes) + 1, kBackwardTable));

inline Backward backward_kernel(const Request& request) {
  return Backward(plan("upsample_bilinear2d", kBackwardTable, request));
}

}  // namespace detector::upsample_bilinear2d

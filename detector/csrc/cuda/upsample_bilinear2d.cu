// Bilinear resizing on a GPU: one launch each way. The backward gathers, so that nothing is added in an order
// that the hardware picks.
//
// Floor: input and output moved once, 1.34 GB for 16x256x128x128 float32 times 2, 0.32 ms on an H200. Tried
// there, as a share of the copy bandwidth:
// - Backward of planes. At a factor of 2, without shared memory: 99 % (float32), 94 % (float16; with strips
//   of 64 rows 96 %). Other factors' kernels, timed at that factor: a thread a column that gathers all its
//   taps from global memory 54 and 27 %, for every gradient is loaded twice over; tiles with the sum along
//   rows in shared memory by one warp 66 and 34 % with strips of 16 rows, 75 and 41 % with 64; by teams of
//   two warps, which need fewer registers, 74 and 40 % with 64; of four 63 and 31 %; by one warp whose rows
//   asynchronous copies bring, seven ahead in float16 and three in float32, 36 and 56 %. Registers held down
//   for 3 or 4 blocks of one-warp tiles: they spill, 55 and 35 %. Taps shared by shuffles: 1 % more.
// - Forward of planes: packs of 8 bytes for 16: 78 % (float32), 63 % (float16), against 88 and 75 %. With
//   strips of 64 rows float16 has 77 %, and float32 up to 4 less.
// - Backward of channels: strips of 16, 32, 64 and 128 columns reach 68, 72, 74 and 69 % in float16, and 94,
//   93, 83 and 72 % in float32. In float16 107 of some 460 instructions of a round put loaded or zero
//   elements together two by two; as words 0.197 ms in place of 0.230. Held to registers for three blocks:
//   0.212, with one output ahead in place of two 0.238; with three and four 0.219 and 0.260.
#include <torch/csrc/stable/library.h>

#include "launch.cuh"
#include "upsample_bilinear2d/doubled.cuh"
#include "upsample_bilinear2d/nchw.cuh"
#include "upsample_bilinear2d/nhwc.cuh"
#include "upsample_bilinear2d/tiles.cuh"

namespace detector::upsample_bilinear2d {
namespace {

constexpr int kStrip = 16;                 // lines of a walk: few where there is little to do
constexpr int kLongStrip = 64;             // fewer strips are fewer beginnings, which half types feel most
constexpr int64_t kEnough = 1 << 19;       // threads that fill a GPU
constexpr int64_t kEnoughPacks = 1 << 17;  // the same where each has several packs of half types on their way

// Lines of a walk, where `others` threads walk side by side.
int strip_of(int64_t others, int lines, int most, int64_t enough = kEnough) {
  return others * ceil_div(lines, most) >= enough ? most : kStrip;
}

// What both passes launch a kernel with. `from` is the input or, backward, the gradient that arrives.
template <typename T, typename A = Accumulate<T>>
struct Launch {
  static constexpr int kMost = sizeof(T) == 2 ? kLongStrip : kStrip;
  const T* from;
  T* to;
  Axis<A> vertical, horizontal;
  int64_t images, channels;
  bool small;  // int indices do
  cudaStream_t stream;

  Launch(const Tensor& from_tensor, const Resizing& sizes, const Tensor& to_tensor)
      : from(static_cast<const T*>(from_tensor.const_data_ptr())),
        to(static_cast<T*>(to_tensor.mutable_data_ptr())),
        vertical(sizes.vertical<A>()),
        horizontal(sizes.horizontal<A>()),
        images(to_tensor.size(0)),
        channels(to_tensor.size(1)),
        small(std::max(from_tensor.numel(), to_tensor.numel()) <= std::numeric_limits<int>::max() - kThreads),
        stream(current_stream(from_tensor)) {}

  bool takes_packs(int64_t length) const {
    return small && length % kPackSize<T> == 0 && fits_packs(from) && fits_packs(to);
  }

  // A thread for `pack` channels of a row and a strip of its `width` pixels.
  template <typename Index, typename... Arguments>
  void over_pixels(void (*kernel)(Arguments...), Index, int pack, int rows, int width,
                   int64_t enough = kEnough) const {
    const int64_t others = images * rows * (channels / pack);
    const int strip = strip_of(others, width, kMost, enough), strips = ceil_div(width, strip);
    const unsigned blocks = blocks_for(others * strips, kThreads);
    launch_kernel(kernel, blocks, kThreads, 0, stream, from, vertical, horizontal, Index(images),
                  Index(channels), strips, strip, to);
  }

  // A thread for `pack` columns of `width` and a strip of `rows` rows of a plane.
  template <typename Index, typename... Arguments>
  void over_planes(void (*kernel)(Arguments...), Index, int pack, int width, int rows) const {
    const int64_t others = images * channels * (width / pack);
    const int strip = strip_of(others, rows, kMost), strips = ceil_div(rows, strip);
    const unsigned blocks = blocks_for(others * strips, kThreads);
    launch_kernel(kernel, blocks, kThreads, 0, stream, from, vertical, horizontal, Index(images * channels),
                  strips, strip, to);
  }

  // A team of threads for `width` input columns and a strip of input rows of a plane.
  template <typename... Arguments>
  void over_tiles(void (*kernel)(Arguments...), int width) const {
    const int tiles = ceil_div(horizontal.in, width);
    const int64_t others = images * channels * tiles * kTeam;
    const int strip = strip_of(others, vertical.in, kLongStrip), strips = ceil_div(vertical.in, strip);
    const unsigned blocks = blocks_for(others * strips, kThreads);
    launch_kernel(kernel, blocks, kThreads, 0, stream, from, vertical, horizontal, int(images * channels),
                  strips, strip, tiles, width, to);
  }
};

template <typename T>
void forward_kernel(const Launch<T>& launch, bool channels_last) {
  constexpr int pack = kPackSize<T>;
  const int rows = launch.vertical.out, width = launch.horizontal.out;
  if (channels_last && launch.takes_packs(launch.channels)) {
    launch.over_pixels(forward_channels<pack, int, T>, int(), pack, rows, width);
  } else if (channels_last && launch.small) {
    launch.over_pixels(forward_channels<1, int, T>, int(), 1, rows, width);
  } else if (channels_last) {
    launch.over_pixels(forward_channels<1, int64_t, T>, int64_t(), 1, rows, width);
  } else if (sizeof(T) == 2 && launch.takes_packs(width) && is_doubled(launch.horizontal)) {
    launch.over_planes(forward_doubled<T>, int(), pack, width, rows);
  } else if (launch.takes_packs(width)) {
    launch.over_planes(forward_planes<pack, int, T>, int(), pack, width, rows);
  } else if (launch.small) {
    launch.over_planes(forward_planes<1, int, T>, int(), 1, width, rows);
  } else {
    launch.over_planes(forward_planes<1, int64_t, T>, int64_t(), 1, width, rows);
  }
}

template <typename T>
void backward_kernel(const Launch<T>& launch, bool channels_last) {
  constexpr int pack = kPackSize<T>, tile_pack = std::min(pack, kTilePack);
  const int rows = launch.vertical.in, width = launch.horizontal.in;
  if (channels_last && launch.takes_packs(launch.channels)) {
    launch.over_pixels(backward_channels<pack, int, T>, int(), pack, rows, width, kEnoughPacks);
  } else if (channels_last && launch.small) {
    launch.over_pixels(backward_channels<1, int, T>, int(), 1, rows, width);
  } else if (channels_last) {
    launch.over_pixels(backward_channels<1, int64_t, T>, int64_t(), 1, rows, width);
  } else if (launch.takes_packs(launch.horizontal.out) && is_doubled(launch.horizontal)) {
    launch.over_planes(backward_doubled<T>, int(), pack / 2, width, rows);
  } else {
    const bool packed = launch.takes_packs(launch.horizontal.out);
    const int tile = launch.small ? tile_width(launch.horizontal, packed ? tile_pack : 1) : 0;
    if (tile == 0) {
      launch.over_planes(backward_planes<int64_t, T>, int64_t(), 1, width, rows);
    } else if (packed) {
      launch.over_tiles(backward_tiles<tile_pack, T>, tile);
    } else {
      launch.over_tiles(backward_tiles<1, T>, tile);
    }
  }
}

Tensor forward(const Tensor& any_input, int64_t height, int64_t width, int64_t mode, double scale_height,
               double scale_width) {
  constexpr const char* op = "upsample_bilinear2d";
  check_arguments(op, "input", any_input, "size", height, width, mode);
  const auto guard = device_guard(any_input);
  const Tensor input = in_known_layout(any_input);
  const Tensor output = empty_in_layout(input, height, width);
  const Resizing sizes{input.size(2),        input.size(3), height,     width,
                       CoordinateMode(mode), scale_height,  scale_width};
  dispatch_floating(op, "input", input.scalar_type(), [&](auto zero) {
    if (output.numel() > 0) {
      using T = decltype(zero);
      forward_kernel(Launch<T>(input, sizes, output), is_channels_last(input));
    }
  });
  return output;
}

Tensor backward(const Tensor& any_grad, int64_t height, int64_t width, int64_t mode, double scale_height,
                double scale_width) {
  constexpr const char* op = "upsample_bilinear2d_backward";
  check_arguments(op, "grad", any_grad, "input size", height, width, mode);
  const auto guard = device_guard(any_grad);
  const Tensor grad = in_known_layout(any_grad);
  const Tensor grad_input = empty_in_layout(grad, height, width);
  const Resizing sizes{height,       width,      grad.size(2), grad.size(3), CoordinateMode(mode),
                       scale_height, scale_width};
  dispatch_floating(op, "grad", grad.scalar_type(), [&](auto zero) {
    if (grad_input.numel() > 0) {
      using T = decltype(zero);
      backward_kernel(Launch<T>(grad, sizes, grad_input), is_channels_last(grad));
    }
  });
  return grad_input;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("upsample_bilinear2d_forward", TORCH_BOX(&forward));
  m.impl("upsample_bilinear2d_backward", TORCH_BOX(&backward));
}

}  // namespace detector::upsample_bilinear2d

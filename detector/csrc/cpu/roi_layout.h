// The CPU kernels of roi_pool and roi_align run over channels, which the compiler turns into vectors. Here
// is how they read and write other layouts: by copies, which cost little beside the pooling.
#pragma once

#include <algorithm>

#include "../roi.h"
#include "parallel.h"

namespace detector::roi {

constexpr int64_t kChannels = 64;  // worked on at a time, so that they stay in the first-level cache
constexpr int64_t kBins = 1024;    // of a box; more are done in turns, so that scratch memory stays small

// Features with the channels of a cell side by side, in the type to compute in.
template <typename A>
struct Cells {
  const A* data;
  int64_t image_stride, row_stride, column_stride;
  Tensor owner;  // of a copy

  const A* image(int64_t n) const { return data + n * image_stride; }
};

template <typename T>
Cells<Accumulate<T>> cells_of(const Tensor& input, const Sizes& sizes) {
  using A = Accumulate<T>;
  const auto* data = input.const_data_ptr<T>();
  const int64_t image = input.stride(0), channel = input.stride(1), row = input.stride(2),
                column = input.stride(3);
  if constexpr (std::is_same_v<T, A>) {
    if (channel == 1) {
      return {data, image, row, column, input};
    }
  }
  const Tensor copy = allocate(input, {sizes.images, sizes.height, sizes.width, sizes.channels},
                               accumulate_type(input.scalar_type()));
  auto* to = copy.mutable_data_ptr<A>();
  const int64_t channels = sizes.channels, width = sizes.width;
  parallel_for(sizes.images * sizes.height, 4, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const T* from = data + i / sizes.height * image + i % sizes.height * row;
      A* to_row = to + i * width * channels;
      for (int64_t begin = 0; begin < channels; begin += 16) {  // 16 channels make a cache line
        const int64_t end = std::min<int64_t>(begin + 16, channels);
        for (int64_t x = 0; x < width; ++x) {
          for (int64_t c = begin; c < end; ++c) {
            to_row[x * channels + c] = A(from[c * channel + x * column]);
          }
        }
      }
    }
  });
  return {to, sizes.cells() * channels, width * channels, channels, copy};
}

// A stretch of 0..size: the bins of a box or the channels of a cell that are worked on together.
struct Stretch {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// Values (places of the stretch, channels of the stretch) of one box or image to where they belong in the
// output, (C, places) or, with channels_last, (places, C).
template <typename T, typename A>
void store_channels(const A* values, Stretch place, int64_t places, Stretch channel, int64_t channels,
                    bool channels_last, T* output) {
  const int64_t count = channel.size();
  if (channels_last) {
    for (int64_t i = 0; i < place.size(); ++i) {
      std::transform(values + i * count, values + (i + 1) * count,
                     output + (place.begin + i) * channels + channel.begin, [](A value) { return T(value); });
    }
    return;
  }
  for (int64_t c = 0; c < count; ++c) {
    T* plane = output + (channel.begin + c) * places + place.begin;
    for (int64_t i = 0; i < place.size(); ++i) {
      plane[i] = T(values[i * count + c]);
    }
  }
}

// Calls body(bins, channels) with stretches that together cover a box.
template <typename Body>
void for_each_stretch(const Sizes& sizes, const Body& body) {
  for (int64_t channel = 0; channel < sizes.channels; channel += kChannels) {
    for (int64_t bin = 0; bin < sizes.bins(); bin += kBins) {
      body(Stretch{bin, std::min(bin + kBins, sizes.bins())},
           Stretch{channel, std::min(channel + kChannels, sizes.channels)});
    }
  }
}

// Elements of scratch memory that hold the values of any such stretches.
inline int64_t stretch_values(const Sizes& sizes) {
  return std::min(kBins, sizes.bins()) * std::min(kChannels, sizes.channels);
}

// The gradient of the pooled values, (R, C, PH, PW) or (R, PH, PW, C) in any strides.
template <typename T>
struct Gradient {
  const T* data;
  int64_t box_stride, channel_stride, row_stride, column_stride;

  Gradient(const Tensor& grad, bool channels_last)
      : data(grad.const_data_ptr<T>()),
        box_stride(grad.stride(0)),
        channel_stride(grad.stride(channels_last ? 3 : 1)),
        row_stride(grad.stride(channels_last ? 1 : 2)),
        column_stride(grad.stride(channels_last ? 2 : 3)) {}

  // Channels first..end of a box, as (bins, end - first).
  template <typename A>
  void load(int64_t box, const Sizes& sizes, int64_t first, int64_t end, A* values) const {
    const int64_t count = end - first, height = sizes.pooled_height, width = sizes.pooled_width;
    for (int64_t c = 0; c < count; ++c) {
      const T* from = data + box * box_stride + (first + c) * channel_stride;
      A* to = values + c;
      for (int64_t ph = 0; ph < height; ++ph) {
        for (int64_t pw = 0; pw < width; ++pw, to += count) {
          *to = A(from[ph * row_stride + pw * column_stride]);
        }
      }
    }
  }
};

}  // namespace detector::roi

// Gradients with the channels of a bin side by side, which the backward kernels read.
#pragma once

#include "boxes.cuh"

namespace detector::roi {

constexpr int kTile = 64;
constexpr int kTileThreads = 256;

// A block takes kTile channels of a box: it reads along bins and writes along channels.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    channels_last_kernel(const T* grad, int64_t box_stride, int64_t row_stride, int64_t column_stride,
                         int64_t channel_stride, Sizes sizes, int groups, T* output) {
  __shared__ T tile[kTile][kTile + 2];  // bins x channels
  const int64_t box = blockIdx.x / groups;
  const int64_t channel = int64_t(blockIdx.x % groups) * kTile;
  const int channels = min(int64_t(kTile), sizes.channels - channel);
  const int bins = sizes.bins();
  const T* from = grad + box * box_stride + channel * channel_stride;
  T* to = output + box * bins * sizes.channels + channel;
  const bool dense = row_stride == sizes.pooled_width * column_stride;
  for (int first = 0; first < bins; first += kTile) {
    const int count = min(kTile, bins - first);
    const int step = kTileThreads / count, bin_step = kTileThreads % count;
    for (int c = threadIdx.x / count, b = threadIdx.x % count; c < channels;) {
      const int bin = first + b;
      tile[b][c] = from[c * channel_stride + (dense ? bin * column_stride
                                                    : bin / sizes.pooled_width * row_stride +
                                                          bin % sizes.pooled_width * column_stride)];
      c += step;
      b += bin_step;
      if (b >= count) {
        b -= count;
        ++c;
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count * kTile; i += kTileThreads) {
      if (i % kTile < channels) {
        to[(first + i / kTile) * sizes.channels + i % kTile] = tile[i / kTile][i % kTile];
      }
    }
    __syncthreads();
  }
}

// grad (R, PH, PW, C), itself if it is contiguous.
template <typename T>
Tensor channels_last(const Tensor& grad, const Sizes& sizes) {
  if (grad.is_contiguous()) {
    return grad;
  }
  const Tensor copy =
      torch::stable::new_empty(grad, {sizes.boxes, sizes.pooled_height, sizes.pooled_width, sizes.channels});
  const int64_t groups = ceil_div(sizes.channels, kTile);
  channels_last_kernel<<<sizes.boxes * groups, kTileThreads, 0, current_stream(grad)>>>(
      static_cast<const T*>(grad.const_data_ptr()), grad.stride(0), grad.stride(1), grad.stride(2),
      grad.stride(3), sizes, int(groups), static_cast<T*>(copy.mutable_data_ptr()));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  return copy;
}

// A length cut into as few equal pieces of at most `most` as there may be.
struct Pieces {
  int number, size;
  Pieces(int64_t length, int most)
      : number(int(ceil_div(length, most))), size(int(ceil_div(length, number))) {}
};

}  // namespace detector::roi

// The gradient of the input of 3 x 3 with stride 2 and padding 1 in channels_last, as networks halve an
// image. A thread has a few channels and walks down the rows of the gradient of the output with all taps in
// registers; what its neighbor reads as well comes from the L1 cache.
#pragma once

#include "any_kernel.cuh"

namespace detector::depthwise_conv2d::channels_last {

constexpr int kHalvedBlocks = 3;  // on a multiprocessor

template <int V, typename T>
__device__ void load_taps(const T* weight, int channel, float (&taps)[9][V]) {
#pragma unroll
  for (int v = 0; v < V; ++v) {
#pragma unroll
    for (int t = 0; t < 9; ++t) {
      taps[t][v] = float(weight[(channel + v) * 9 + t]);
    }
  }
}

// The gradient of the input: `walk` is over the pairs of rows and columns of the input, which the gradient
// has one row or column for. Of a pair the first meets tap 1 of its own, the second tap 2 of its own and tap
// 0 of the next.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads, kHalvedBlocks)
    grad_input_halved_kernel(Walk walk, int height, int width, const T* __restrict__ grad,
                             const T* __restrict__ weight, T* __restrict__ result) {
  const Place place = place_of_block(walk, blockDim.x * V, blockDim.y);
  const int channel = place.channel + threadIdx.x * V, column = place.column + threadIdx.y;
  const int last = min(place.row + walk.rows, walk.height);
  if (channel >= walk.channels || column >= walk.width) {
    return;
  }
  float taps[9][V];
  load_taps<V>(weight, channel, taps);
  const int row_stride = walk.source_width * walk.channels;
  const T* row =
      grad + (place.sample * walk.source_height + place.row) * row_stride + column * walk.channels + channel;
  T* out = result + ((place.sample * height + 2 * place.row) * width + 2 * column) * walk.channels + channel;
  struct Two {
    float own[V], next[V];
  };
  const auto read = [&](int y) {
    Two two{};
    if (y < walk.source_height) {
      if (column < walk.source_width) {
        load(row, two.own);
      }
      if (column + 1 < walk.source_width) {
        load(row + walk.channels, two.next);
      }
    }
    row += row_stride;
    return two;
  };
  const bool second = 2 * column + 1 < width;
  Two own = read(place.row);
  for (int y = place.row; y < last; ++y) {
    const Two next = read(y + 1);
    float pixel[V];
    const auto each = [&](const auto& sum) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        pixel[v] = sum(v);
      }
    };
    each([&](int v) { return taps[4][v] * own.own[v]; });
    store(pixel, out);
    if (second) {
      each([&](int v) { return taps[5][v] * own.own[v] + taps[3][v] * own.next[v]; });
      store(pixel, out + walk.channels);
    }
    out += width * walk.channels;
    if (2 * y + 1 < height) {
      each([&](int v) { return taps[7][v] * own.own[v] + taps[1][v] * next.own[v]; });
      store(pixel, out);
      if (second) {
        each([&](int v) {
          return taps[8][v] * own.own[v] + taps[6][v] * own.next[v] + taps[2][v] * next.own[v] +
                 taps[0][v] * next.next[v];
        });
        store(pixel, out + walk.channels);
      }
    }
    out += width * walk.channels;
    own = next;
  }
}

// Whether the kernel handles the problem. The caller has checked has_stencil.
inline bool halves(const Problem& p) {
  return p.kernel_h == 3 && p.kernel_w == 3 && p.stride_h == 2 && p.stride_w == 2 && p.pad_h == 1 &&
         p.pad_w == 1 && p.dilation_h == 1 && p.dilation_w == 1;
}

template <typename T>
void launch_grad_input_halved(const Problem& p, const T* grad, const T* weight, T* result,
                              cudaStream_t stream) {
  constexpr int V = 4;
  Walk walk = walk_input(p);
  walk.height = ceil_div(walk.height, 2), walk.width = ceil_div(walk.width, 2);
  const dim3 block = cut_channels(walk, V);
  const auto kernel = grad_input_halved_kernel<T, V>;
  const Launch launch = cut_rows(kernel, p.batch, kThreads / kWarp, 0, 1, 1, walk);
  launch_kernel(kernel, launch.grid, block, 0, stream, walk, int(p.height), int(p.width), grad, weight,
                result);
}

}  // namespace detector::depthwise_conv2d::channels_last

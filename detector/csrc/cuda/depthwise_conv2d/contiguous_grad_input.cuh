// grad_input of stride 2 on contiguous planes. Row h of it meets row y of grad at tap i = h + pad - 2 y:
// which taps those are follows from the parity of h, so a strip that starts at an even row and column knows
// them at compile time, and no product is with a zero between the pixels.
#pragma once

#include "staging.cuh"

namespace detector::depthwise_conv2d {

constexpr int kGradInputRows = 8;
constexpr int kGradInputThreads = 128;

struct GradInputSizes {
  Staging staging;
  unsigned channels;
  int height, width, out_height, out_width;
};

// The strip at `at` of a plane, from that of the gradient of the output. The padding is K / 2.
template <typename T, int K, bool kVector>
__device__ void transpose_strip(const GradInputSizes& p, const Strips::Place& at, const T* from,
                                const T* weight, T* to) {
  using A = Accumulate<T>;
  constexpr int kPad = K / 2;
  constexpr int kBefore = (K - 1 - kPad) / 2;                       // rows of grad above the strip's half
  constexpr int kWindow = (kColumns - 1 + kPad) / 2 + kBefore + 1;  // columns of grad that it meets
  constexpr int kWindowRows = (kGradInputRows - 1 + kPad) / 2 + kBefore + 1;
  A taps[K * K];
#pragma unroll
  for (int t = 0; t < K * K; ++t) {
    taps[t] = A(weight[at.plane % p.channels * (K * K) + t]);
  }
  A sums[kGradInputRows][kColumns] = {};
  const Plane<T> plane{from, p.out_height, p.out_width};
#pragma unroll
  for (int b = 0; b < kWindowRows; ++b) {
    A window[kWindow];
    plane.template load<kVector, kColumns / 2, kBefore>(at.row / 2 + b - kBefore, at.column / 2, window);
#pragma unroll
    for (int h = 0; h < kGradInputRows; ++h) {
      const int i = h + kPad - 2 * (b - kBefore);
      if (0 <= i && i < K) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
#pragma unroll
          for (int d = 0; d < kWindow; ++d) {
            const int j = c + kPad - 2 * (d - kBefore);
            if (0 <= j && j < K) {
              sums[h][c] += taps[i * K + j] * window[d];
            }
          }
        }
      }
    }
  }
  T* rows = to + at.row * p.width;
#pragma unroll
  for (int h = 0; h < kGradInputRows; ++h) {
    if (at.row + h < p.height) {
      store_row<kVector>(rows + h * p.width, at.column, p.width, sums[h]);
    }
  }
}

// kVector: rows of both tensors are aligned.
template <typename T, int K, bool kVector>
__global__ void __launch_bounds__(kGradInputThreads)
    contiguous_grad_input_kernel(GradInputSizes p, const T* __restrict__ grad, const T* __restrict__ weight,
                                 T* __restrict__ result) {
  with_strip<!kVector>(p.staging, grad, result, [&](const Strips::Place& at, const T* from, T* to) {
    transpose_strip<T, K, kVector>(p, at, from, weight, to);
  });
}

template <int K, typename T>
void launch_contiguous_grad_input(const Problem& p, const T* grad, const T* weight, T* result,
                                  cudaStream_t stream) {
  const Strips strips(p.height, p.width, kGradInputRows);
  const unsigned num_strips = unsigned(p.batch * p.channels) * strips.strips_per_plane();
  const int grad_plane_size = int(p.out_height * p.out_width), result_plane_size = int(p.height * p.width);
  const bool vector = p.width % kColumns == 0 && p.out_width % 2 == 0 &&
                      is_aligned(grad, sizeof(Pack<T, kColumns>)) &&
                      is_aligned(result, sizeof(Pack<T, kColumns>));
  const int planes =
      vector ? 0 : staged_planes(strips, kGradInputThreads, grad_plane_size + result_plane_size, sizeof(T));
  const GradInputSizes sizes{{strips, num_strips, 1, grad_plane_size, result_plane_size, planes},
                             unsigned(p.channels),
                             int(p.height),
                             int(p.width),
                             int(p.out_height),
                             int(p.out_width)};
  const auto kernel =
      vector ? contiguous_grad_input_kernel<T, K, true> : contiguous_grad_input_kernel<T, K, false>;
  const StagedLaunch launch = launch_of(sizes.staging, kGradInputThreads, sizeof(T));
  launch_kernel(kernel, launch.blocks, kGradInputThreads, launch.bytes, stream, sizes, grad, weight, result);
}

}  // namespace detector::depthwise_conv2d

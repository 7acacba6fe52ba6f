// The forward pass on contiguous planes and, with the kernel turned by 180 degrees, grad_input of stride 1.
#pragma once

#include "staging.cuh"

namespace detector::depthwise_conv2d {

constexpr int kForwardRows = 8;
constexpr int kForwardThreads = 128;

struct ForwardSizes {
  Staging staging;
  unsigned out_channels;
  int height, width, out_height, out_width, pad_h, pad_w;
  bool turned;  // read the kernel from its last tap to its first
};

// The strip at `at` of an output plane, from the plane of the input that it reads.
template <typename T, int K, int S, bool kVector>
__device__ void convolve_strip(const ForwardSizes& p, const Strips::Place& at, const T* from, const T* weight,
                               const T* bias, T* to) {
  using A = Accumulate<T>;
  constexpr int kWindow = (kColumns - 1) * S + K;
  const unsigned channel = at.plane % p.out_channels;
  A taps[K * K];
#pragma unroll
  for (int t = 0; t < K * K; ++t) {
    taps[t] = A(weight[channel * (K * K) + (p.turned ? K * K - 1 - t : t)]);
  }
  A sums[kForwardRows][kColumns];
  const A start = bias != nullptr ? A(bias[channel]) : A(0);
#pragma unroll
  for (int y = 0; y < kForwardRows; ++y) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      sums[y][c] = start;
    }
  }
  const Plane<T> plane{from, p.height, p.width};
#pragma unroll
  for (int r = 0; r < (kForwardRows - 1) * S + K; ++r) {
    A window[kWindow];
    const int row = at.row * S + r - p.pad_h;
    if constexpr (kVector) {
      plane.template load<true, kColumns, K / 2>(row, at.column * S, window);
    } else {
      plane.template load<false, 1, 0>(row, at.column * S - p.pad_w, window);
    }
#pragma unroll
    for (int y = 0; y < kForwardRows; ++y) {
      const int i = r - y * S;
      if (0 <= i && i < K) {
#pragma unroll
        for (int j = 0; j < K; ++j) {
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            sums[y][c] += taps[i * K + j] * window[c * S + j];
          }
        }
      }
    }
  }
  T* rows = to + at.row * p.out_width;
#pragma unroll
  for (int y = 0; y < kForwardRows; ++y) {
    if (at.row + y < p.out_height) {
      store_row<kVector>(rows + y * p.out_width, at.column, p.out_width, sums[y]);
    }
  }
}

// kVector: pad_w is K / 2, and rows are aligned; else any.
template <typename T, int K, int S, bool kVector>
__global__ void __launch_bounds__(kForwardThreads)
    contiguous_forward_kernel(ForwardSizes p, const T* __restrict__ input, const T* __restrict__ weight,
                              const T* __restrict__ bias, T* __restrict__ output) {
  with_strip<!kVector>(p.staging, input, output, [&](const Strips::Place& at, const T* from, T* to) {
    convolve_strip<T, K, S, kVector>(p, at, from, weight, bias, to);
  });
}

template <int K, int S, typename T>
void launch_contiguous_forward(const Problem& p, bool turned, const T* input, const T* weight, const T* bias,
                               T* output, cudaStream_t stream) {
  const Strips strips(p.out_height, p.out_width, kForwardRows);
  const unsigned num_strips = unsigned(p.batch * p.out_channels()) * strips.strips_per_plane();
  const int input_plane_size = int(p.height * p.width), output_plane_size = int(p.out_height * p.out_width);
  const bool vector = p.pad_w == K / 2 && p.width % kColumns == 0 && p.out_width % kColumns == 0 &&
                      is_aligned(input, sizeof(Pack<T, kColumns>)) &&
                      is_aligned(output, sizeof(Pack<T, kColumns>));
  const int planes =
      vector ? 0 : staged_planes(strips, kForwardThreads, input_plane_size + output_plane_size, sizeof(T));
  const ForwardSizes sizes{
      {strips, num_strips, unsigned(p.multiplier), input_plane_size, output_plane_size, planes},
      unsigned(p.out_channels()),
      int(p.height),
      int(p.width),
      int(p.out_height),
      int(p.out_width),
      int(p.pad_h),
      int(p.pad_w),
      turned};
  const auto kernel =
      vector ? contiguous_forward_kernel<T, K, S, true> : contiguous_forward_kernel<T, K, S, false>;
  const StagedLaunch launch = launch_of(sizes.staging, kForwardThreads, sizeof(T));
  launch_kernel(kernel, launch.blocks, kForwardThreads, launch.bytes, stream, sizes, input, weight, bias,
                output);
}

}  // namespace detector::depthwise_conv2d

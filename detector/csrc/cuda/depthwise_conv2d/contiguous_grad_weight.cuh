// grad_weight on contiguous planes. A block goes through strips of one channel with the K x K sums in
// registers and adds those of its threads; a second kernel adds the blocks of a channel. All in a fixed
// order.
#pragma once

#include "../reduce.cuh"
#include "strips.cuh"

namespace detector::depthwise_conv2d {

constexpr int kGradWeightRows = 8;
constexpr int kGradWeightThreads = 128;
constexpr int kGradWeightWarps = kGradWeightThreads / kWarp;
constexpr int64_t kGradWeightBlocks = 4096;  // enough to fill a GPU several times over

struct GradWeightSizes {
  Strips strips;
  unsigned num_strips, strips_of_block;  // of all images of one channel
  unsigned channels, multiplier;
  int height, width, out_height, out_width, pad_h, pad_w;
};

// The products of one strip of grad with the input it meets.
template <int K, int S, bool kVector, typename T, typename A>
__device__ void add_strip(const GradWeightSizes& p, const Plane<T>& input, const Plane<T>& grad, int row,
                          int column, A (&sums)[K * K]) {
  constexpr int kWindow = (kColumns - 1) * S + K;
  A grads[kGradWeightRows][kColumns];
#pragma unroll
  for (int y = 0; y < kGradWeightRows; ++y) {
    grad.template load<kVector, kVector ? kColumns : 1, 0>(row + y, column, grads[y]);
  }
#pragma unroll
  for (int r = 0; r < (kGradWeightRows - 1) * S + K; ++r) {
    A window[kWindow];
    const int input_row = row * S + r - p.pad_h;
    if constexpr (kVector) {
      input.template load<true, kColumns, K / 2>(input_row, column * S, window);
    } else {
      input.template load<false, 1, 0>(input_row, column * S - p.pad_w, window);
    }
#pragma unroll
    for (int y = 0; y < kGradWeightRows; ++y) {
      const int i = r - y * S;
      if (0 <= i && i < K) {
#pragma unroll
        for (int j = 0; j < K; ++j) {
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            sums[i * K + j] += grads[y][c] * window[c * S + j];
          }
        }
      }
    }
  }
}

// totals[i] = the sum of all threads' sums[i]; of_warp is (warps, N) of shared memory that nobody reads any
// more.
template <int N, typename A>
__device__ void add_threads(const A (&sums)[N], A* of_warp, A* totals) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const A sum = warp_reduce(sums[i], Sum{});
    if (lane_of_thread() == 0) {
      of_warp[warp_of_thread() * N + i] = sum;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < N; i += blockDim.x) {
    A sum = 0;
    for (int warp = 0; warp < blockDim.x / kWarp; ++warp) {
      sum += of_warp[warp * N + i];
    }
    totals[i] = sum;
  }
}

// Block (k, s) takes stretch s of the strips of output channel k; partial is (blocks of a channel, C m, K,
// K).
template <typename T, typename A, int K, int S, bool kVector>
__global__ void __launch_bounds__(kGradWeightThreads)
    contiguous_grad_weight_kernel(GradWeightSizes p, const T* __restrict__ input, const T* __restrict__ grad,
                                  A* __restrict__ partial) {
  __shared__ A of_warp[kGradWeightWarps * K * K];
  const unsigned k = blockIdx.x, out_channels = p.channels * p.multiplier;
  const unsigned begin = blockIdx.y * p.strips_of_block, end = min(begin + p.strips_of_block, p.num_strips);
  A sums[K * K] = {};
  for (unsigned strip = begin + threadIdx.x; strip < end; strip += kGradWeightThreads) {
    const auto at = p.strips.place(strip);  // the plane is the image
    const int64_t in_plane = int64_t(at.plane) * p.channels + k / p.multiplier;
    const int64_t out_plane = int64_t(at.plane) * out_channels + k;
    add_strip<K, S, kVector>(
        p, Plane<T>{input + in_plane * p.height * p.width, p.height, p.width},
        Plane<T>{grad + out_plane * p.out_height * p.out_width, p.out_height, p.out_width}, at.row, at.column,
        sums);
  }
  add_threads<K * K>(sums, of_warp, partial + (int64_t(blockIdx.y) * out_channels + k) * (K * K));
}

template <typename T, typename A>
__global__ void add_partial_sums_kernel(const A* __restrict__ partial, int64_t weights, int stretches,
                                        T* __restrict__ result) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < weights; i += step) {
    A sum = 0;
    for (int s = 0; s < stretches; ++s) {
      sum += partial[s * weights + i];
    }
    result[i] = T(sum);
  }
}

// result[i] = the sum over blocks b of partial[b][i]
template <typename T, typename A>
void add_partial_sums(const A* partial, int64_t weights, int64_t blocks, T* result, cudaStream_t stream) {
  add_partial_sums_kernel<<<blocks_for(weights, 128), 128, 0, stream>>>(partial, weights, int(blocks),
                                                                        result);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

template <int K, int S, typename T, typename Allocate>
void launch_contiguous_grad_weight(const Problem& p, const T* input, const T* grad, T* result,
                                   const Allocate& allocate, cudaStream_t stream) {
  using A = Accumulate<T>;
  const Strips strips(p.out_height, p.out_width, kGradWeightRows);
  const int64_t num_strips = p.batch * strips.of_plane(), weights = p.out_channels() * K * K;
  // Two strips a thread at least, so that adding the threads up costs little beside them.
  const int64_t most = std::min(ceil_div(num_strips, 2 * kGradWeightThreads), int64_t(65535));
  const int64_t stretches = std::clamp(kGradWeightBlocks / p.out_channels(), int64_t(1), most);
  const int64_t strips_of_block = ceil_div(num_strips, stretches);
  const GradWeightSizes sizes{strips,
                              unsigned(num_strips),
                              unsigned(strips_of_block),
                              unsigned(p.channels),
                              unsigned(p.multiplier),
                              int(p.height),
                              int(p.width),
                              int(p.out_height),
                              int(p.out_width),
                              int(p.pad_h),
                              int(p.pad_w)};
  const bool vector = p.pad_w == K / 2 && p.width % kColumns == 0 && p.out_width % kColumns == 0 &&
                      aligned(input) && aligned(grad);
  const auto kernel = vector ? contiguous_grad_weight_kernel<T, A, K, S, true>
                             : contiguous_grad_weight_kernel<T, A, K, S, false>;
  A* partial = allocate(stretches * weights);
  const dim3 grid(p.out_channels(), stretches);
  kernel<<<grid, kGradWeightThreads, 0, stream>>>(sizes, input, grad, partial);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  add_partial_sums(partial, weights, stretches, result, stream);
}

}  // namespace detector::depthwise_conv2d

// grad_weight of half types on tensor cores. For tap row i, with the rows y as the inner dimension,
//
//   D_i[a, n] = sum over y of input[y + i - pad, x0 + a - pad] grad[y, x0 + n]
//
// and the gradient of tap (i, j) is the sum over n of D_i[n + j, n]: 16 rows by 8 columns of grad take K
// matrix instructions. A warp keeps its D_i in registers over all its tiles and images.
#pragma once

#include "contiguous_grad_weight.cuh"
#include "tensor_cores.cuh"

namespace detector::depthwise_conv2d {

template <int K, typename T>
__device__ void correlate_rows(const T* input, int input_pitch, const T* grad, int grad_pitch, int columns,
                               float (&sums)[K][4]) {
  const T* input_row = input + lane_of_thread() % kTileRows * input_pitch;
  const T* grad_row = grad + lane_of_thread() % kTileRows * grad_pitch;
  uint32_t left[K][2], right[K][2], grads[2];
#pragma unroll
  for (int i = 0; i < K; ++i) {
    load_matrices<true>(left[i][0], left[i][1], input_row + i * input_pitch);
  }
  for (int x = 0; x < columns; x += kVector) {
    load_matrices<true>(grads[0], grads[1], grad_row + x);
#pragma unroll
    for (int i = 0; i < K; ++i) {
      load_matrices<true>(right[i][0], right[i][1], input_row + i * input_pitch + x + kVector);
    }
#pragma unroll
    for (int i = 0; i < K; ++i) {
      multiply_add<T>(sums[i], left[i][0], right[i][0], left[i][1], right[i][1], grads[0], grads[1]);
      left[i][0] = right[i][0], left[i][1] = right[i][1];
    }
  }
}

// Block (k, tile, z) writes its sums for output channel k to partial (tiles * z, C m, K, K).
template <typename T, int K>
__global__ void __launch_bounds__(kMostWarps* kWarp, 2)
    tensor_core_grad_weight_kernel(TileSizes s, const T* __restrict__ input, const T* __restrict__ grad,
                                   float* __restrict__ partial) {
  extern __shared__ uint4 shared[];
  T* tile = reinterpret_cast<T*>(shared);
  const int rows = s.warps * kTileRows, k = blockIdx.x, out_channels = s.channels * s.multiplier;
  T* grads = tile + (rows + K - 1) * s.input_pitch;
  const int row = s.first_row(), column = s.first_column(), columns = min(s.columns, s.width - column);
  const int own_row = warp_of_thread() * kTileRows;
  float sums[K][4] = {};
  for (int n = blockIdx.z; n < s.batch; n += gridDim.z) {
    const int64_t in_plane = int64_t(n) * s.channels + k / s.multiplier;
    const int64_t out_plane = int64_t(n) * out_channels + k;
    stage<K / 2>(input + in_plane * s.height * s.width, s.height, s.width, row - K / 2, column, rows + K - 1,
                 columns + kVector, s.input_pitch, tile);
    stage<0>(grad + out_plane * s.height * s.width, s.height, s.width, row, column, rows, columns,
             s.grad_pitch, grads);
    __syncthreads();
    correlate_rows<K>(tile + own_row * s.input_pitch, s.input_pitch, grads + own_row * s.grad_pitch,
                      s.grad_pitch, columns, sums);
    __syncthreads();  // the tiles are free again
  }
  float* of_warp = reinterpret_cast<float*>(shared);  // (warps, K, 16, 8): the D_i
#pragma unroll
  for (int i = 0; i < K; ++i) {
    float* d =
        of_warp + (warp_of_thread() * K + i) * 128 + lane_of_thread() / 4 * 8 + lane_of_thread() % 4 * 2;
    d[0] = sums[i][0], d[1] = sums[i][1], d[64] = sums[i][2], d[65] = sums[i][3];
  }
  __syncthreads();
  for (int tap = threadIdx.x; tap < K * K; tap += blockDim.x) {
    float sum = 0;
    for (int warp = 0; warp < s.warps; ++warp) {
      for (int n = 0; n < 8; ++n) {
        sum += of_warp[(warp * K + tap / K) * 128 + (n + tap % K) * 8 + n];
      }
    }
    const int64_t block = int64_t(blockIdx.z) * gridDim.y + blockIdx.y;
    partial[(block * out_channels + k) * (K * K) + tap] = sum;
  }
}

template <int K, typename T, typename Allocate>
bool launch_tensor_core_grad_weight(const Problem& p, const T* input, const T* grad, T* result,
                                    const Allocate& allocate, cudaStream_t stream) {
  if (!tensor_cores_fit<K>(p, input, grad)) {
    return false;
  }
  const TileSizes sizes = tile_sizes(p);
  const int rows = sizes.warps * kTileRows;
  const int of_tiles = ((rows + K - 1) * sizes.input_pitch + rows * sizes.grad_pitch) * int(sizeof(T));
  const int bytes = std::max(of_tiles, sizes.warps * K * 128 * int(sizeof(float)));
  const auto kernel = tensor_core_grad_weight_kernel<T, K>;
  STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const int64_t tiles = sizes.bands * ceil_div(sizes.width, sizes.columns);
  const int64_t groups = std::clamp<int64_t>(kGradWeightBlocks / (p.out_channels() * tiles), 1,
                                             std::min<int64_t>(p.batch, 65535));
  const int64_t weights = p.out_channels() * K * K;
  float* partial = allocate(groups * tiles * weights);
  kernel<<<tile_grid(p, sizes, groups), sizes.warps * kWarp, bytes, stream>>>(sizes, input, grad, partial);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  add_partial_sums(partial, weights, groups * tiles, result, stream);
  return true;
}

}  // namespace detector::depthwise_conv2d

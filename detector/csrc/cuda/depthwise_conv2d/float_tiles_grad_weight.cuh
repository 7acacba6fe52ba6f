// grad_weight by tiles: a thread keeps the K x K sums in registers over all images of its block.
#pragma once

#include "contiguous_grad_weight.cuh"
#include "float_tiles.cuh"

namespace detector::depthwise_conv2d {

template <int K>
__device__ void correlate_strip(const float* corner, int pitch, const float* grad, int grad_pitch,
                                float (&sums)[K * K]) {
  alignas(16) float grads[kStripRows][kColumns];
#pragma unroll
  for (int y = 0; y < kStripRows; ++y) {
    read_row(grad + y * grad_pitch, grads[y]);
  }
#pragma unroll
  for (int r = 0; r < kStripRows + K - 1; ++r) {
    alignas(16) float window[kWindowVectors<K> * kColumns];
    read_row(corner + r * pitch, window);
#pragma unroll
    for (int y = 0; y < kStripRows; ++y) {
      const int i = r - y;
      if (0 <= i && i < K) {
#pragma unroll
        for (int j = 0; j < K; ++j) {
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            sums[i * K + j] += grads[y][c] * window[c + j];
          }
        }
      }
    }
  }
}

// Block (k, band, z) writes its sums for output channel k to partial (bands * z, C m, K, K).
template <int K>
__global__ void __launch_bounds__(kMostThreads)
    float_tiles_grad_weight_kernel(FloatTiles t, const float* __restrict__ input,
                                   const float* __restrict__ grad, float* __restrict__ partial) {
  extern __shared__ uint4 shared[];
  float* tile = reinterpret_cast<float*>(shared);
  const int k = blockIdx.x, first_row = int(blockIdx.y) * t.grad_rows,
            out_channels = t.channels * t.multiplier;
  const int64_t in_plane = int64_t(t.height) * t.width, out_plane = int64_t(t.out_height) * t.out_width;
  const int step = int(gridDim.z) * t.images, of_both = t.of_input() + t.of_grad();
  const auto copy = [&](int n, int buffer) {
    if (n < t.batch) {
      const int images = min(t.images, t.batch - n);
      float* to = tile + buffer * of_both;
      begin_copy(input + (int64_t(n) * t.channels + k / t.multiplier) * in_plane, t.channels * in_plane,
                 images, t.height, t.width, first_row - t.pad_h, t.pad_w, t.input_rows, t.input_pitch,
                 t.images, to);
      begin_copy(grad + (int64_t(n) * out_channels + k) * out_plane, out_channels * out_plane, images,
                 t.out_height, t.out_width, first_row, 0, t.grad_rows, t.grad_pitch, t.images,
                 to + t.of_input());
    }
    __pipeline_commit();
  };
  int n = int(blockIdx.z) * t.images, buffer = 0;
  copy(n, 0);
  float sums[K * K] = {};
  const TilePlace at(t);
  for (; n < t.batch; n += step, buffer ^= 1) {
    copy(n + step, buffer ^ 1);
    __pipeline_wait_prior(1);
    __syncthreads();
    if (at.works) {
      const float* from = tile + buffer * of_both;
      correlate_strip<K>(from + (at.image * t.input_rows + at.row) * t.input_pitch + at.column, t.input_pitch,
                         from + t.of_input() + (at.image * t.grad_rows + at.row) * t.grad_pitch + at.column,
                         t.grad_pitch, sums);
    }
    __syncthreads();  // the buffer is free again
  }
  const int64_t block = int64_t(blockIdx.z) * gridDim.y + blockIdx.y;
  add_threads<K * K>(sums, tile, partial + (block * out_channels + k) * (K * K));
}

template <int K, typename Allocate>
void launch_float_tiles_grad_weight(const Problem& p, const float* input, const float* grad, float* result,
                                    const Allocate& allocate, cudaStream_t stream) {
  const FloatTiles tiles = float_tiles<K>(p);
  const int of_sums = tiles.threads / kWarp * K * K;
  const int bytes = std::max(2 * (tiles.of_input() + tiles.of_grad()), of_sums) * int(sizeof(float));
  const auto kernel = float_tiles_grad_weight_kernel<K>;
  STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const int64_t most = std::min<int64_t>(ceil_div(p.batch, tiles.images), 65535);
  const int64_t groups =
      std::clamp<int64_t>(kGradWeightBlocks / 2 / (p.out_channels() * tiles.bands), 1, most);
  const int64_t weights = p.out_channels() * K * K;
  float* partial = allocate(groups * tiles.bands * weights);
  kernel<<<dim3(unsigned(p.out_channels()), tiles.bands, unsigned(groups)), tiles.threads, bytes, stream>>>(
      tiles, input, grad, partial);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  add_partial_sums(partial, weights, groups * tiles.bands, result, stream);
}

}  // namespace detector::depthwise_conv2d

// The forward pass by tiles and, with the kernel turned, grad_input.
#pragma once

#include "float_tiles.cuh"

namespace detector::depthwise_conv2d {

// 8 x 4 outputs from the tile of the input, at the strip's first input.
template <int K>
__device__ void convolve_strip(const float* corner, int pitch, const float (&taps)[K * K], float start,
                               float (&sums)[kStripRows][kColumns]) {
#pragma unroll
  for (int y = 0; y < kStripRows; ++y) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      sums[y][c] = start;
    }
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
            sums[y][c] += taps[i * K + j] * window[c + j];
          }
        }
      }
    }
  }
}

// Block (k, band, z): output channel k of every gridDim.z-th group of images. kVector: rows of output are
// aligned.
template <int K, bool kVector>
__global__ void __launch_bounds__(kMostThreads)
    float_tiles_forward_kernel(FloatTiles t, bool turned, const float* __restrict__ input,
                               const float* __restrict__ weight, const float* __restrict__ bias,
                               float* __restrict__ output) {
  extern __shared__ uint4 shared[];
  float* tile = reinterpret_cast<float*>(shared);
  const int k = blockIdx.x, first_row = int(blockIdx.y) * t.grad_rows;
  const int64_t in_image = int64_t(t.channels) * t.height * t.width;
  const int64_t out_plane = int64_t(t.out_height) * t.out_width,
                out_image = t.channels * t.multiplier * out_plane;
  const float* in_planes = input + int64_t(k / t.multiplier) * t.height * t.width;
  const int step = int(gridDim.z) * t.images;
  const auto copy = [&](int n, int buffer) {
    if (n < t.batch) {
      begin_copy(in_planes + n * in_image, in_image, min(t.images, t.batch - n), t.height, t.width,
                 first_row - t.pad_h, t.pad_w, t.input_rows, t.input_pitch, t.images,
                 tile + buffer * t.of_input());
    }
    __pipeline_commit();
  };
  int n = int(blockIdx.z) * t.images, buffer = 0;
  copy(n, 0);
  float taps[K * K];
#pragma unroll
  for (int i = 0; i < K * K; ++i) {
    taps[i] = weight[k * (K * K) + (turned ? K * K - 1 - i : i)];
  }
  const float start = bias != nullptr ? bias[k] : 0.f;
  const TilePlace at(t);
  for (; n < t.batch; n += step, buffer ^= 1) {
    copy(n + step, buffer ^ 1);
    __pipeline_wait_prior(1);
    __syncthreads();
    if (at.works && n + at.image < t.batch) {
      float sums[kStripRows][kColumns];
      convolve_strip<K>(
          tile + buffer * t.of_input() + (at.image * t.input_rows + at.row) * t.input_pitch + at.column,
          t.input_pitch, taps, start, sums);
      const int row = first_row + at.row;
      float* rows = output + (n + at.image) * out_image + k * out_plane + int64_t(row) * t.out_width;
#pragma unroll
      for (int y = 0; y < kStripRows; ++y) {
        if (row + y < t.out_height) {
          store_row<kVector>(rows + y * t.out_width, at.column, t.out_width, sums[y]);
        }
      }
    }
    __syncthreads();  // the buffer is free again
  }
}

template <int K>
void launch_float_tiles_forward(const Problem& p, bool turned, const float* input, const float* weight,
                                const float* bias, float* output, cudaStream_t stream) {
  const FloatTiles tiles = float_tiles<K>(p);
  const int bytes = 2 * tiles.of_input() * int(sizeof(float));
  const auto kernel = p.out_width % kColumns == 0 && aligned(output) ? float_tiles_forward_kernel<K, true>
                                                                     : float_tiles_forward_kernel<K, false>;
  STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const int64_t groups = std::min<int64_t>(ceil_div(ceil_div(p.batch, tiles.images), 8), 65535);
  kernel<<<dim3(unsigned(p.out_channels()), tiles.bands, unsigned(groups)), tiles.threads, bytes, stream>>>(
      tiles, turned, input, weight, bias, output);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace detector::depthwise_conv2d

// The forward pass of half types on tensor cores, and grad_input with the kernel turned. For tap row i a row
// of the output is a row of the input times a banded matrix,
//
//   output[y, x0 + n] = sum over i and k < 16 of input[y + i - pad, x0 + k - pad] B_i[k, n],  B_i[k, n] =
//   w[i, k - n]
//
// so 16 rows by 8 columns take K matrix instructions, of which 8 K of 128 products count. Products are exact
// in float32 and are summed there. Zeros of B times NaN or Inf would spread those to outputs that do not see
// them: where a NaN comes out, the 128 outputs are computed again without matrices.
#pragma once

#include "tensor_cores.cuh"

namespace detector::depthwise_conv2d {

// The B_i of a channel, as the lanes hold them.
template <int K, typename T>
__device__ void load_bands(const T* weight, bool turned, uint32_t (&bands)[K][2]) {
  const int n = lane_of_thread() / 4, k = lane_of_thread() % 4 * 2;
#pragma unroll
  for (int i = 0; i < K; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Pack<T, 2> pair;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int j = k + half * 8 + e - n, tap = i * K + j;
        pair.values[e] = 0 <= j && j < K ? weight[turned ? K * K - 1 - tap : tap] : T(0.f);
      }
      bands[i][half] = *reinterpret_cast<const uint32_t*>(&pair);
    }
  }
}

// What the lane holds of the 16 x 8 outputs whose first input is at `corner`.
template <int K, typename T>
__device__ __noinline__ void sum_directly(const T* corner, int pitch, const T* weight, bool turned,
                                          float start, float (&sums)[4]) {
  for (int e = 0; e < 4; ++e) {
    const T* pixel = corner + (lane_of_thread() / 4 + e / 2 * 8) * pitch + lane_of_thread() % 4 * 2 + e % 2;
    sums[e] = start;
#pragma unroll 1
    for (int tap = 0; tap < K * K; ++tap) {
      sums[e] += float(weight[turned ? K * K - 1 - tap : tap]) * float(pixel[tap / K * pitch + tap % K]);
    }
  }
}

// A warp's 16 rows, from the tile of the input to its rows of the tile of the output.
template <int K, typename T>
__device__ void convolve_rows(const T* tile, int pitch, int columns, const uint32_t (&bands)[K][2],
                              const T* weight, bool turned, float start, T* out) {
  const T* lane_row = tile + lane_of_thread() % kTileRows * pitch;
  uint32_t left[K][2], right[K][2];
#pragma unroll
  for (int i = 0; i < K; ++i) {
    load_matrices<false>(left[i][0], left[i][1], lane_row + i * pitch);
  }
  for (int x = 0; x < columns; x += kVector) {
    float sums[4] = {start, start, start, start};
#pragma unroll
    for (int i = 0; i < K; ++i) {
      load_matrices<false>(right[i][0], right[i][1], lane_row + i * pitch + x + kVector);
    }
#pragma unroll
    for (int i = 0; i < K; ++i) {
      multiply_add<T>(sums, left[i][0], left[i][1], right[i][0], right[i][1], bands[i][0], bands[i][1]);
      left[i][0] = right[i][0], left[i][1] = right[i][1];
    }
    const float total = sums[0] + sums[1] + sums[2] + sums[3];
    if (__any_sync(0xffffffffu, isnan(total))) {
      sum_directly<K>(tile + x, pitch, weight, turned, start, sums);
    }
    T* target = out + lane_of_thread() / 4 * pitch + x + lane_of_thread() % 4 * 2;
    *reinterpret_cast<Pack<T, 2>*>(target) = Pack<T, 2>{T(sums[0]), T(sums[1])};
    *reinterpret_cast<Pack<T, 2>*>(target + 8 * pitch) = Pack<T, 2>{T(sums[2]), T(sums[3])};
  }
}

// Block (k, tile, z): output channel k of every gridDim.z-th image.
template <typename T, int K>
__global__ void __launch_bounds__(kMostWarps* kWarp, 2)
    tensor_core_forward_kernel(TileSizes s, bool turned, const T* __restrict__ input,
                               const T* __restrict__ weight, const T* __restrict__ bias,
                               T* __restrict__ output) {
  extern __shared__ uint4 shared[];
  T* tile = reinterpret_cast<T*>(shared);
  const int rows = s.warps * kTileRows, pitch = s.input_pitch, k = blockIdx.x;
  T* out = tile + (rows + K - 1 + warp_of_thread() * kTileRows) * pitch;
  const int row = s.first_row(), column = s.first_column(), columns = min(s.columns, s.width - column);
  const T* taps = weight + int64_t(k) * (K * K);
  uint32_t bands[K][2];
  load_bands<K>(taps, turned, bands);
  const float start = bias != nullptr ? float(bias[k]) : 0.f;
  for (int n = blockIdx.z; n < s.batch; n += gridDim.z) {
    const int64_t in_plane = int64_t(n) * s.channels + k / s.multiplier;
    const int64_t out_plane = int64_t(n) * s.channels * s.multiplier + k;
    stage<K / 2>(input + in_plane * s.height * s.width, s.height, s.width, row - K / 2, column, rows + K - 1,
                 columns + kVector, pitch, tile);
    __syncthreads();
    const int own_row = row + warp_of_thread() * kTileRows;
    convolve_rows<K>(tile + warp_of_thread() * kTileRows * pitch, pitch, columns, bands, taps, turned, start,
                     out);
    __syncwarp();
    const int vectors = columns / kVector;
    T* target = output + (out_plane * s.height + own_row) * s.width + column;
    for (int e = lane_of_thread(); e < kTileRows * vectors; e += kWarp) {
      const int r = e / vectors, v = e - r * vectors;
      if (own_row + r < s.height) {
        *reinterpret_cast<uint4*>(target + int64_t(r) * s.width + v * kVector) =
            *reinterpret_cast<const uint4*>(out + r * pitch + v * kVector);
      }
    }
    __syncthreads();  // the tile is free again
  }
}

template <int K, typename T>
bool launch_tensor_core_forward(const Problem& p, bool turned, const T* input, const T* weight, const T* bias,
                                T* output, cudaStream_t stream) {
  if (!tensor_cores_fit<K>(p, input, output)) {
    return false;
  }
  const TileSizes sizes = tile_sizes(p);
  const int bytes = (2 * sizes.warps * kTileRows + K - 1) * sizes.input_pitch * int(sizeof(T));
  const auto kernel = tensor_core_forward_kernel<T, K>;
  STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const int64_t groups = std::min<int64_t>(ceil_div(p.batch, 4), 65535);  // four images share the B_i
  kernel<<<tile_grid(p, sizes, groups), sizes.warps * kWarp, bytes, stream>>>(sizes, turned, input, weight,
                                                                              bias, output);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  return true;
}

}  // namespace detector::depthwise_conv2d

// grad_weight by tensor cores. For an octet p of the input's columns and one q = p - 1, p, p + 1 of grad's,
// with the rows y as the inner dimension and tap rows i and i + 1 as the halves of a matrix,
//
//   D_i[q][a, n] = sum over y of input[y + i - pad, 8 p + a] grad[y, 8 q + n]
//
// belongs to tap (i, 8 (p - q) + a - n + K / 2). A warp keeps its D in registers over all its tiles and
// images.
#pragma once

#include "contiguous_grad_weight.cuh"
#include "tensor_cores.cuh"

namespace detector::depthwise_conv2d {

template <int K, typename T>
__device__ void correlate_octets(const T* input, int input_pitch, const T* grad, int grad_pitch, int octets,
                                 float (&sums)[(K + 1) / 2][3][4]) {
  const int l = lane_of_thread();
  // a0: rows y of tap row i; a1: of i + 1; a2, a3: eight rows below
  const T* rows = input + (l % 8 + l / 8 % 2 + l / 16 * 8) * input_pitch;
  const T* last_rows = input + (K - 1 + l % 16) * input_pitch;
  const T* grad_rows = grad + l % 16 * grad_pitch;
  uint32_t before[2] = {}, at[2] = {}, after[2] = {};
  for (int x = 0; x < octets + 2; ++x, rows += kVector, last_rows += kVector) {
    before[0] = at[0], before[1] = at[1], at[0] = after[0], at[1] = after[1];
    after[0] = 0, after[1] = 0;
    if (x < octets) {
      load_matrices<true>(after[0], after[1], grad_rows + x * kVector);
    }
#pragma unroll
    for (int i = 0; i < K; i += 2) {
      uint32_t a[4] = {};
      if (i + 1 < K) {
        load_matrices<true>(a, rows + i * input_pitch);
      } else {
        load_matrices<true>(a[0], a[2], last_rows);
      }
      multiply_add<T>(sums[i / 2][0], sums[i / 2][0], a, before);
      multiply_add<T>(sums[i / 2][1], sums[i / 2][1], a, at);
      multiply_add<T>(sums[i / 2][2], sums[i / 2][2], a, after);
    }
  }
}

// Block (k, tile, z) writes its sums for output channel k to partial (tiles * z, C m, K, K).
template <typename T, int K>
__global__ void __launch_bounds__(kMostWarps* kWarp, 2)
    depthwise_tensor_cores_grad_weight_kernel(TileSizes s, const T* __restrict__ input,
                                              const T* __restrict__ grad, float* __restrict__ partial) {
  constexpr int kPairs = (K + 1) / 2;
  extern __shared__ uint4 shared[];
  const int rows = s.warps * kTileRows, k = blockIdx.x, out_channels = s.channels * s.multiplier;
  const int row = first_row(s), column = first_column(s), columns = min(s.columns, s.width - column);
  const StagedTile tile{
      s.height, s.width, row - K / 2, column - kVector, rows + K - 1, s.columns / kVector + 2, s.input_pitch};
  const StagedTile grad_tile{s.height, s.width, row, column, rows, s.columns / kVector, s.grad_pitch};
  const int tile_size = tile.rows * tile.pitch, slot_size = tile_size + rows * s.grad_pitch;
  T* const tiles = reinterpret_cast<T*>(shared);
  const auto fetch = [&](int n, int slot) {
    if (n < s.batch) {
      const int64_t in_plane = int64_t(n) * s.channels + k / s.multiplier;
      const int64_t out_plane = int64_t(n) * out_channels + k;
      tile.fetch(input + in_plane * s.height * s.width, tiles + slot * slot_size);
      grad_tile.fetch(grad + out_plane * s.height * s.width, tiles + slot * slot_size + tile_size);
    }
    channels_last::commit_copies();
  };
  for (int slot = 0; slot < 2; ++slot) {
    tile.clear(tiles + slot * slot_size);
    grad_tile.clear(tiles + slot * slot_size + tile_size);
  }
  __syncthreads();
  float sums[kPairs][3][4] = {};
  int slot = 0;
  fetch(blockIdx.z, slot);
  for (int n = blockIdx.z; n < s.batch; n += gridDim.z, slot ^= 1) {
    fetch(n + gridDim.z, slot ^ 1);
    channels_last::wait_for_copies<1>();
    __syncthreads();
    const T* own = tiles + slot * slot_size;
    correlate_octets<K>(own + warp_of_thread() * kTileRows * s.input_pitch, s.input_pitch,
                        own + tile_size + warp_of_thread() * kTileRows * s.grad_pitch, s.grad_pitch,
                        columns / kVector, sums);
    __syncthreads();  // the tiles are free again
  }
  channels_last::wait_for_copies<0>();
  float* warp_sums = reinterpret_cast<float*>(shared);  // (warps, pairs, 3, 16, 8)
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
#pragma unroll
    for (int q = 0; q < 3; ++q) {
      float* d = warp_sums + ((warp_of_thread() * kPairs + i) * 3 + q) * 128 + lane_of_thread() / 4 * 8 +
                 lane_of_thread() % 4 * 2;
      d[0] = sums[i][q][0], d[1] = sums[i][q][1], d[64] = sums[i][q][2], d[65] = sums[i][q][3];
    }
  }
  __syncthreads();
  for (int tap = threadIdx.x; tap < K * K; tap += blockDim.x) {
    const int i = tap / K, j = tap % K;
    float sum = 0;
    for (int warp = 0; warp < s.warps; ++warp) {
      for (int n = 0; n < 8; ++n) {
        const int a = j + n - K / 2, q = a < 0 ? 2 : a < 8 ? 1 : 0;  // grad's octet after, at, before
        sum += warp_sums[((warp * kPairs + i / 2) * 3 + q) * 128 + i % 2 * 64 + (a & 7) * 8 + n];
      }
    }
    const int64_t block = int64_t(blockIdx.z) * gridDim.y + blockIdx.y;
    partial[(block * out_channels + k) * (K * K) + tap] = sum;
  }
}

template <int K, typename T, typename Allocate>
void launch_tensor_core_grad_weight(const Problem& p, const T* input, const T* grad, T* result,
                                    const Allocate& allocate, cudaStream_t stream) {
  const auto kernel = depthwise_tensor_cores_grad_weight_kernel<T, K>;
  const TileLaunch launch = tile_launch(Pass::kGradWeight, p, compiled_kernel(kernel).most_shared);
  const int64_t weights = p.out_channels() * K * K, parts = int64_t(launch.groups) * launch.tiles;
  float* partial = allocate(parts * weights);
  launch_kernel(kernel, dim3(launch.channels, launch.tiles, launch.groups), launch.sizes.warps * kWarp,
                launch.shared, stream, launch.sizes, input, grad, partial);
  sum_parts(partial, int(parts), weights, result, stream);
}

}  // namespace detector::depthwise_conv2d

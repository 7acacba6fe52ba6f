// Forward by tensor cores. Sixteen rows of eight columns of the output, an octet, are the sum over tap rows i
// of 16 columns of the input, the first of them kMargin before the octet, times a band B_i (16, 8):
//
//   B_i[k, n] = w[i, k - n + K / 2 - kMargin]
//
// The tile begins kMargin columns before the first output, so that the input's octets are whole vectors.
#pragma once

#include "tensor_cores.cuh"

namespace detector::depthwise_conv2d {

constexpr int kMargin = kVector / 2;

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
        const int j = half * kVector + k + e - n + K / 2 - kMargin, tap = i * K + j;
        pair.values[e] = 0 <= j && j < K ? weight[turned ? K * K - 1 - tap : tap] : T(0.f);
      }
      bands[i][half] = *reinterpret_cast<const uint32_t*>(&pair);
    }
  }
}

// What the lane holds of the 16 x 8 outputs at `corner` of the tile, whose first tap is K / 2 columns before.
template <int K, typename T>
__device__ __noinline__ void sum_directly(const T* corner, int pitch, const T* weight, bool turned,
                                          float start, float (&sums)[4]) {
  for (int e = 0; e < 4; ++e) {
    const T* pixel =
        corner + (lane_of_thread() / 4 + e / 2 * 8) * pitch + lane_of_thread() % 4 * 2 + e % 2 - K / 2;
    sums[e] = start;
#pragma unroll 1
    for (int tap = 0; tap < K * K; ++tap) {
      sums[e] += float(weight[turned ? K * K - 1 - tap : tap]) * float(pixel[tap / K * pitch + tap % K]);
    }
  }
}

// Eight columns of the rows that 16 rows of the output meet: octet[i] for tap row i.
template <int K, typename T>
__device__ void load_octet(const T* column, int pitch, uint32_t (&octet)[K][2]) {
  const int l = lane_of_thread();
  const T* rows = column + (l % 16 + l / 16) * pitch;  // lanes 16 ... 31: of the next tap row
#pragma unroll
  for (int i = 0; i < K; i += 2) {
    if (i + 1 < K) {
      uint32_t both[4];
      channels_last::load_matrices(channels_last::shared_address(rows + i * pitch), both);
      octet[i][0] = both[0], octet[i][1] = both[1], octet[i + 1][0] = both[2], octet[i + 1][1] = both[3];
    } else {
      load_matrices<false>(octet[i][0], octet[i][1], rows + (i - l / 16) * pitch);
    }
  }
}

// A warp's 16 rows.
template <int K, typename T>
__device__ void convolve_octets(const T* tile, int pitch, int octets, const uint32_t (&bands)[K][2],
                                const T* weight, bool turned, float start, T* out, int out_pitch) {
  const int l = lane_of_thread();
  uint32_t octet[2][K][2];  // x and x + 1, by turns
  load_octet(tile, pitch, octet[0]);
  const auto convolve = [&](int x, const uint32_t (&left)[K][2], uint32_t (&right)[K][2]) {
    load_octet(tile + (x + 1) * kVector, pitch, right);
    float even[4] = {start, start, start, start}, odd[4] = {};  // two chains of products, half as long
#pragma unroll
    for (int i = 0; i < K; ++i) {
      multiply_add<T>(i % 2 ? odd : even, left[i][0], left[i][1], right[i][0], right[i][1], bands[i][0],
                      bands[i][1]);
    }
    float sums[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      sums[e] = even[e] + odd[e];
    }
    if (__any_sync(0xffffffffu, isnan(sums[0] + sums[1] + sums[2] + sums[3]))) {
      float again[4];  // a copy, since what a function gets by reference leaves the registers
      sum_directly<K>(tile + x * kVector + kMargin, pitch, weight, turned, start, again);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sums[e] = again[e];
      }
    }
    T* const target = out + l / 4 * out_pitch + x * kVector + l % 4 * 2;
    *reinterpret_cast<uint32_t*>(target) = rounded_pair<T>(sums[0], sums[1]);
    *reinterpret_cast<uint32_t*>(target + 8 * out_pitch) = rounded_pair<T>(sums[2], sums[3]);
  };
  for (int x = 0; x < octets; x += 2) {
    convolve(x, octet[0], octet[1]);
    if (x + 1 < octets) {
      convolve(x + 1, octet[1], octet[0]);
    }
  }
}

// Block (k, tile, z): output channel k of every gridDim.z-th image.
template <typename T, int K>
__global__ void __launch_bounds__(kMostWarps* kWarp, 2)
    tensor_core_forward_kernel(TileSizes s, bool turned, const T* __restrict__ input,
                               const T* __restrict__ weight, const T* __restrict__ bias,
                               T* __restrict__ output) {
  extern __shared__ uint4 shared[];
  const int rows = s.warps * kTileRows, k = blockIdx.x;
  const int row = s.first_row(), column = s.first_column(), columns = min(s.columns, s.width - column);
  const Tile<kMargin> tile{
      s.height, s.width, row - K / 2, column - kMargin, rows + K - 1, s.columns / kMargin + 2, s.input_pitch};
  T* const tiles = reinterpret_cast<T*>(shared);
  const int tile_size = tile.rows * tile.pitch;
  T* const out = tiles + 2 * tile_size + warp_of_thread() * kTileRows * s.grad_pitch;
  const T* taps = weight + int64_t(k) * (K * K);
  const auto fetch = [&](int n, int slot) {
    if (n < s.batch) {
      const int64_t plane = int64_t(n) * s.channels + k / s.multiplier;
      tile.fetch(input + plane * s.height * s.width, tiles + slot * tile_size);
    }
    channels_last::commit_copies();
  };
  tile.clear(tiles);
  tile.clear(tiles + tile_size);
  __syncthreads();
  int slot = 0;
  fetch(blockIdx.z, slot);
  uint32_t bands[K][2];
  load_bands(taps, turned, bands);
  const float start = bias != nullptr ? float(bias[k]) : 0.f;
  for (int n = blockIdx.z; n < s.batch; n += gridDim.z, slot ^= 1) {
    fetch(n + gridDim.z, slot ^ 1);
    channels_last::wait_for_copies<1>();
    __syncthreads();
    const int own_row = row + warp_of_thread() * kTileRows;
    convolve_octets<K>(tiles + slot * tile_size + warp_of_thread() * kTileRows * s.input_pitch, s.input_pitch,
                       columns / kVector, bands, taps, turned, start, out, s.grad_pitch);
    __syncwarp();
    const int64_t out_plane = int64_t(n) * s.channels * s.multiplier + k;
    T* target = output + (out_plane * s.height + own_row) * s.width + column;
    for_each_vector(lane_of_thread(), kWarp, min(kTileRows, s.height - own_row), columns / kVector,
                    [&](int r, int v) {
                      *reinterpret_cast<uint4*>(target + (r * s.width + v * kVector)) =
                          *reinterpret_cast<const uint4*>(out + (r * s.grad_pitch + v * kVector));
                    });
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
  const int rows = sizes.warps * kTileRows;
  const int bytes = (2 * (rows + K - 1) * sizes.input_pitch + rows * sizes.grad_pitch) * int(sizeof(T));
  const auto kernel = tensor_core_forward_kernel<T, K>;
  STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const int64_t tiles = p.out_channels() * sizes.bands * ceil_div(sizes.width, sizes.columns);
  const int64_t groups =
      std::clamp<int64_t>(kTensorCoreBlocks / tiles, 1, std::min<int64_t>(ceil_div(p.batch, 2), 65535));
  kernel<<<tile_grid(p, sizes, groups), sizes.warps * kWarp, bytes, stream>>>(sizes, turned, input, weight,
                                                                              bias, output);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  return true;
}

}  // namespace detector::depthwise_conv2d

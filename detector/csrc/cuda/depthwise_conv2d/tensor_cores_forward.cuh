// Forward by tensor cores. Eight columns of the input, an octet, add to the octets of the output left of it,
// above it and right of it: for tap row i, input (16 rows, 8) times B_i[d] (8, 8) with
//
//   B_i[d][k, n] = w[i, k - n + K / 2 - 8 (d - 1)],  d = 0, 1, 2: the output octet before, at, after the
//   input's
//
#pragma once

#include "tensor_cores.cuh"

namespace detector::depthwise_conv2d {

template <int K, typename T>
__device__ void load_band_triples(const T* weight, bool turned, uint32_t (&bands)[K][3]) {
  const int n = lane_of_thread() / 4, k = lane_of_thread() % 4 * 2;
#pragma unroll
  for (int i = 0; i < K; ++i) {
#pragma unroll
    for (int d = 0; d < 3; ++d) {
      Pack<T, 2> pair;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int j = k + e - n + K / 2 - 8 * (d - 1), tap = i * K + j;
        pair.values[e] = 0 <= j && j < K ? weight[turned ? K * K - 1 - tap : tap] : T(0.f);
      }
      bands[i][d] = *reinterpret_cast<const uint32_t*>(&pair);
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

// A warp's 16 rows. The tile begins an octet before the first output and ends an octet behind the last.
template <int K, typename T>
__device__ void convolve_octets(const T* tile, int pitch, int octets, const uint32_t (&bands)[K][3],
                                const T* weight, bool turned, float start, T* out, int out_pitch) {
  const int l = lane_of_thread();
  const T* rows = tile + (l % 16 + l / 16) * pitch;  // lanes 16 ... 31: of the next tap row
  float before[4] = {start, start, start, start}, at[4] = {start, start, start, start};
  for (int x = 0; x < octets + 2; ++x, rows += kVector) {
    float after[4] = {start, start, start, start};
#pragma unroll
    for (int i = 0; i < K; i += 2) {
      uint32_t a[4];
      if (i + 1 < K) {
        channels_last::load_matrices(channels_last::shared_address(rows + i * pitch), a);
      } else {
        load_matrices<false>(a[0], a[1], rows + (i - l / 16) * pitch);
      }
#pragma unroll
      for (int h = 0; h < 2 && i + h < K; ++h) {
        multiply_add_short<T>(before, a[2 * h], a[2 * h + 1], bands[i + h][0]);
        multiply_add_short<T>(at, a[2 * h], a[2 * h + 1], bands[i + h][1]);
        multiply_add_short<T>(after, a[2 * h], a[2 * h + 1], bands[i + h][2]);
      }
    }
    if (x >= 2) {
      const float total = before[0] + before[1] + before[2] + before[3];
      if (__any_sync(0xffffffffu, isnan(total))) {
        float again[4];  // a copy, since what a function gets by reference leaves the registers
        sum_directly<K>(tile + (x - 1) * kVector, pitch, weight, turned, start, again);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          before[e] = again[e];
        }
      }
      T* target = out + l / 4 * out_pitch + (x - 2) * kVector + l % 4 * 2;
      *reinterpret_cast<uint32_t*>(target) = rounded_pair<T>(before[0], before[1]);
      *reinterpret_cast<uint32_t*>(target + 8 * out_pitch) = rounded_pair<T>(before[2], before[3]);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      before[e] = at[e], at[e] = after[e];
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
  const Tile tile{s.height,     s.width, row - K / 2, column - kVector, rows + K - 1, s.columns / kVector + 2,
                  s.input_pitch};
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
  uint32_t bands[K][3];
  load_band_triples<K>(taps, turned, bands);
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
  const int64_t groups = std::min<int64_t>(ceil_div(p.batch, 2), 65535);  // two images share the bands
  kernel<<<tile_grid(p, sizes, groups), sizes.warps * kWarp, bytes, stream>>>(sizes, turned, input, weight,
                                                                              bias, output);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  return true;
}

}  // namespace detector::depthwise_conv2d

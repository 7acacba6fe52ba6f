// Forward by tensor cores. Two octets of the input, sixteen columns, give the eight in their middle: sixteen
// rows of them are the sum over tap rows i of 16 columns of the input times a band B_i (16, 8):
//
//   B_i[k, n] = w[i, k - n + K / 2 - kMargin]
#pragma once

#include "tensor_cores.cuh"

namespace detector::depthwise_conv2d {

constexpr int kMargin = kVector / 2;  // columns from the first of two octets to their outputs

// For an even octet with the next one, and for the next, which comes after its right neighbor.
template <int K, typename T>
__device__ void load_bands(const T* weight, bool turned, uint32_t (&bands)[2][K][2]) {
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
      bands[0][i][half] = bands[1][i][1 - half] = *reinterpret_cast<const uint32_t*>(&pair);
    }
  }
}

// zeros += 0 * pair: NaN for a NaN and for an infinity.
template <typename T>
__device__ void add_zero_times(uint32_t pair, uint32_t& zeros) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, Half>) {
    asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(zeros) : "r"(pair), "r"(0));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(zeros) : "r"(pair), "r"(0));
  }
#endif
}

// A warp's 16 rows; `tile` begins one octet before its first column, and so many octets and one more are
// there. Whether all are finite.
template <int K, typename T>
__device__ bool convolve_octets(const T* tile, int pitch, int octets, const uint32_t (&bands)[2][K][2],
                                float start, T* out) {
  constexpr int kLag = 2;  // of the odd octets behind the even ones, for as long as a load takes
  const int l = lane_of_thread();
  const float starts[4] = {start, start, start, start};
  const T* const rows = tile + l % 16 * pitch + l / 16 * kVector;
  T* target = out + (l / 4 * pitch + l % 4 * 2 - kMargin);
  uint32_t zeros = 0;
  const auto store = [&](const float (&sums)[4], T* to) {
    const uint32_t upper = rounded_pair<T>(sums[0], sums[1]), lower = rounded_pair<T>(sums[2], sums[3]);
    add_zero_times<T>(upper, zeros);
    add_zero_times<T>(lower, zeros);
    *reinterpret_cast<uint32_t*>(to) = upper;
    *reinterpret_cast<uint32_t*>(to + 8 * pitch) = lower;
  };
  uint32_t pixels[K][4];  // an even octet, then an odd one, of the rows of each tap row
#pragma unroll
  for (int i = 0; i < K; ++i) {
    load_matrices<false>(pixels[i], rows + i * pitch);
  }
  for (int x = 0; x < octets; x += 2, target += 2 * kVector) {
    const T* const even = rows + min(x + 2, octets) * kVector;
    const T* const odd = rows + min(x + 3, octets) * kVector;
    float even_product[4], odd_product[4];
    const auto multiply = [&](float (&sums)[4], int i, const uint32_t (&band)[K][2]) {
      const float (&last)[4] = sums;
      multiply_add<T>(sums, i == 0 ? starts : last, pixels[i], band[i]);
    };
#pragma unroll
    for (int i = 0; i < K + kLag; ++i) {
      if (i < K) {
        multiply(even_product, i, bands[0]);
        load_matrices<false>(pixels[i][0], pixels[i][1], even + i * pitch);
      }
      if (i >= kLag) {
        multiply(odd_product, i - kLag, bands[1]);
        load_matrices<false>(pixels[i - kLag][2], pixels[i - kLag][3], odd + (i - kLag) * pitch);
      }
    }
    store(even_product, target);
    if (x + 1 < octets) {
      store(odd_product, target + kVector);
    }
  }
  return (zeros & 0x7fff7fff) == 0;
}

// The outputs of a warp that are not finite, again: an infinity or NaN times a zero of a band is a NaN that
// the definition does not have.
template <int K, typename T>
__device__ __noinline__ void repair(const T* tile, int pitch, int columns, const T* weight, bool turned,
                                    float start, T* out) {
  for (int e = lane_of_thread(); e < kTileRows * columns; e += kWarp) {
    const int r = e / columns, c = e % columns;
    if (isfinite(float(out[r * pitch + c]))) {
      continue;
    }
    const T* pixels = tile + r * pitch + (kVector + c - K / 2);
    float sum = start;
#pragma unroll 1
    for (int tap = 0; tap < K * K; ++tap) {
      sum += float(weight[turned ? K * K - 1 - tap : tap]) * float(pixels[tap / K * pitch + tap % K]);
    }
    out[r * pitch + c] = T(sum);
  }
}

// Block (k, tile, z): output channel k of every gridDim.z-th image.
template <typename T, int K>
__global__ void __launch_bounds__(kMostWarps* kWarp, 2)
    depthwise_tensor_cores_kernel(TileSizes s, bool turned, const T* __restrict__ input,
                                  const T* __restrict__ weight, const T* __restrict__ bias,
                                  T* __restrict__ output) {
  extern __shared__ uint4 shared[];
  const int rows = s.warps * kTileRows, k = blockIdx.x;
  const int row = first_row(s), column = first_column(s), columns = min(s.columns, s.width - column);
  const StagedTile tile{
      s.height, s.width, row - K / 2, column - kVector, rows + K - 1, s.columns / kVector + 2, s.input_pitch};
  T* const tiles = reinterpret_cast<T*>(shared);
  const int tile_size = tile.rows * tile.pitch;
  const int warp_offset = warp_of_thread() * kTileRows * s.input_pitch;
  T* const out = tiles + 2 * tile_size + warp_offset + kVector;
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
  uint32_t bands[2][K][2];
  load_bands(taps, turned, bands);
  const float start = bias != nullptr ? float(bias[k]) : 0.f;
  for (int n = blockIdx.z; n < s.batch; n += gridDim.z, slot ^= 1) {
    fetch(n + gridDim.z, slot ^ 1);
    channels_last::wait_for_copies<1>();
    __syncthreads();
    const int own_row = row + warp_of_thread() * kTileRows;
    const T* const own = tiles + slot * tile_size + warp_offset;
    const bool finite = convolve_octets<K>(own, s.input_pitch, columns / kVector + 1, bands, start, out);
    __syncwarp();  // the outputs are written before they are read
    if (!__all_sync(0xffffffffu, finite)) {
      repair<K>(own, s.input_pitch, columns, taps, turned, start, out);
      __syncwarp();
    }
    const int64_t out_plane = int64_t(n) * s.channels * s.multiplier + k;
    T* target = output + (out_plane * s.height + own_row) * s.width + column;
    for_each_vector(lane_of_thread(), kWarp, min(kTileRows, s.height - own_row), columns / kVector,
                    [&](int r, int v) {
                      *reinterpret_cast<uint4*>(target + (r * s.width + v * kVector)) =
                          *reinterpret_cast<const uint4*>(out + (r * s.input_pitch + v * kVector));
                    });
    __syncthreads();  // the tile is free again
  }
}

template <int K, typename T>
void launch_tensor_core_forward(const Problem& p, bool turned, const T* input, const T* weight, const T* bias,
                                T* output, cudaStream_t stream) {
  const auto kernel = depthwise_tensor_cores_kernel<T, K>;
  const TileLaunch launch = tile_launch(Pass::kForward, p, compiled_kernel(kernel).most_shared);
  launch_kernel(kernel, dim3(launch.channels, launch.tiles, launch.groups), launch.sizes.warps * kWarp,
                launch.shared, stream, launch.sizes, turned, input, weight, bias, output);
}

}  // namespace detector::depthwise_conv2d

// Gradient of the weight in channels_last. A lane keeps the K * K sums of its channels; an input row meets
// the J rows of the gradient that it added to, which wait in registers. The warps of a block have different
// columns (threadIdx.y) of one or, where an image is narrow, of several samples (threadIdx.z), each with a
// ring. They are added in shared memory, the blocks by a second kernel, both in a fixed order.
#pragma once

#include "tiles.cuh"

namespace detector::depthwise_conv2d::channels_last {

// Step t takes the gradient row t of the block and the input rows t * S ... t * S + S - 1; the gradient row
// t - j meets them at the kernel rows j * S ... j * S + S - 1. `partial` is (blocks, K * K, channels).
template <typename T, int K, int S, typename Tile>
__global__ void __launch_bounds__(Tile::warps* kWarp, Tile::blocks)
    depthwise_rows_grad_weight_kernel(Walk walk, int64_t batch, const T* input, const T* grad,
                                      float* partial) {
  constexpr int J = (K + S - 1) / S, V = Tile::vector, kColumns = Tile::columns;
  constexpr int kInputs = (kColumns - 1) * S + K;
  extern __shared__ __align__(16) unsigned char shared[];

  Place place = place_of_block(walk, Tile::channels, blockDim.y * kColumns);
  place.sample = place.sample * blockDim.z + threadIdx.z;
  const bool is_sample = place.sample < batch;
  const int first_row = place.row * S - walk.pad_h;
  const int rows_of_block = min(walk.rows, walk.height - place.row);
  const int rows = is_sample ? rows_of_block : 0, steps = rows_of_block + J - 1;
  Window<T, Tile::channels> inputs(input, is_sample ? walk.source_height : 0, walk.source_width,
                                   walk.channels, place, first_row, place.column * S - walk.pad_w,
                                   (blockDim.y * kColumns - 1) * S + K);
  Window<T, Tile::channels> grads(grad, walk.height, walk.width, walk.channels, place, place.row,
                                  place.column, blockDim.y * kColumns);
  const int input_size = S * inputs.columns * Tile::channels, grad_size = grads.columns * Tile::channels;
  T* const input_ring = reinterpret_cast<T*>(shared) + threadIdx.z * Tile::slots * (input_size + grad_size);
  T* const grad_ring = input_ring + Tile::slots * input_size;
  const auto fetch = [&](int first, int slot) {
#pragma unroll
    for (int r = 0; r < Tile::rows; ++r) {
      if (first + r < steps) {
#pragma unroll
        for (int s = 0; s < S; ++s) {
          inputs.fetch_next(input_ring + (slot + r) * input_size + s * inputs.columns * Tile::channels);
        }
      }
      if (first + r < rows) {
        grads.fetch_next(grad_ring + (slot + r) * grad_size);
      }
    }
    commit_copies();
  };
#pragma unroll
  for (int i = 0; i < Tile::slots - Tile::rows; i += Tile::rows) {
    fetch(i, i);
  }

  float sums[K * K][V] = {};
  float near[J][kColumns][V] = {};  // rows of the gradient
  const T* const inputs_of_warp = input_ring + threadIdx.y * kColumns * S * Tile::channels + threadIdx.x * V;
  const T* const grads_of_warp = grad_ring + threadIdx.y * kColumns * Tile::channels + threadIdx.x * V;

  int slot = 0;
  for (int first = 0; first < steps; first += J) {
    unrolled_while<J>([&](auto constant) {  // gradient row r is in near[r % J]
      constexpr int kPhase = decltype(constant)::value;
      const int step = first + kPhase;
      if (step >= steps) {
        return false;
      }
      if (step % Tile::rows == 0) {
        wait_for_copies<Tile::stages - 2>();
        __syncthreads();
        fetch(step + Tile::slots - Tile::rows, (slot + Tile::slots - Tile::rows) % Tile::slots);
      }
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        if (step < rows) {
          load(grads_of_warp + slot * grad_size + i * Tile::channels, near[kPhase][i]);
        } else {
#pragma unroll
          for (int v = 0; v < V; ++v) {
            near[kPhase][i][v] = 0;
          }
        }
      }
#pragma unroll
      for (int s = 0; s < S; ++s) {
        if (!inputs.has_row(first_row + step * S + s)) {
          continue;
        }
        const T* row = inputs_of_warp + slot * input_size + s * inputs.columns * Tile::channels;
#pragma unroll
        for (int x = 0; x < kInputs; ++x) {
          float value[V];
          load(row + x * Tile::channels, value);
#pragma unroll
          for (int j = 0; j < J; ++j) {
            const int kh = j * S + s;
#pragma unroll
            for (int i = 0; i < kColumns; ++i) {
              const int kw = x - i * S;
              if (kh < K && 0 <= kw && kw < K) {
#pragma unroll
                for (int v = 0; v < V; ++v) {
                  sums[kh * K + kw][v] += value[v] * near[(kPhase - j + J) % J][i][v];
                }
              }
            }
          }
        }
      }
      slot = slot + 1 == Tile::slots ? 0 : slot + 1;
      return true;
    });
  }

  // One kernel row at a time: (warps, K, V, lanes) in shared memory, where the rings were.
  float* const warp_sums = reinterpret_cast<float*>(shared);
  constexpr int kSums = K * V * kWarp;
  const int warps = blockDim.y * blockDim.z, warp = threadIdx.z * blockDim.y + threadIdx.y;
  float* const block_partial = partial + int64_t(blockIdx.x / walk.channel_blocks) * (K * K) * walk.channels;
  for (int kh = 0; kh < K; ++kh) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K * K; ++k) {
      if (k / K == kh) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          warp_sums[warp * kSums + (k % K * V + v) * kWarp + threadIdx.x] = sums[k][v];
        }
      }
    }
    __syncthreads();
    for (int i = warp * kWarp + threadIdx.x; i < kSums; i += warps * kWarp) {
      float sum = 0;
      for (int w = 0; w < warps; ++w) {
        sum += warp_sums[w * kSums + i];
      }
      const int kw = i / (V * kWarp);
      const int channel = place.channel + i % kWarp * V + i / kWarp % V;
      if (channel < walk.channels) {
        block_partial[(kh * K + kw) * int64_t(walk.channels) + channel] = sum;
      }
    }
  }
}

constexpr int kAddWarps = 8;

// partial (blocks, K * K, channels) -> grad_weight (channels, K * K). One block for 32 channels of one
// weight.
template <typename T>
__global__ void depthwise_rows_sum_kernel(const float* partial, int64_t blocks, int weights, int channels,
                                          T* grad_weight) {
  __shared__ float warp_sums[kAddWarps][kWarp];
  const int k = blockIdx.x % weights;
  const int channel = blockIdx.x / weights * kWarp + threadIdx.x;
  float sum = 0;
  if (channel < channels) {
#pragma unroll 8
    for (int64_t b = threadIdx.y; b < blocks; b += kAddWarps) {
      sum += partial[(b * weights + k) * channels + channel];
    }
  }
  warp_sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && channel < channels) {
    for (int warp = 1; warp < kAddWarps; ++warp) {
      sum += warp_sums[warp][threadIdx.x];
    }
    grad_weight[int64_t(channel) * weights + k] = static_cast<T>(sum);
  }
}

template <typename T>
void add_partials(const float* partial, int64_t blocks, int weights, int channels, T* grad_weight,
                  cudaStream_t stream) {
  const unsigned groups = weights * ceil_div(channels, kWarp);
  launch_kernel(depthwise_rows_sum_kernel<T>, groups, dim3(kWarp, kAddWarps), 0, stream, partial, blocks,
                weights, channels, grad_weight);
}

// How many samples a block takes side by side: as many as give the busiest multiprocessor no more to do. The
// more, the fewer parts of the sum there are to write and to add. `most` fit into shared memory.
template <typename Tile>
int samples_of_block(const Walk& walk, int64_t batch, int warps, int64_t most) {
  const int64_t processors = device_attribute(cudaDevAttrMultiProcessorCount);
  const auto samples_of_busiest = [&](int samples) {
    const int64_t blocks = ceil_div(batch, samples) * walk.column_blocks * walk.channel_blocks;
    return ceil_div(blocks, processors) * samples;
  };
  int samples = 1;
  while (2 * samples * warps <= Tile::warps && 2 * samples <= most &&
         samples_of_busiest(2 * samples) <= samples_of_busiest(1)) {
    samples *= 2;
  }
  return samples;
}

template <int K, int S, typename T, typename Allocate>
void launch_grad_weight(Walk walk, int64_t batch, const T* input, const T* grad, T* grad_weight,
                        const Allocate& allocate, cudaStream_t stream) {
  using Tile = decltype(grad_weight_tile<T, K, S>());
  const auto kernel = depthwise_rows_grad_weight_kernel<T, K, S, Tile>;
  const auto shared_of = [](int warps) {
    const int inputs = (warps * Tile::columns - 1) * S + K, grads = warps * Tile::columns;
    const size_t rings = sizeof(T) * Tile::channels * Tile::slots * (S * inputs + grads);
    return std::max(rings, sizeof(float) * warps * K * Tile::channels);
  };
  const int warps = cut_columns<Tile>(kernel, shared_of, walk);
  const int64_t most_samples = compiled_kernel(kernel).most_shared / int64_t(shared_of(warps));
  const int samples = samples_of_block<Tile>(walk, batch, warps, most_samples);
  const size_t bytes = samples * shared_of(warps);
  Launch launch = cut_rows(kernel, ceil_div(batch, samples), samples * warps, bytes, 1, (K - 1) / S, walk);
  launch.block = dim3(kWarp, warps, samples);
  const int64_t blocks = launch.grid / walk.channel_blocks;
  float* partial = allocate(blocks * K * K * walk.channels);
  launch_kernel(kernel, launch.grid, launch.block, launch.shared, stream, walk, batch, input, grad, partial);
  add_partials(partial, blocks, K * K, walk.channels, grad_weight, stream);
}

}  // namespace detector::depthwise_conv2d::channels_last

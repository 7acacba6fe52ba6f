// Gradient of the input of a strided convolution in channels_last. A row of the gradient is read once: it
// adds to the K input rows that it came from, which wait in registers until all their rows of the gradient
// have passed.
#pragma once

#include "walk.cuh"

namespace detector::depthwise_conv2d::channels_last {

// The walk is over the padded input: row v = y + pad_h, column u = x + pad_w, in steps of S. The gradient row
// q reaches the rows q * S ... q * S + K - 1, and after it the first S of them are complete. So which weights
// a column or row meets depends on its place in the step alone.
template <typename T, int K, int S, typename Tile>
__global__ void __launch_bounds__(Tile::warps* kWarp, Tile::blocks)
    transposed_kernel(Walk walk, const T* grad, const T* weight, T* grad_input) {
  constexpr int J = (K + S - 1) / S, V = Tile::vector, kColumns = Tile::columns;
  constexpr int kGrads = kColumns / S + J - 1;
  static_assert(kColumns % S == 0);
  extern __shared__ __align__(16) unsigned char shared[];
  T* const shared_weights = reinterpret_cast<T*>(shared);
  T* const ring = shared_weights + Tile::channels * K * K;

  const Place place = place_of_block(walk, Tile::channels, blockDim.y * kColumns);
  const int first_row = place.row / S - (J - 1);
  const int steps = walk.rows / S + J - 1;
  Window<T, Tile::channels> window(grad, walk.source_height, walk.source_width, walk.channels, place,
                                   first_row, place.column / S - (J - 1),
                                   blockDim.y * (kColumns / S) + J - 1);
  const int row_size = window.columns * Tile::channels;
  const auto fetch = [&](int first, int slot) {
#pragma unroll
    for (int r = 0; r < Tile::rows; ++r) {
      if (first + r < steps) {
        window.fetch_next(ring + (slot + r) * row_size);
      }
    }
    commit_copies();
  };
#pragma unroll
  for (int i = 0; i < Tile::slots - Tile::rows; i += Tile::rows) {
    fetch(i, i);
  }

  float weights[K * K][V];
  load_weights(weight, place.channel, walk.channels, false, shared_weights, weights);

  const int channel = place.channel + threadIdx.x * V;
  const int column = place.column + threadIdx.y * kColumns - walk.pad_w;
  const int last_column = channel < walk.channels ? walk.width - walk.pad_w : 0;
  const int height = walk.height - walk.pad_h;
  float sums[J * S][kColumns][V] = {};
  const T* const grads_of_warp = ring + threadIdx.y * (kColumns / S) * Tile::channels + threadIdx.x * V;
  T* const image = grad_input + place.sample * height * (walk.width - walk.pad_w) * walk.channels + channel;

  int slot = 0;
  for (int first = 0; first < steps; first += J) {
    unrolled_while<J>([&](auto constant) {  // row v is in sums[v % (J * S)]
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
      if (window.has_row(first_row + step)) {
        const T* grads = grads_of_warp + slot * row_size;
#pragma unroll
        for (int q = 0; q < kGrads; ++q) {
          float value[V];
          load(grads + q * Tile::channels, value);
#pragma unroll
          for (int i = 0; i < kColumns; ++i) {
            const int kw = i - (q - (J - 1)) * S;
            if (0 <= kw && kw < K) {
#pragma unroll
              for (int kh = 0; kh < K; ++kh) {
#pragma unroll
                for (int v = 0; v < V; ++v) {
                  sums[(kPhase * S + kh) % (J * S)][i][v] += value[v] * weights[kh * K + kw][v];
                }
              }
            }
          }
        }
      }
      slot = slot + 1 == Tile::slots ? 0 : slot + 1;
#pragma unroll
      for (int s = 0; s < S; ++s) {
        const int y = place.row + (step - (J - 1)) * S + s - walk.pad_h;
        if (step >= J - 1 && unsigned(y) < unsigned(height)) {
          T* out = image + (int64_t(y) * (walk.width - walk.pad_w) + column) * walk.channels;
#pragma unroll
          for (int i = 0; i < kColumns; ++i) {
            if (0 <= column + i && column + i < last_column) {
              store(sums[kPhase * S + s][i], out + i * walk.channels);
            }
          }
        }
      }
#pragma unroll
      for (int s = 0; s < S; ++s) {
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
#pragma unroll
          for (int v = 0; v < V; ++v) {
            sums[kPhase * S + s][i][v] = 0;
          }
        }
      }
      return true;
    });
  }
}

// The walk's height and width are those of the padded input.
template <typename T, int K, int S, typename Tile>
bool launch_transposed(Walk walk, int64_t batch, const T* grad, const T* weight, T* grad_input,
                       cudaStream_t stream) {
  constexpr int J = (K + S - 1) / S;
  const int warps = cut_columns<Tile>(walk);
  const int columns = warps * (Tile::columns / S) + J - 1;
  const size_t bytes = sizeof(T) * Tile::channels * (K * K + Tile::slots * columns);
  const auto kernel = transposed_kernel<T, K, S, Tile>;
  const Launch launch =
      cut_rows(kernel, batch, warps, Tile::blocks * Tile::warps / warps, bytes, S, J - 1, walk);
  if (launch.grid == 0) {
    return false;
  }
  kernel<<<launch.grid, launch.block, launch.shared, stream>>>(walk, grad, weight, grad_input);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  return true;
}

}  // namespace detector::depthwise_conv2d::channels_last

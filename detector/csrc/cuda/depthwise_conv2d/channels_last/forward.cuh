// Forward in channels_last. An input row is read once: it adds to every output row that it touches, and those
// wait in registers, one step apart.
#pragma once

#include "tiles.cuh"

namespace detector::depthwise_conv2d::channels_last {

// Step t takes the input rows t * S ... t * S + S - 1 of the block; output row t - j meets them at the kernel
// rows j * S ... j * S + S - 1 and is complete after j = J - 1.
template <typename T, int K, int S, typename Tile>
__global__ void __launch_bounds__(Tile::warps* kWarp, Tile::blocks)
    depthwise_rows_kernel(Walk walk, const T* input, const T* weight, const T* bias, bool flipped,
                          T* output) {
  constexpr int J = (K + S - 1) / S, V = Tile::vector, kColumns = Tile::columns;
  constexpr int kInputs = (kColumns - 1) * S + K;
  extern __shared__ __align__(16) unsigned char shared[];
  T* const shared_weights = reinterpret_cast<T*>(shared);
  T* const ring = shared_weights + Tile::channels * K * K;

  const Place place = place_of_block(walk, Tile::channels, blockDim.y * kColumns);
  const int first_row = place.row * S - walk.pad_h;
  const int steps = min(walk.rows, walk.height - place.row) + J - 1;
  Window<T, Tile::channels> window(input, walk.source_height, walk.source_width, walk.channels, place,
                                   first_row, place.column * S - walk.pad_w,
                                   (blockDim.y * kColumns - 1) * S + K);
  const int step_size = S * window.columns * Tile::channels;
  const auto fetch = [&](int first, int slot) {
#pragma unroll
    for (int r = 0; r < Tile::rows; ++r) {
      if (first + r < steps) {
#pragma unroll
        for (int s = 0; s < S; ++s) {
          window.fetch_next(ring + (slot + r) * step_size + s * window.columns * Tile::channels);
        }
      }
    }
    commit_copies();
  };
#pragma unroll
  for (int i = 0; i < Tile::slots - Tile::rows; i += Tile::rows) {
    fetch(i, i);
  }

  float weights[K * K][V];
  load_weights(weight, place.channel, walk.channels, flipped, shared_weights, weights);

  const int channel = place.channel + threadIdx.x * V;
  const int column = place.column + threadIdx.y * kColumns;
  const int columns = channel < walk.channels ? min(kColumns, walk.width - column) : 0;
  float start[V] = {};
  if (bias != nullptr && channel < walk.channels) {
    load(bias + channel, start);
  }
  float sums[J][kColumns][V] = {};
  const T* const inputs_of_warp = ring + threadIdx.y * kColumns * S * Tile::channels + threadIdx.x * V;
  T* out =
      output + ((place.sample * walk.height + place.row) * walk.width + column) * walk.channels + channel;
  const int64_t out_stride = int64_t(walk.width) * walk.channels;

  int slot = 0;
  for (int first = 0; first < steps; first += J) {
    unrolled_while<J>([&](auto constant) {  // output row o is in sums[o % J]
      constexpr int kPhase = decltype(constant)::value;
      const int step = first + kPhase;
      if (step >= steps) {
        return false;
      }
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          sums[kPhase][i][v] = start[v];
        }
      }
      if (step % Tile::rows == 0) {
        wait_for_copies<Tile::stages - 2>();
        __syncthreads();
        fetch(step + Tile::slots - Tile::rows, (slot + Tile::slots - Tile::rows) % Tile::slots);
      }
#pragma unroll
      for (int s = 0; s < S; ++s) {
        if (!window.has_row(first_row + step * S + s)) {
          continue;
        }
        const T* inputs = inputs_of_warp + slot * step_size + s * window.columns * Tile::channels;
#pragma unroll
        for (int x = 0; x < kInputs; ++x) {
          float value[V];
          load(inputs + x * Tile::channels, value);
#pragma unroll
          for (int j = 0; j < J; ++j) {
            const int kh = j * S + s;
#pragma unroll
            for (int i = 0; i < kColumns; ++i) {
              const int kw = x - i * S;
              if (kh < K && 0 <= kw && kw < K) {
#pragma unroll
                for (int v = 0; v < V; ++v) {
                  sums[(kPhase - j + J) % J][i][v] += value[v] * weights[kh * K + kw][v];
                }
              }
            }
          }
        }
      }
      slot = slot + 1 == Tile::slots ? 0 : slot + 1;
      constexpr int kDone = (kPhase + 1) % J;
      if (step >= J - 1) {
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
          if (i < columns) {
            store(sums[kDone][i], out + i * walk.channels);
          }
        }
        out += out_stride;
      }
      return true;
    });
  }
}

template <int K, int S, typename T>
void launch_forward(Walk walk, int64_t batch, const T* input, const T* weight, const T* bias, bool flipped,
                    T* output, cudaStream_t stream) {
  using Tile = decltype(forward_tile<T, K, S>());
  const auto kernel = depthwise_rows_kernel<T, K, S, Tile>;
  const auto shared_of = [](int warps) {
    const int columns = (warps * Tile::columns - 1) * S + K;
    return sizeof(T) * Tile::channels * (K * K + Tile::slots * S * columns);
  };
  const int warps = cut_columns<Tile>(kernel, shared_of, walk);
  const Launch launch = cut_rows(kernel, batch, warps, shared_of(warps), 1, (K - 1) / S, walk);
  launch_kernel(kernel, launch.grid, launch.block, launch.shared, stream, walk, input, weight, bias, flipped,
                output);
}

}  // namespace detector::depthwise_conv2d::channels_last

// The gradient of planes, a tile at a time: a warp loads output rows in whole packs, adds up those that touch
// an input row, and only then goes along the row, through shared memory. So each gradient is loaded once for
// a strip, and the sums along rows are taken once for an input row and not for every output row.
#pragma once

#include "../reduce.cuh"
#include "nchw.cuh"

namespace detector::upsample_bilinear2d {

constexpr int kTileOutputs = 256;  // output columns that a warp holds, 8 a lane
constexpr int kOutputsOfLane = kTileOutputs / kWarp;
constexpr int kColumnsOfLane = 4;  // and input columns that it sums them up to, at most 4 a lane
constexpr int kTileInputs = kColumnsOfLane * kWarp;
constexpr int kWarps = kThreads / kWarp;

// Input columns first..last, and the output columns that touch them; these begin where a pack does.
struct Tile {
  int first, last, outputs_first, outputs_last;
};

template <typename A>
C10_HOST_DEVICE Tile tile_of(const Axis<A>& axis, int tile, int width, int pack) {
  const int first = tile * width, last = first + width < axis.in ? first + width : axis.in;
  return {first, last, axis.first_from(first - 1) / pack * pack, axis.first_from(last)};
}

// The greatest width at which the outputs of every tile fit into a warp; 0 if there is none.
template <typename A>
int tile_width(const Axis<A>& axis, int pack) {
  const auto fits = [&](int width) {
    for (int tile = 0; tile * width < axis.in; ++tile) {
      const Tile t = tile_of(axis, tile, width, pack);
      if (t.outputs_last - t.outputs_first > kTileOutputs) {
        return false;
      }
    }
    return true;
  };
  int tiles = (axis.in + kTileInputs - 1) / kTileInputs;
  int width = (axis.in + tiles - 1) / tiles;
  while (width > 0 && !fits(width)) {
    width = width * 7 / 8;
  }
  return width;
}

// One warp a tile, a strip of input rows and a plane, in this order.
template <int kSize, typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads, 2)
    backward_tiles(const T* __restrict__ grad, Axis<A> vertical, Axis<A> horizontal, int planes, int strips,
                   int tiles, int width, T* __restrict__ grad_input) {
  constexpr int kPacks = kOutputsOfLane / kSize;
  constexpr int kAhead = kSize < 8 ? 2 : 4;
  __shared__ alignas(16) A shared[kWarps][2][kTileOutputs];
  const int lane = lane_of_thread();
  int at = blockIdx.x * kWarps + warp_of_thread();
  const Tile tile = tile_of(horizontal, at % tiles, width, kSize);
  at /= tiles;
  const int first = at % strips * kStrip;
  const int plane = at / strips;
  if (plane >= planes) {
    return;
  }
  const T* from = grad + plane * vertical.out * horizontal.out;
  T* to = grad_input + plane * vertical.in * horizontal.in;
  const auto column_of = [&](int c) { return tile.first + lane + c * kWarp; };
  Window<kFewTaps, A> windows[kColumnsOfLane];
#pragma unroll
  for (int c = 0; c < kColumnsOfLane; ++c) {
    if (column_of(c) < tile.last) {
      windows[c] = Window<kFewTaps, A>(horizontal, column_of(c));
    }
  }
  const auto load = [&](int o) {
    const T* row = from + o * horizontal.out;
    Fetched<T, kSize, kPacks> fetched{};
#pragma unroll
    for (int m = 0; m < kPacks; ++m) {
      const int p = tile.outputs_first + (lane + m * kWarp) * kSize;
      if (p < tile.outputs_last) {
        fetched.packs[m] = load_pack<kSize>(row + p);
      }
    }
    return fetched;
  };
  const auto widen = [](int, const Fetched<T, kSize, kPacks>& fetched) {
    Pack<A, kOutputsOfLane> row;
#pragma unroll
    for (int v = 0; v < kOutputsOfLane; ++v) {
      row.values[v] = A(fetched.packs[v / kSize].values[v % kSize]);
    }
    return row;
  };
  int turn = 0;  // of two buffers, so that one barrier a row is enough
  const auto store = [&](int i, const Pack<A, kOutputsOfLane>& row) {
    A* buffer = shared[warp_of_thread()][turn];
    turn = 1 - turn;
#pragma unroll
    for (int v = 0; v < kOutputsOfLane; ++v) {
      buffer[(lane + v / kSize * kWarp) * kSize + v % kSize] = row.values[v];
    }
    __syncwarp();
    const A* outputs = buffer - tile.outputs_first;
#pragma unroll
    for (int c = 0; c < kColumnsOfLane; ++c) {
      if (column_of(c) < tile.last) {
        const auto fetched = fetch<1>(windows[c], outputs, 1);
        to[i * horizontal.in + column_of(c)] =
            T(sum_window(windows[c], horizontal, column_of(c), fetched, outputs, 1).values[0]);
      }
    }
  };
  walk_inputs<kOutputsOfLane, kAhead>(vertical, first, min(first + kStrip, vertical.in), load, widen, store);
}

}  // namespace detector::upsample_bilinear2d

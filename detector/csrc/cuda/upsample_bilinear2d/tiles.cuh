// The gradient of planes, a tile at a time: a team of threads loads output rows in whole packs, adds up those
// that touch an input row, and only then goes along the row, through shared memory. So each gradient is
// loaded once for a strip, and the sums along rows are taken once for an input row and not for every output
// row.
#pragma once

#include "../reduce.cuh"
#include "nchw.cuh"

namespace detector::upsample_bilinear2d {

constexpr int kTeam = 64;          // threads: 8 outputs a thread took too many registers, 2 too many taps
constexpr int kTileOutputs = 256;  // output columns that a team holds
constexpr int kTilePack = 4;       // that it loads at a time, at most
constexpr int kTileInputs = 128;   // and input columns that it sums them up to, at most

// Input columns first..last, and the output columns that touch them; these begin where a pack does.
struct Tile {
  int first, last, outputs_first, outputs_last;
};

template <typename A>
C10_HOST_DEVICE Tile tile_of(const Axis<A>& axis, int tile, int width, int pack) {
  const int first = tile * width, last = first + width < axis.in ? first + width : axis.in;
  return {first, last, axis.first_from(first - 1) / pack * pack, axis.first_from(last)};
}

// The greatest width at which the outputs of every tile fit into it; 0 if there is none.
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

// A barrier of one team of a block, by number from 0; the barrier 0 is that of __syncthreads.
__device__ inline void team_barrier(int team) {
  asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(kTeam) : "memory");
}

// The taps of an axis, in ascending order, for a warp whose lanes ask for the same ones: each lane computes
// one of the next 32.
template <typename A>
struct WarpTaps {
  const Axis<A>& axis;
  int first = -kWarp;
  Tap<A> lane_tap{};

  __device__ Tap<A> operator()(int o) {
    if (o - first >= kWarp) {
      first = o;
      lane_tap = axis.tap(min(o + lane_of_thread(), axis.out - 1));
    }
    return {__shfl_sync(0xffffffffu, lane_tap.lower, o - first),
            __shfl_sync(0xffffffffu, lane_tap.upper, o - first),
            __shfl_sync(0xffffffffu, lane_tap.weight, o - first)};
  }
};

// One team of threads a tile, a strip of input rows and a plane, in this order.
template <int kSize, typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads)
    backward_tiles(const T* __restrict__ grad, Axis<A> vertical, Axis<A> horizontal, int planes, int strips,
                   int strip, int tiles, int width, T* __restrict__ grad_input) {
  constexpr int kTeams = kThreads / kTeam;
  constexpr int kOutputs = kTileOutputs / kTeam;  // of a thread
  constexpr int kColumns = kTileInputs / kTeam;
  constexpr int kPacks = kOutputs / kSize;
  constexpr int kAhead = 4;
  __shared__ alignas(16) A shared[kTeams][2][kTileOutputs];
  const int member = threadIdx.x % kTeam, team = threadIdx.x / kTeam;
  int at = blockIdx.x * kTeams + team;
  const Tile tile = tile_of(horizontal, at % tiles, width, kSize);
  at /= tiles;
  const int first = at % strips * strip;
  const int plane = at / strips;
  if (plane >= planes) {
    return;
  }
  const T* from = grad + plane * vertical.out * horizontal.out;
  T* to = grad_input + plane * vertical.in * horizontal.in;
  const auto column_of = [&](int c) { return tile.first + member + c * kTeam; };
  Window<kFewTaps, A> windows[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    if (column_of(c) < tile.last) {
      windows[c] = Window<kFewTaps, A>(horizontal, column_of(c));
    }
  }
  const auto load = [&](int o) {
    const T* row = from + o * horizontal.out;
    Fetched<T, kSize, kPacks> fetched{};
#pragma unroll
    for (int m = 0; m < kPacks; ++m) {
      const int p = tile.outputs_first + (member + m * kTeam) * kSize;
      if (p < tile.outputs_last) {
        fetched.load(m, row + p);
      }
    }
    return fetched;
  };
  const auto widen = [](int, const Fetched<T, kSize, kPacks>& fetched) {
    Pack<A, kOutputs> row;
#pragma unroll
    for (int v = 0; v < kOutputs; ++v) {
      row.values[v] = A(fetched.pack(v / kSize).values[v % kSize]);
    }
    return row;
  };
  int turn = 0;  // of two buffers, so that one barrier a row is enough
  const auto store = [&](int i, const Pack<A, kOutputs>& row) {
    A* buffer = shared[team][turn];
    turn = 1 - turn;
#pragma unroll
    for (int m = 0; m < kPacks; ++m) {
      Pack<A, kSize> pack;
#pragma unroll
      for (int v = 0; v < kSize; ++v) {
        pack.values[v] = row.values[m * kSize + v];
      }
      store_pack(buffer + (member + m * kTeam) * kSize, pack);
    }
    team_barrier(team);
    const A* outputs = buffer - tile.outputs_first;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (column_of(c) < tile.last) {
        const auto fetched = fetch<1>(windows[c], outputs, 1);
        to[i * horizontal.in + column_of(c)] =
            T(sum_window(windows[c], horizontal, column_of(c), fetched, outputs, 1).values[0]);
      }
    }
  };
  WarpTaps<A> taps{vertical};
  walk_inputs<kOutputs, kAhead>(
      vertical, first, min(first + strip, vertical.in), [&](int o) { return taps(o); }, load, widen, store);
}

}  // namespace detector::upsample_bilinear2d

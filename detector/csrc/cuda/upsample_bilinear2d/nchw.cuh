// Planes: a thread has a pack of columns and walks down a strip of rows.
#pragma once

#include "walk.cuh"

namespace detector::upsample_bilinear2d {

constexpr int kFewTaps = 4;  // weights in registers: enough up to a factor of 2

template <typename Index>
__device__ Index thread_index() {
  return Index(blockIdx.x) * kThreads + threadIdx.x;
}

// One thread a pack of output columns, a strip of output rows and a plane, in this order.
template <int kSize, typename Index, typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads)
    upsample_forward_planes_kernel(const T* __restrict__ input, Axis<A> vertical, Axis<A> horizontal,
                                   Index planes, int strips, int strip, T* __restrict__ output) {
  Index at = thread_index<Index>();
  const Index packs = horizontal.out / kSize;
  const int column = int(at % packs) * kSize;
  at /= packs;
  const int first = int(at % strips) * strip;
  const Index plane = at / strips;
  if (plane >= planes) {
    return;
  }
  const T* from = input + plane * vertical.in * horizontal.in;
  T* to = output + plane * vertical.out * horizontal.out + column;
  Tap<A> taps[kSize];
#pragma unroll
  for (int v = 0; v < kSize; ++v) {
    taps[v] = horizontal.tap(column + v);
  }
  const auto row = [&](int i) {
    const T* data = from + Index(i) * horizontal.in;
    Pack<A, kSize> result;
#pragma unroll
    for (int v = 0; v < kSize; ++v) {
      result.values[v] = mix(A(data[taps[v].lower]), A(data[taps[v].upper]), taps[v].weight);
    }
    return result;
  };
  walk_outputs<kSize>(vertical, first, min(first + strip, vertical.out), row,
                      [&](int o, const Pack<A, kSize>& result) {
                        store_pack(to + Index(o) * horizontal.out, rounded<T>(result));
                      });
}

// One thread an input column, a strip of input rows and a plane, in this order.
template <typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads)
    upsample_backward_planes_kernel(const T* __restrict__ grad, Axis<A> vertical, Axis<A> horizontal,
                                    int64_t planes, int strips, int strip, T* __restrict__ grad_input) {
  constexpr int kTaps = kFewTaps, kAhead = 4;
  int64_t at = thread_index<int64_t>();
  const int column = int(at % horizontal.in);
  at /= horizontal.in;
  const int first = int(at % strips) * strip;
  const int64_t plane = at / strips;
  if (plane >= planes) {
    return;
  }
  const T* from = grad + plane * vertical.out * horizontal.out;
  T* to = grad_input + plane * vertical.in * horizontal.in + column;
  const Window<kTaps, A> window(horizontal, column);
  const auto row = [&](int o) { return from + int64_t(o) * horizontal.out; };
  walk_inputs<1, kAhead>(
      vertical, first, min(first + strip, vertical.in), [&](int o) { return vertical.tap(o); },
      [&](int o) { return fetch<1>(window, row(o), 1); },
      [&](int o, const Fetched<T, 1, kTaps>& fetched) {
        return sum_window(window, horizontal, column, fetched, row(o), 1);
      },
      [&](int i, const Pack<A, 1>& sum) { to[int64_t(i) * horizontal.in] = T(sum.values[0]); });
}

// Of planes made exactly twice as wide with half_pixel positions output columns 2 j - 1 ... 2 j + 2 touch
// input column j at 1/4, 3/4, 3/4 and 1/4. A thread has a pack of output columns and the input columns under
// it, and reads one more on each side; so each number is loaded once and a quarter or half, and nothing
// passes through shared memory. One thread a pack of output columns, a strip of input rows and a plane, in
// this order.
template <typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads)
    upsample_backward_doubled_kernel(const T* __restrict__ grad, Axis<A> vertical, Axis<A> horizontal,
                                     int planes, int strips, int strip, T* __restrict__ grad_input) {
  constexpr int kOutputs = kPackSize<T>, kInputs = kOutputs / 2, kAhead = 4;
  int at = thread_index<int>();
  const int packs = horizontal.out / kOutputs;
  const int column = at % packs * kOutputs;  // of the output
  at /= packs;
  const int first = at % strips * strip;
  const int plane = at / strips;
  if (plane >= planes) {
    return;
  }
  const T* from = grad + plane * vertical.out * horizontal.out;
  T* to = grad_input + plane * vertical.in * horizontal.in + column / 2;
  // Past an edge lies the edge itself, which so gets the whole weight.
  const int before = max(column - 1, 0), after = min(column + kOutputs, horizontal.out - 1);
  struct Loaded {
    Pack<T, kOutputs> pack;
    T before, after;
  };
  const auto load = [&](int o) {
    const T* row = from + o * horizontal.out;
    return Loaded{load_pack<kOutputs>(row + column), row[before], row[after]};
  };
  const auto sum = [&](int, const Loaded& loaded) {
    A outputs[kOutputs + 2] = {A(loaded.before)};
#pragma unroll
    for (int v = 0; v < kOutputs; ++v) {
      outputs[v + 1] = A(loaded.pack.values[v]);
    }
    outputs[kOutputs + 1] = A(loaded.after);
    Pack<A, kInputs> sums;
#pragma unroll
    for (int v = 0; v < kInputs; ++v) {
      const A* o = outputs + 2 * v;
      sums.values[v] = A(0.25) * (o[0] + o[3]) + A(0.75) * (o[1] + o[2]);
    }
    return sums;
  };
  walk_inputs<kInputs, kAhead>(
      vertical, first, min(first + strip, vertical.in), [&](int o) { return vertical.tap(o); }, load, sum,
      [&](int i, const Pack<A, kInputs>& sums) { store_pack(to + i * horizontal.in, rounded<T>(sums)); });
}

}  // namespace detector::upsample_bilinear2d

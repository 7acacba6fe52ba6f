// Channels last: a thread has a pack of channels of one row and walks along a strip of columns. Threads of
// neighboring rows follow each other, so that what two rows read is in the L1 cache for the second.
#pragma once

#include "nchw.cuh"

namespace detector::upsample_bilinear2d {

// One thread a pack of channels, an output row, a strip of output columns and an image, in this order.
template <int kSize, typename Index, typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads)
    upsample_forward_channels_kernel(const T* __restrict__ input, Axis<A> vertical, Axis<A> horizontal,
                                     Index images, Index channels, int strips, int strip,
                                     T* __restrict__ output) {
  Index at = thread_index<Index>();
  const Index packs = channels / kSize;
  const Index channel = at % packs * kSize;
  at /= packs;
  const int row = int(at % vertical.out);
  at /= vertical.out;
  const int first = int(at % strips) * strip;
  const Index image = at / strips;
  if (image >= images) {
    return;
  }
  const Tap<A> tap = vertical.tap(row);
  const T* lower = input + (image * vertical.in + tap.lower) * horizontal.in * channels + channel;
  const T* upper = input + (image * vertical.in + tap.upper) * horizontal.in * channels + channel;
  T* to = output + (image * vertical.out + row) * horizontal.out * channels + channel;
  const auto column = [&](int i) {
    const Pack<T, kSize> a = load_pack<kSize>(lower + i * channels);
    const Pack<T, kSize> b = load_pack<kSize>(upper + i * channels);
    Pack<A, kSize> result;
#pragma unroll
    for (int v = 0; v < kSize; ++v) {
      result.values[v] = mix(A(a.values[v]), A(b.values[v]), tap.weight);
    }
    return result;
  };
  walk_outputs<kSize>(
      horizontal, first, min(first + strip, horizontal.out), column,
      [&](int o, const Pack<A, kSize>& result) { store_pack(to + o * channels, rounded<T>(result)); });
}

// One thread a pack of channels, an input row, a strip of input columns and an image, in this order.
template <int kSize, typename Index, typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 2 ? 1 : 0)
    upsample_backward_channels_kernel(const T* __restrict__ grad, Axis<A> vertical, Axis<A> horizontal,
                                      Index images, Index channels, int strips, int strip,
                                      T* __restrict__ grad_input) {
  constexpr int kTaps = kFewTaps, kAhead = 2;
  Index at = thread_index<Index>();
  const Index packs = channels / kSize;
  const Index channel = at % packs * kSize;
  at /= packs;
  const int row = int(at % vertical.in);
  at /= vertical.in;
  const int first = int(at % strips) * strip;
  const Index image = at / strips;
  if (image >= images) {
    return;
  }
  const T* from = grad + image * vertical.out * horizontal.out * channels + channel;
  T* to = grad_input + (image * vertical.in + row) * horizontal.in * channels + channel;
  const Window<kTaps, A> window(vertical, row);
  const Index step = horizontal.out * channels;  // from one output row to the next
  walk_inputs<kSize, kAhead>(
      horizontal, first, min(first + strip, horizontal.in), [&](int o) { return horizontal.tap(o); },
      [&](int o) { return fetch<kSize>(window, from + o * channels, step); },
      [&](int o, const Fetched<T, kSize, kTaps>& fetched) {
        return sum_window(window, vertical, row, fetched, from + o * channels, step);
      },
      [&](int i, const Pack<A, kSize>& sum) { store_pack(to + i * channels, rounded<T>(sum)); });
}

}  // namespace detector::upsample_bilinear2d

// The two inner loops of all passes on channels-last tensors: along a run of pixels whose taps are at
// constant offsets, with the channels in vectors.
#pragma once

#include "../multiversion.h"
#include "vector.h"

namespace detector::depthwise_conv2d {

// Which channel of the source feeds channel c: the same, c / multiplier (forward) or c * multiplier (the
// first of several taps, grad_input).
enum class Channels { same, divided, multiplied };

// kWhole: all lanes are channels, else the first `count`.
template <Channels kChannels, bool kWhole, typename T, typename Vector>
[[gnu::always_inline]] inline void load_channels(const T* source, int64_t c, int64_t multiplier,
                                                 int64_t count, Vector& vector) {
  using A = std::remove_cvref_t<decltype(vector[0])>;
  if constexpr (kChannels == Channels::same && kWhole && std::is_same_v<T, A>) {
    std::memcpy(&vector, source + c, sizeof(Vector));
  } else {
    constexpr int lanes = Lanes<A>::count;
    A values[lanes] = {};
    for (int l = 0; l < (kWhole ? lanes : count); ++l) {
      values[l] = A(source[kChannels == Channels::same      ? c + l
                           : kChannels == Channels::divided ? (c + l) / multiplier
                                                            : (c + l) * multiplier]);
    }
    std::memcpy(&vector, values, sizeof(Vector));
  }
}

// out[x][c] = start[c] + sum over taps t of weights[t][c] * source[x * source_step + offsets[t] + channel of
// c]
template <typename A>
struct PixelSum {
  int64_t source_step, out_step;
  const int64_t* offsets;
  const A* const* weights;  // rows of whole vectors
  int64_t taps;
  const A* start;  // the same
  int64_t pixels, channels, multiplier;
};

template <int kPixels, Channels kChannels, bool kWhole, typename A, typename T>
[[gnu::always_inline]] inline void sum_taps_of_channels(const PixelSum<A>& p, const T* source, int64_t c,
                                                        T* out) {
  using Vector = typename Lanes<A>::Vector;
  const int64_t count = p.channels - c, step = p.source_step;
  Vector sums[kPixels], weights, pixels;
  load(p.start + c, weights);
#pragma GCC unroll 8
  for (int x = 0; x < kPixels; ++x) {
    sums[x] = weights;
  }
  for (int64_t t = 0; t < p.taps; ++t) {
    load(p.weights[t] + c, weights);
    const T* tap = source + p.offsets[t];
#pragma GCC unroll 8
    for (int x = 0; x < kPixels; ++x) {
      load_channels<kChannels, kWhole>(tap + x * step, c, p.multiplier, count, pixels);
      sums[x] += weights * pixels;
    }
  }
#pragma GCC unroll 8
  for (int x = 0; x < kPixels; ++x) {
    store<kWhole>(sums[x], count, out + x * p.out_step + c);
  }
}

template <int kPixels, Channels kChannels, typename A, typename T>
[[gnu::always_inline]] inline void sum_taps_of_pixels(const PixelSum<A>& p, const T* source, T* out) {
  int64_t c = 0;
  for (; c + Lanes<A>::count <= p.channels; c += Lanes<A>::count) {
    sum_taps_of_channels<kPixels, kChannels, true>(p, source, c, out);
  }
  if (c < p.channels) {
    sum_taps_of_channels<kPixels, kChannels, false>(p, source, c, out);
  }
}

template <Channels kChannels, typename A, typename T>
DETECTOR_MULTIVERSION void sum_pixels(const PixelSum<A>& p, const T* source, T* out) {
  int64_t x = 0;
  for (; x + 3 < p.pixels; x += 4) {
    sum_taps_of_pixels<4, kChannels>(p, source + x * p.source_step, out + x * p.out_step);
  }
  for (; x < p.pixels; ++x) {
    sum_taps_of_pixels<1, kChannels>(p, source + x * p.source_step, out + x * p.out_step);
  }
}

// sums[t][c] += sum over x of grad[x * grad_step + c] * source[x * source_step + offsets[t] + channel of c]
template <typename A>
struct PixelDot {
  int64_t grad_step, source_step;
  const int64_t* offsets;
  A* const* sums;  // rows of whole vectors
  int64_t pixels, channels, multiplier;
};

template <int N, Channels kChannels, bool kWhole, typename A, typename T>
[[gnu::always_inline]] inline void dot_channels(const PixelDot<A>& p, const T* grad, const T* source,
                                                int64_t c, int64_t pixels) {
  using Vector = typename Lanes<A>::Vector;
  const int64_t count = p.channels - c;
  Vector totals[N], grads, values;
  int64_t offsets[N];
#pragma GCC unroll 16
  for (int t = 0; t < N; ++t) {
    load(p.sums[t] + c, totals[t]);
    offsets[t] = p.offsets[t];
  }
  for (int64_t x = 0; x < pixels; ++x) {
    load_channels<Channels::same, kWhole>(grad + x * p.grad_step, c, p.multiplier, count, grads);
#pragma GCC unroll 16
    for (int t = 0; t < N; ++t) {
      load_channels<kChannels, kWhole>(source + x * p.source_step + offsets[t], c, p.multiplier, count,
                                       values);
      totals[t] += grads * values;
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < N; ++t) {
    std::memcpy(p.sums[t] + c, &totals[t], sizeof(Vector));
  }
}

// For N taps.
template <int N, Channels kChannels, typename A, typename T>
DETECTOR_MULTIVERSION void dot_pixels(const PixelDot<A>& p, const T* grad, const T* source) {
  constexpr int64_t kRun = 16;  // pixels that the first-level cache holds with all channels
  for (int64_t x = 0; x < p.pixels; x += kRun) {
    const int64_t pixels = p.pixels - x < kRun ? p.pixels - x : kRun;
    const T *grad_at = grad + x * p.grad_step, *source_at = source + x * p.source_step;
    int64_t c = 0;
    for (; c + Lanes<A>::count <= p.channels; c += Lanes<A>::count) {
      dot_channels<N, kChannels, true>(p, grad_at, source_at, c, pixels);
    }
    if (c < p.channels) {
      dot_channels<N, kChannels, false>(p, grad_at, source_at, c, pixels);
    }
  }
}

}  // namespace detector::depthwise_conv2d

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

// The same where the taps come in runs of K that read pixels next to each other: outputs share what they
// read.
template <int K, int kPixels, typename A, typename T>
[[gnu::always_inline]] inline void sum_runs_of_channels(const PixelSum<A>& p, const T* source, int64_t c,
                                                        T* out) {
  using Vector = typename Lanes<A>::Vector;
  Vector sums[kPixels], weights[K], pixel;
  load(p.start + c, pixel);
#pragma GCC unroll 8
  for (int x = 0; x < kPixels; ++x) {
    sums[x] = pixel;
  }
  for (int64_t t = 0; t < p.taps; t += K) {
#pragma GCC unroll 8
    for (int j = 0; j < K; ++j) {
      load(p.weights[t + j] + c, weights[j]);
    }
    const T* tap = source + p.offsets[t];
#pragma GCC unroll 16
    for (int i = 0; i < kPixels + K - 1; ++i) {
      load_channels<Channels::same, true>(tap + i * p.source_step, c, 1, 0, pixel);
#pragma GCC unroll 8
      for (int j = 0; j < K; ++j) {
        if (0 <= i - j && i - j < kPixels) {
          sums[i - j] += weights[j] * pixel;
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int x = 0; x < kPixels; ++x) {
    store<true>(sums[x], 0, out + x * p.out_step + c);
  }
}

// K: the length of the runs, 1 where there are none.
template <int K, int kPixels, Channels kChannels, typename A, typename T>
[[gnu::always_inline]] inline void sum_taps_of_pixels(const PixelSum<A>& p, const T* source, T* out) {
  int64_t c = 0;
  for (; c + Lanes<A>::count <= p.channels; c += Lanes<A>::count) {
    if constexpr (K > 1) {
      sum_runs_of_channels<K, kPixels>(p, source, c, out);
    } else {
      sum_taps_of_channels<kPixels, kChannels, true>(p, source, c, out);
    }
  }
  if (c < p.channels) {
    sum_taps_of_channels<kPixels, kChannels, false>(p, source, c, out);
  }
}

template <int K, Channels kChannels, typename A, typename T>
DETECTOR_MULTIVERSION void sum_pixels(const PixelSum<A>& p, const T* source, T* out) {
  int64_t x = 0;
  for (; x + 4 <= p.pixels; x += 4) {
    sum_taps_of_pixels<K, 4, kChannels>(p, source + x * p.source_step, out + x * p.out_step);
  }
  if (x < p.pixels && p.pixels >= 4) {  // once more what the last four share with those before
    x = p.pixels - 4;
    sum_taps_of_pixels<K, 4, kChannels>(p, source + x * p.source_step, out + x * p.out_step);
    return;
  }
  for (; x < p.pixels; ++x) {
    sum_taps_of_pixels<1, 1, kChannels>(p, source + x * p.source_step, out + x * p.out_step);
  }
}

// run: how many taps read pixels next to each other.
template <Channels kChannels, typename A, typename T>
void sum_pixels_of_segment(const PixelSum<A>& p, int64_t run, const T* source, T* out) {
  if constexpr (kChannels == Channels::same && std::is_same_v<T, float>) {  // else it takes long to compile
    switch (run) {
      case 3:
        return sum_pixels<3, kChannels>(p, source, out);
      case 5:
        return sum_pixels<5, kChannels>(p, source, out);
      case 7:
        return sum_pixels<7, kChannels>(p, source, out);
    }
  }
  sum_pixels<1, kChannels>(p, source, out);
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

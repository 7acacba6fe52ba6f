// The two inner loops of all passes on channels-last tensors: along a run of pixels whose taps are at
// constant offsets, with the channels in vectors.
#pragma once

#include "../multiversion.h"
#include "vector.h"

namespace detector::depthwise_conv2d {

// Which channel of the source feeds channel c: the same, c / multiplier (forward) or c * multiplier (the
// first of several taps, grad_input).
enum class Channels { same, divided, multiplied };

template <Channels kChannels, typename T, typename Vector>
[[gnu::always_inline]] inline void load_channels(const T* source, int64_t c, int64_t multiplier,
                                                 int64_t count, Vector& vector) {
  using A = std::remove_cvref_t<decltype(vector[0])>;
  constexpr int lanes = Lanes<A>::count;
  if (kChannels == Channels::same && std::is_same_v<T, A> && count >= lanes) {
    std::memcpy(&vector, source + c, sizeof(Vector));
    return;
  }
  A values[lanes] = {};
  for (int l = 0; l < lanes && l < count; ++l) {
    values[l] = A(source[kChannels == Channels::same      ? c + l
                         : kChannels == Channels::divided ? (c + l) / multiplier
                                                          : (c + l) * multiplier]);
  }
  std::memcpy(&vector, values, sizeof(Vector));
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

template <int kPixels, Channels kChannels, typename A, typename T>
[[gnu::always_inline]] inline void sum_taps_of_pixels(const PixelSum<A>& p, const T* source, T* out) {
  using Vector = typename Lanes<A>::Vector;
  for (int64_t c = 0; c < p.channels; c += Lanes<A>::count) {
    Vector sums[kPixels], weights, pixels;
    load(p.start + c, weights);
#pragma GCC unroll 8
    for (int x = 0; x < kPixels; ++x) {
      sums[x] = weights;
    }
    for (int64_t t = 0; t < p.taps; ++t) {
      load(p.weights[t] + c, weights);
#pragma GCC unroll 8
      for (int x = 0; x < kPixels; ++x) {
        load_channels<kChannels>(source + x * p.source_step + p.offsets[t], c, p.multiplier, p.channels - c,
                                 pixels);
        sums[x] += weights * pixels;
      }
    }
#pragma GCC unroll 8
    for (int x = 0; x < kPixels; ++x) {
      store(sums[x], p.channels - c, out + x * p.out_step + c);
    }
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

// sums[t][c] += sum over x of grad[x * grad_step + c] * source[x * source_step + offsets[t] + channel of c],
// for N taps; sums[t] are rows of whole vectors.
template <int N, Channels kChannels, typename A, typename T>
DETECTOR_MULTIVERSION void dot_pixels(const T* grad, int64_t grad_step, const T* source, int64_t source_step,
                                      const int64_t* offsets, int64_t pixels, int64_t channels,
                                      int64_t multiplier, A* const* sums) {
  using Vector = typename Lanes<A>::Vector;
  constexpr int64_t kRun = 16;  // pixels that the first-level cache holds with all channels
  for (int64_t first = 0; first < pixels; first += kRun) {
    const int64_t last = first + kRun < pixels ? first + kRun : pixels;
    for (int64_t c = 0; c < channels; c += Lanes<A>::count) {
      Vector totals[N], grads, values;
#pragma GCC unroll 16
      for (int t = 0; t < N; ++t) {
        load(sums[t] + c, totals[t]);
      }
      for (int64_t x = first; x < last; ++x) {
        load_channels<Channels::same>(grad + x * grad_step, c, multiplier, channels - c, grads);
#pragma GCC unroll 16
        for (int t = 0; t < N; ++t) {
          load_channels<kChannels>(source + x * source_step + offsets[t], c, multiplier, channels - c,
                                   values);
          totals[t] += grads * values;
        }
      }
#pragma GCC unroll 16
      for (int t = 0; t < N; ++t) {
        std::memcpy(sums[t] + c, &totals[t], sizeof(Vector));
      }
    }
  }
}

}  // namespace detector::depthwise_conv2d

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

// Fetches what a block of kPixels pixels will read or write eight pixels on, since the hardware foresees
// steps from pixel to pixel badly: 10 to 40 % of the time of 3 x 3. Vectors of channels that share a line of
// the cache, which come one after the other, fetch half of the lines each. Sixteen pixels on is slower with
// stride 2, and so is to fetch the rows too that the outputs above have read.
template <int kPixels, int kBytes, typename T>
[[gnu::always_inline]] inline void prefetch(const T* block, int64_t step, int64_t c) {
  constexpr int shared = kBytes < 64 ? 64 / kBytes : 1;
#pragma GCC unroll 8
  for (int i = 0; i < kPixels; i += shared) {
    __builtin_prefetch(block + (8 + i + c * int64_t(sizeof(T)) / kBytes % shared) * step);
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
  // The columns of the source, where that has no zeros at its sides: the first tap of output 0 reads column
  // `column`, which may be outside, as may what the last output reads. Otherwise all is inside.
  int64_t column = 0, width = INT64_MAX;
};

template <int kPixels, int kVectors, int kBytes, Channels kChannels, bool kWhole, typename A, typename T>
[[gnu::always_inline]] inline void sum_taps_of_channels(const PixelSum<A>& p, const T* source, int64_t c,
                                                        T* out) {
  using Vector = typename Lanes<A, kBytes>::Vector;
  constexpr int lanes = Lanes<A, kBytes>::count;
  const int64_t count = p.channels - c, step = p.source_step;
  Vector sums[kPixels][kVectors], weights[kVectors], pixels;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
    for (int x = 0; x < kPixels; ++x) {
      load(p.start + c + v * lanes, sums[x][v]);
    }
  }
  if constexpr (kPixels == 4 && kVectors == 2) {
    prefetch<kPixels, kVectors * kBytes>(out + c, p.out_step, 0);
  }
  for (int64_t t = 0; t < p.taps; ++t) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      load(p.weights[t] + c + v * lanes, weights[v]);
    }
    const T* tap = source + p.offsets[t];
#pragma GCC unroll 8
    for (int x = 0; x < kPixels; ++x) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        load_channels<kChannels, kWhole>(tap + x * step, c + v * lanes, p.multiplier, count, pixels);
        sums[x][v] += weights[v] * pixels;
      }
    }
  }
#pragma GCC unroll 8
  for (int x = 0; x < kPixels; ++x) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      store<kWhole>(sums[x][v], count, out + x * p.out_step + c + v * lanes);
    }
  }
}

// The same where the taps come in runs of K that read pixels next to each other, from one output to the next
// kStride further: outputs share what they read. Of the pixels of a run only first ... last - 1 are inside.
template <int K, int kStride, int kPixels, int kVectors, int kBytes, typename A, typename T>
[[gnu::always_inline]] inline void sum_runs_of_channels(const PixelSum<A>& p, const T* source, int64_t c,
                                                        int64_t first, int64_t last, T* out) {
  using Vector = typename Lanes<A, kBytes>::Vector;
  constexpr int lanes = Lanes<A, kBytes>::count;
  const int64_t step = p.source_step / kStride;
  Vector sums[kPixels][kVectors], weights[K][kVectors], pixel;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
    for (int x = 0; x < kPixels; ++x) {
      load(p.start + c + v * lanes, sums[x][v]);
    }
  }
  prefetch<kPixels, kVectors * kBytes>(out + c, p.out_step, c);
  for (int64_t t = 0; t < p.taps; t += K) {
#pragma GCC unroll 8
    for (int j = 0; j < K; ++j) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        load(p.weights[t + j] + c + v * lanes, weights[j][v]);
      }
    }
    const T* tap = source + p.offsets[t] + c;
    if (t + kStride * K >= p.taps) {  // rows that the outputs above have not read
      prefetch<kStride * kPixels, kVectors * kBytes>(tap + (K - kStride) * step, step, c);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kStride * (kPixels - 1) + K; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        if (K > 3 && (i < first || i >= last)) {
          continue;
        }
        load(tap + v * lanes, pixel);
#pragma GCC unroll 8
        for (int x = 0; x < kPixels; ++x) {
          if (0 <= i - kStride * x && i - kStride * x < K) {
            sums[x][v] += weights[i - kStride * x][v] * pixel;
          }
        }
      }
      tap += step;
    }
  }
#pragma GCC unroll 8
  for (int x = 0; x < kPixels; ++x) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      store<true>(sums[x][v], 0, out + x * p.out_step + c + v * lanes);
    }
  }
}

// Channels begin ... end - 1 of kPixels pixels, kVectors vectors at a time. K: the length of the runs, 1
// where there are none.
template <int K, int kStride, int kPixels, int kVectors, int kBytes, Channels kChannels, typename A,
          typename T>
[[gnu::always_inline]] inline void sum_taps_of_pixels(const PixelSum<A>& p, int64_t x, const T* source,
                                                      int64_t begin, int64_t end, T* out) {
  int64_t c = begin;
  const int64_t first = -(p.column + x), last = p.width - (p.column + x);
  const auto sum_while_whole = [&](auto vectors, auto bytes) __attribute__((always_inline)) {
    constexpr int64_t step = vectors * Lanes<A, bytes>::count;
    for (; c + step <= end; c += step) {
      if constexpr (K > 1) {
        sum_runs_of_channels<K, kStride, kPixels, vectors, bytes>(p, source, c, first, last, out);
      } else {
        sum_taps_of_channels<kPixels, vectors, bytes, kChannels, true>(p, source, c, out);
      }
    }
  };
  constexpr std::integral_constant<int, 1> one;
  constexpr std::integral_constant<int, kNarrow> narrow;
  if constexpr (kVectors > 1) {
    sum_while_whole(std::integral_constant<int, kVectors>{}, std::integral_constant<int, kBytes>{});
  }
  if constexpr (kBytes != kNarrow) {
    sum_while_whole(one, std::integral_constant<int, kBytes>{});
  }
  sum_while_whole(one, narrow);
  if (c < end) {  // of all channels the last
    sum_taps_of_channels<kPixels, 1, kNarrow, kChannels, false>(p, source, c, out);
  }
}

template <int K, int kStride, int kBytes, Channels kChannels, typename A, typename T>
[[gnu::always_inline]] inline void sum_run_of_pixels(const PixelSum<A>& problem, const T* source, T* out) {
  const PixelSum<A> p = problem;  // a copy, which no store changes
  constexpr bool kFast =
      kChannels == Channels::same && std::is_same_v<T, float>;  // else it takes long to compile
  constexpr int kPixels = K > 3 ? 8 : 4;
  constexpr int kVectors = K <= 3 && kFast ? 2 : 1;
  // So few channels of large kernels that the first-level cache holds what the next pixels read again.
  const int64_t channels_at_once = K > 3 ? 32 : p.channels;
  for (int64_t begin = 0; begin < p.channels; begin += channels_at_once) {
    const int64_t end = p.channels - begin < channels_at_once ? p.channels : begin + channels_at_once;
    int64_t x = 0;
    const auto sum = [&](auto pixels) __attribute__((always_inline)) {
      sum_taps_of_pixels<K, kStride, pixels, kVectors, kBytes, kChannels>(p, x, source + x * p.source_step,
                                                                          begin, end, out + x * p.out_step);
    };
    for (; x + kPixels <= p.pixels; x += kPixels) {
      sum(std::integral_constant<int, kPixels>{});
    }
    while (x < p.pixels && p.pixels >= 4) {  // once more what the last four share with those before
      x = x + 4 <= p.pixels ? x : p.pixels - 4;
      sum(std::integral_constant<int, 4>{});
      x += 4;
    }
    for (; x < p.pixels; ++x) {
      sum_taps_of_pixels<1, 1, 1, kFast ? 4 : 1, kBytes, kChannels>(p, x, source + x * p.source_step, begin,
                                                                    end, out + x * p.out_step);
    }
  }
}

template <int K, int kStride, Channels kChannels, typename A, typename T>
DETECTOR_MULTIVERSION void sum_pixels(const PixelSum<A>& p, const T* source, T* out) {
  sum_run_of_pixels<K, kStride, kNarrow, kChannels>(p, source, out);
}

template <int K, typename A, typename T>
DETECTOR_AVX512 void sum_pixels_wide(const PixelSum<A>& p, const T* source, T* out) {
  sum_run_of_pixels<K, 1, kWide, Channels::same>(p, source, out);
}

// run: how many taps read pixels next to each other. stride: how many pixels further the next output reads.
template <Channels kChannels, typename A, typename T>
void sum_pixels_of_segment(const PixelSum<A>& p, int64_t run, int64_t stride, const T* source, T* out) {
  if constexpr (kChannels == Channels::same && std::is_same_v<T, float>) {  // else it takes long to compile
    if (stride == 1) {
      switch (run) {
        case 3:
          return sum_pixels<3, 1, kChannels>(p, source, out);
        case 5:
          return has_avx512() ? sum_pixels_wide<5>(p, source, out)
                              : sum_pixels<5, 1, kChannels>(p, source, out);
        case 7:
          return has_avx512() ? sum_pixels_wide<7>(p, source, out)
                              : sum_pixels<7, 1, kChannels>(p, source, out);
      }
    } else if (stride == 2 && run == 3) {
      return sum_pixels<3, 2, kChannels>(p, source, out);
    }
    if (has_avx512()) {  // the borders of large kernels, too, whose runs are shorter
      return sum_pixels_wide<1>(p, source, out);
    }
  }
  sum_pixels<1, 1, kChannels>(p, source, out);
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

// The same for kPixels pixels, where the taps are kRuns runs of three that read pixels next to each other,
// from one grad to the next kStride further: each is read once.
template <int kRuns, int kStride, int kPixels, int kBytes, typename A, typename T>
[[gnu::always_inline]] inline void dot_runs_of_channels(const PixelDot<A>& p, const T* grad, const T* source,
                                                        int64_t c) {
  using Vector = typename Lanes<A, kBytes>::Vector;
  const int64_t step = p.source_step / kStride;
  Vector totals[kRuns][3], grads[kPixels], pixel;
#pragma GCC unroll 8
  for (int x = 0; x < kPixels; ++x) {
    load(grad + x * p.grad_step + c, grads[x]);
  }
  prefetch<kPixels, kBytes>(grad + c, p.grad_step, c);
#pragma GCC unroll 8
  for (int r = 0; r < kRuns; ++r) {
    const T* run = source + p.offsets[3 * r] + c;
    if (kPixels > 1 && r >= kRuns - kStride) {
      prefetch<kStride * kPixels, kBytes>(run + (3 - kStride) * step, step, c);
    }
#pragma GCC unroll 8
    for (int j = 0; j < 3; ++j) {
      load(p.sums[3 * r + j] + c, totals[r][j]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kStride * (kPixels - 1) + 3; ++i) {
      load(run + i * step, pixel);
#pragma GCC unroll 8
      for (int x = 0; x < kPixels; ++x) {
        if (0 <= i - kStride * x && i - kStride * x < 3) {
          totals[r][i - kStride * x] += grads[x] * pixel;
        }
      }
    }
#pragma GCC unroll 8
    for (int j = 0; j < 3; ++j) {
      std::memcpy(p.sums[3 * r + j] + c, &totals[r][j], sizeof(Vector));
    }
  }
}

template <int kRuns, int kStride, int kBytes, typename A, typename T>
[[gnu::always_inline]] inline void dot_runs_of_pixels(const PixelDot<A>& problem, const T* grad,
                                                      const T* source) {
  const PixelDot<A> p = problem;  // a copy, which no store changes
  int64_t x = 0;
  const auto dot = [&](auto pixels) __attribute__((always_inline)) {
    const T *grad_at = grad + x * p.grad_step, *source_at = source + x * p.source_step;
    int64_t c = 0;
    const auto dot_while_whole = [&](auto bytes) __attribute__((always_inline)) {
      for (; c + Lanes<A, bytes>::count <= p.channels; c += Lanes<A, bytes>::count) {
        dot_runs_of_channels<kRuns, kStride, pixels, bytes>(p, grad_at, source_at, c);
      }
    };
    if constexpr (kBytes != kNarrow) {
      dot_while_whole(std::integral_constant<int, kBytes>{});
    }
    dot_while_whole(std::integral_constant<int, kNarrow>{});
    if (c < p.channels) {
      dot_channels<3 * kRuns, Channels::same, false>(p, grad_at, source_at, c, pixels);
    }
    x += pixels;
  };
  while (x + 4 <= p.pixels) {
    dot(std::integral_constant<int, 4>{});
  }
  while (x < p.pixels) {
    dot(std::integral_constant<int, 1>{});
  }
}

template <int kRuns, int kStride, typename A, typename T>
DETECTOR_MULTIVERSION void dot_runs(const PixelDot<A>& p, const T* grad, const T* source) {
  dot_runs_of_pixels<kRuns, kStride, kNarrow>(p, grad, source);
}

template <int kRuns, int kStride, typename A, typename T>
DETECTOR_AVX512 void dot_runs_wide(const PixelDot<A>& p, const T* grad, const T* source) {
  dot_runs_of_pixels<kRuns, kStride, kWide>(p, grad, source);
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

// The two inner loops of all passes on planes. They read rows of planes that PaddedPlane has prepared, so
// that nothing is outside, every tap is a constant offset, and neighbors in memory are neighbors in the
// output.
#pragma once

#include <algorithm>

#include "../multiversion.h"
#include "vector.h"

namespace detector::depthwise_conv2d {

// out[y][x] = start + sum over taps t of weights[t] * source[y * source_row + offsets[t] + x]
template <typename A>
struct PlaneSum {
  const A* source;
  int64_t source_row;
  const int64_t* offsets;
  const A* weights;
  int64_t taps;
  A start;
  int64_t rows, columns;
};

template <int kVectors, bool kWhole, typename A, typename T>
[[gnu::always_inline]] inline void sum_taps(const PlaneSum<A>& p, const A* source, int64_t count, T* out) {
  typename Lanes<A>::Vector sums[kVectors], pixels;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    sums[v] = typename Lanes<A>::Vector{} + p.start;
  }
  for (int64_t t = 0; t < p.taps; ++t) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      load(source + p.offsets[t] + v * Lanes<A>::count, pixels);
      sums[v] += p.weights[t] * pixels;
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    store<kWhole>(sums[v], count - v * Lanes<A>::count, out + v * Lanes<A>::count);
  }
}

template <typename A, typename T>
DETECTOR_MULTIVERSION void sum_plane(const PlaneSum<A>& p, T* out, int64_t out_row) {
  constexpr int64_t lanes = Lanes<A>::count;
  for (int64_t y = 0; y < p.rows; ++y) {
    const A* source = p.source + y * p.source_row;
    T* out_at = out + y * out_row;
    int64_t x = 0;
    for (; x + 4 * lanes <= p.columns; x += 4 * lanes) {
      sum_taps<4, true>(p, source + x, 0, out_at + x);
    }
    for (; x + lanes <= p.columns; x += lanes) {
      sum_taps<1, true>(p, source + x, 0, out_at + x);
    }
    if (x < p.columns && p.columns >= lanes) {  // once more what the last vector shares with the one before
      sum_taps<1, true>(p, source + p.columns - lanes, 0, out_at + p.columns - lanes);
    } else if (x < p.columns) {
      sum_taps<1, false>(p, source, p.columns, out_at);
    }
  }
}

// The same for the K x K taps of stride and dilation 1: kRows outputs below each other share what they read.
template <int K, int kRows, int kVectors, int kBytes, bool kWhole, typename A, typename T>
[[gnu::always_inline]] inline void sum_square_block(const PlaneSum<A>& p, const A* source, int64_t count,
                                                    T* out, int64_t out_row) {
  using Vector = typename Lanes<A, kBytes>::Vector;
  constexpr int lanes = Lanes<A, kBytes>::count;
  Vector sums[kRows][kVectors], pixels[kVectors];
  if constexpr (K == 3) {  // larger ones compute for longer than memory takes
#pragma GCC unroll 8
    for (int y = 0; y < kRows; ++y) {
      __builtin_prefetch(out + (kRows + y) * out_row);
    }
  }
#pragma GCC unroll 8
  for (int y = 0; y < kRows; ++y) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[y][v] = Vector{} + p.start;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows + K - 1; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < K; ++j) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        load(source + r * p.source_row + j + v * lanes, pixels[v]);
      }
#pragma GCC unroll 8
      for (int y = 0; y < kRows; ++y) {
        if (0 <= r - y && r - y < K) {
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) {
            sums[y][v] += p.weights[(r - y) * K + j] * pixels[v];
          }
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int y = 0; y < kRows; ++y) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      store<kWhole>(sums[y][v], count - v * lanes, out + y * out_row + v * lanes);
    }
  }
}

template <int K, int kRows, int kVectors, int kBytes, typename A, typename T>
[[gnu::always_inline]] inline void sum_square_rows(const PlaneSum<A>& p, const A* source, T* out,
                                                   int64_t out_row) {
  constexpr int64_t step = kVectors * Lanes<A, kBytes>::count;
  int64_t x = 0;
  for (; x + step <= p.columns; x += step) {
    sum_square_block<K, kRows, kVectors, kBytes, true>(p, source + x, 0, out + x, out_row);
  }
  if (x < p.columns && p.columns >= step) {  // once more what the last block shares with the one before
    const int64_t last = p.columns - step;
    sum_square_block<K, kRows, kVectors, kBytes, true>(p, source + last, 0, out + last, out_row);
  } else if (x < p.columns) {
    sum_square_block<K, kRows, kVectors, kBytes, false>(p, source, p.columns, out, out_row);
  }
}

template <int K, int kRows, int kVectors, int kBytes, typename A, typename T>
[[gnu::always_inline]] inline void sum_square_plane(const PlaneSum<A>& p, T* out, int64_t out_row) {
  int64_t y = 0;
  const auto sum_rows = [&](auto rows) __attribute__((always_inline)) {
    for (; y + rows <= p.rows; y += rows) {
      sum_square_rows<K, rows, kVectors, kBytes>(p, p.source + y * p.source_row, out + y * out_row, out_row);
    }
  };
  if constexpr (kRows > 4) {
    sum_rows(std::integral_constant<int, kRows>{});
  }
  sum_rows(std::integral_constant<int, 4>{});
  sum_rows(std::integral_constant<int, 1>{});
}

template <int K, int kVectors, typename A, typename T>
DETECTOR_MULTIVERSION void sum_square(const PlaneSum<A>& p, T* out, int64_t out_row) {
  sum_square_plane<K, 4, kVectors, kNarrow>(p, out, out_row);
}

template <int K, typename A, typename T>
DETECTOR_AVX512 void sum_square_wide(const PlaneSum<A>& p, T* out, int64_t out_row) {
  sum_square_plane<K, 8, 1, kWide>(p, out, out_row);
}

// sums[t] = sum over y, x of grad[y][x] * source[y * source_row + offsets[t] + x], for N taps. Rows of grad
// are padded by zeros to whole vectors; what source has there may be NaN, so it is masked out.
template <int N, int kBytes, typename A>
[[gnu::always_inline]] inline void dot_rows(const A* grad, int64_t grad_row, const A* source,
                                            int64_t source_row, const int64_t* offsets, int64_t rows,
                                            int64_t columns, A* sums) {
  using Vector = typename Lanes<A, kBytes>::Vector;
  using Mask = typename Lanes<A, kBytes>::Mask;
  constexpr int64_t lanes = Lanes<A, kBytes>::count;
  Vector totals[N] = {}, grads, pixels;
  Mask inside;
  for (int l = 0; l < lanes; ++l) {
    inside[l] = l < columns % lanes ? -1 : 0;
  }
  for (int64_t y = 0; y < rows; ++y) {
    const A* grad_at = grad + y * grad_row;
    const A* source_at = source + y * source_row;
    int64_t x = 0;
    for (; x + lanes <= columns; x += lanes) {
      load(grad_at + x, grads);
#pragma GCC unroll 16
      for (int t = 0; t < N; ++t) {
        load(source_at + offsets[t] + x, pixels);
        totals[t] += grads * pixels;
      }
    }
    if (x < columns) {
      load(grad_at + x, grads);
#pragma GCC unroll 16
      for (int t = 0; t < N; ++t) {
        load(source_at + offsets[t] + x, pixels);
        totals[t] += grads * Vector(Mask(pixels) & inside);
      }
    }
  }
  A values[N][lanes];
  std::memcpy(values, totals, sizeof(values));
#pragma GCC unroll 4
  for (int64_t half = lanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 16
    for (int t = 0; t < N; ++t) {
#pragma GCC unroll 4
      for (int l = 0; l < half; ++l) {
        values[t][l] += values[t][l + half];
      }
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < N; ++t) {
    sums[t] = values[t][0];
  }
}

template <int N, typename A>
DETECTOR_MULTIVERSION void dot_planes(const A* grad, int64_t grad_row, const A* source, int64_t source_row,
                                      const int64_t* offsets, int64_t rows, int64_t columns, A* sums) {
  dot_rows<N, kNarrow>(grad, grad_row, source, source_row, offsets, rows, columns, sums);
}

template <int N, typename A>
DETECTOR_AVX512 void dot_planes_wide(const A* grad, int64_t grad_row, const A* source, int64_t source_row,
                                     const int64_t* offsets, int64_t rows, int64_t columns, A* sums) {
  dot_rows<N, kWide>(grad, grad_row, source, source_row, offsets, rows, columns, sums);
}

}  // namespace detector::depthwise_conv2d

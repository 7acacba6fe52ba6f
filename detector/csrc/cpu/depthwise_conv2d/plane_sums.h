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

// Of kRows rows kVectors vectors each, enough sums that none waits for its last product.
template <int kRows, int kVectors, bool kWhole, typename A, typename T>
[[gnu::always_inline]] inline void sum_block(const PlaneSum<A>& p, const A* source, int64_t count, T* out,
                                             int64_t out_row) {
  typename Lanes<A>::Vector sums[kRows][kVectors], pixels;
#pragma GCC unroll 8
  for (int y = 0; y < kRows; ++y) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[y][v] = typename Lanes<A>::Vector{} + p.start;
    }
  }
  for (int64_t t = 0; t < p.taps; ++t) {
    const A* const met = source + p.offsets[t];
#pragma GCC unroll 8
    for (int y = 0; y < kRows; ++y) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        load(met + y * p.source_row + v * Lanes<A>::count, pixels);
        sums[y][v] += p.weights[t] * pixels;
      }
    }
  }
#pragma GCC unroll 8
  for (int y = 0; y < kRows; ++y) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      store<kWhole>(sums[y][v], count - v * Lanes<A>::count, out + y * out_row + v * Lanes<A>::count);
    }
  }
}

template <int kRows, typename A, typename T>
[[gnu::always_inline]] inline void sum_rows(const PlaneSum<A>& p, const A* source, T* out, int64_t out_row) {
  constexpr int64_t lanes = Lanes<A>::count;
  int64_t x = 0;
  for (; x + 2 * lanes <= p.columns; x += 2 * lanes) {
    sum_block<kRows, 2, true>(p, source + x, 0, out + x, out_row);
  }
  for (; x + lanes <= p.columns; x += lanes) {
    sum_block<kRows, 1, true>(p, source + x, 0, out + x, out_row);
  }
  if (x < p.columns && p.columns >= lanes) {  // once more what the last vector shares with the one before
    const int64_t last = p.columns - lanes;
    sum_block<kRows, 1, true>(p, source + last, 0, out + last, out_row);
  } else if (x < p.columns) {
    sum_block<kRows, 1, false>(p, source, p.columns, out, out_row);
  }
}

template <typename A, typename T>
DETECTOR_MULTIVERSION void sum_plane(const PlaneSum<A>& p, T* out, int64_t out_row) {
  int64_t y = 0;
  for (; y + 4 <= p.rows; y += 4) {
    sum_rows<4>(p, p.source + y * p.source_row, out + y * out_row, out_row);
  }
  for (; y < p.rows; ++y) {
    sum_rows<1>(p, p.source + y * p.source_row, out + y * out_row, out_row);
  }
}

// sums[t] = sum over y, x of grad[y][x] * source[y * source_row + offsets[t] + x], for N taps. Rows of grad
// are padded by zeros to whole vectors; what source has there may be NaN, so it is masked out.
template <int N, typename A>
DETECTOR_MULTIVERSION void dot_planes(const A* grad, int64_t grad_row, const A* source, int64_t source_row,
                                      const int64_t* offsets, int64_t rows, int64_t columns, A* sums) {
  using Vector = typename Lanes<A>::Vector;
  using Mask = typename Lanes<A>::Mask;
  constexpr int64_t lanes = Lanes<A>::count;
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

}  // namespace detector::depthwise_conv2d

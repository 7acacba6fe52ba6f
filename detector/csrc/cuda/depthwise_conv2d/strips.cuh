// How the fast kernels for contiguous planes share out their work: a thread owns a strip, kColumns columns
// wide and a compile-time number of rows high, of one plane. It reads the rows that the strip touches from
// global memory, where its neighbors' overlapping reads hit the L1 cache, and keeps all sums in registers.
#pragma once

#include "../../depthwise_conv2d_plan.h"
#include "../launch.cuh"
#include "../pack.cuh"

namespace detector::depthwise_conv2d {

constexpr int floor_div(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

// A plane of a contiguous tensor, zero outside.
template <typename T>
struct Plane {
  const T* __restrict__ data;
  int height, width;

  // values[i] = column first + i of a row, i < N. kVector: `base`, at or right of `first` by kBefore columns,
  // is a multiple of kAlign, and so are the width and the address of every row.
  template <bool kVector, int kAlign, int kBefore, int N, typename A>
  __device__ void load(int row, int base, A (&values)[N]) const {
    const bool inside = 0 <= row && row < height;
    const T* source = data + int64_t(row) * width + base;
    if constexpr (kVector) {
      constexpr int first = floor_div(-kBefore, kAlign), last = floor_div(N - 1 - kBefore, kAlign);
#pragma unroll
      for (int v = first; v <= last; ++v) {
        Pack<T, kAlign> pack{};
        if (inside && 0 <= base + v * kAlign && base + v * kAlign < width) {
          pack = load_pack<kAlign>(source + v * kAlign);
        }
#pragma unroll
        for (int c = 0; c < kAlign; ++c) {
          const int i = v * kAlign + c + kBefore;
          if (0 <= i && i < N) {
            values[i] = A(pack.values[c]);
          }
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const int column = base - kBefore + i;
        values[i] = inside && 0 <= column && column < width ? A(source[i - kBefore]) : A(0);
      }
    }
  }
};

template <bool kVector, typename T, typename A>
__device__ void store_row(T* row, int column, int width, const A (&values)[kColumns]) {
  if constexpr (kVector) {
    Pack<T, kColumns> pack;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      pack.values[c] = T(values[c]);
    }
    store_pack(row + column, pack);
  } else {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (column + c < width) {
        row[column + c] = T(values[c]);
      }
    }
  }
}

// The strips of planes of a size, numbered with the columns fastest.
struct Strips {
  unsigned across, down, rows;  // strips of a plane, rows of a strip

  Strips(int64_t height, int64_t width, int rows_of_strip)
      : across(ceil_div(width, kColumns)), down(ceil_div(height, rows_of_strip)), rows(rows_of_strip) {}

  C10_HOST_DEVICE unsigned strips_per_plane() const { return across * down; }

  struct Place {
    unsigned plane;
    int row, column;  // the first of the strip
  };

  __device__ Place place(unsigned strip) const {
    const unsigned line = strip / across, plane = line / down;
    return {plane, int((line - plane * down) * rows), int((strip - line * across) * kColumns)};
  }
};

}  // namespace detector::depthwise_conv2d

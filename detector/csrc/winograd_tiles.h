// The tiles of winograd_conv2d: what its three maps and their transposes do to one, and where they lie.
#pragma once

#include <cstdint>

#include "tensor.h"

namespace detector::winograd_conv2d {

constexpr int kPlaces = 16;
constexpr int64_t kColumnMultiple = 4;  // of the matrices: rows then start at multiples of 16 bytes

// ---- one axis of a tile, in place; `step` apart ----

template <typename T>
C10_HOST_DEVICE void input_axis(T* d, int step) {  // B^T
  const T d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step];
  d[0] = d0 - d2, d[step] = d1 + d2, d[2 * step] = d2 - d1, d[3 * step] = d1 - d3;
}

template <typename T>
C10_HOST_DEVICE void output_axis(T* m, int step) {  // A^T: four to two
  const T m0 = m[0], m1 = m[step], m2 = m[2 * step], m3 = m[3 * step];
  m[0] = m0 + m1 + m2, m[step] = m1 - m2 - m3;
}

template <typename T>
C10_HOST_DEVICE void output_axis_transposed(T* y, int step) {  // A: two to four
  const T y0 = y[0], y1 = y[step];
  y[step] = y0 + y1, y[2 * step] = y0 - y1, y[3 * step] = -y1;
}

template <typename T>
C10_HOST_DEVICE void weight_axis(T* g, int step) {  // G: three to four
  const T g0 = g[0], g1 = g[step], g2 = g[2 * step];
  g[step] = (g0 + g1 + g2) / 2, g[2 * step] = (g0 - g1 + g2) / 2, g[3 * step] = g2;
}

template <typename T>
C10_HOST_DEVICE void weight_axis_transposed(T* u, int step) {  // G^T: four to three
  const T u0 = u[0], u1 = u[step], u2 = u[2 * step], u3 = u[3 * step];
  u[0] = u0 + (u1 + u2) / 2, u[step] = (u1 - u2) / 2, u[2 * step] = (u1 + u2) / 2 + u3;
}

// B of the tile whose cells 0 and 1 these are, or of the one before, whose cells 2 and 3 they are: four to
// two.
template <typename T>
C10_HOST_DEVICE void input_axis_transposed(T* v, int step, bool before) {
  const T v0 = v[0], v1 = v[step], v2 = v[2 * step], v3 = v[3 * step];
  v[0] = before ? v1 + v2 - v0 : v0;
  v[step] = before ? -v3 : v1 - v2 + v3;
}

// ---- where tiles lie ----

// One axis: `size` outputs in tiles of two, `dilation` apart. Tiles of neighbouring phases are neighbours.
struct Axis {
  int64_t size, dilation;
  int64_t padding = 0;

  C10_HOST_DEVICE int64_t tiles() const { return dilation * (((size + dilation - 1) / dilation + 1) / 2); }
  // The first output of a tile; the second comes `dilation` later, and either may lie past the end.
  C10_HOST_DEVICE int64_t first_output(int64_t tile) const {
    return tile % dilation + 2 * dilation * (tile / dilation);
  }
  C10_HOST_DEVICE int64_t first_input(int64_t tile) const { return first_output(tile) - padding; }
  // Pairs of inputs: the first two of each tile, and the last two of the last of each phase.
  C10_HOST_DEVICE int64_t pairs() const { return tiles() + dilation; }
};

struct Tile {
  int64_t image, row, column;
};

struct Tiles {
  int64_t images;
  Axis rows, columns;

  C10_HOST_DEVICE int64_t of_image() const { return rows.tiles() * columns.tiles(); }
  C10_HOST_DEVICE int64_t count() const { return images * of_image(); }
  // Columns of the matrices; those past count() are zero.
  C10_HOST_DEVICE int64_t padded() const {
    return (count() + kColumnMultiple - 1) / kColumnMultiple * kColumnMultiple;
  }
  C10_HOST_DEVICE Tile at(int64_t index) const { return at(index, rows.tiles(), columns.tiles()); }
  C10_HOST_DEVICE int64_t pairs() const { return images * rows.pairs() * columns.pairs(); }
  C10_HOST_DEVICE Tile pair_at(int64_t index) const { return at(index, rows.pairs(), columns.pairs()); }

 private:
  C10_HOST_DEVICE static Tile at(int64_t index, int64_t in_column, int64_t in_row) {
    return {index / (in_column * in_row), index / in_row % in_column, index % in_row};
  }
};

// ---- the matrices: the places of a tile lie `stride` apart ----

template <typename T>
C10_HOST_DEVICE void load_places(const T* from, int64_t stride, T (&values)[kPlaces]) {
  for (int k = 0; k < kPlaces; ++k) {
    values[k] = from[k * stride];
  }
}

template <typename T>
C10_HOST_DEVICE void store_places(const T (&values)[kPlaces], T* to, int64_t stride) {
  for (int k = 0; k < kPlaces; ++k) {
    to[k * stride] = values[k];
  }
}

// ---- planes of numbers: a tile in, a tile out ----

template <typename T>
C10_HOST_DEVICE void load_tile(const T* plane, int64_t height, int64_t width, int64_t row, int64_t column,
                               int64_t dilation_rows, int64_t dilation_columns, int side, T* tile) {
  for (int i = 0; i < side; ++i) {
    for (int j = 0; j < side; ++j) {
      const int64_t y = row + i * dilation_rows, x = column + j * dilation_columns;
      tile[4 * i + j] = y >= 0 && y < height && x >= 0 && x < width ? plane[y * width + x] : T(0);
    }
  }
}

// B^T d B of the tile of a plane (height, width).
template <typename T>
C10_HOST_DEVICE void input_tile(const T* plane, int64_t height, int64_t width, const Tiles& tiles, Tile tile,
                                T (&d)[kPlaces]) {
  load_tile(plane, height, width, tiles.rows.first_input(tile.row), tiles.columns.first_input(tile.column),
            tiles.rows.dilation, tiles.columns.dilation, 4, d);
  for (int i = 0; i < 4; ++i) {
    input_axis(d + i, 4);
  }
  for (int i = 0; i < 4; ++i) {
    input_axis(d + 4 * i, 1);
  }
}

// The gradient of the two by two inputs with which tile `pair` begins, summed over the tiles that hold them.
template <typename T>
C10_HOST_DEVICE void input_pairs(const T* grad, int64_t place_stride, const Tiles& tiles, Tile pair,
                                 int64_t height, int64_t width, T* plane) {
  const Axis &rows = tiles.rows, &columns = tiles.columns;
  T sums[4] = {};
  for (int k = 0; k < 4; ++k) {
    const bool above = k / 2, left = k % 2;
    const int64_t row = pair.row - above * rows.dilation, column = pair.column - left * columns.dilation;
    if (row >= 0 && row < rows.tiles() && column >= 0 && column < columns.tiles()) {
      const T* from = grad + (pair.image * rows.tiles() + row) * columns.tiles() + column;
      T v[kPlaces];
      load_places(from, place_stride, v);
      for (int i = 0; i < 4; ++i) {
        input_axis_transposed(v + i, 4, above);
      }
      for (int i = 0; i < 2; ++i) {
        input_axis_transposed(v + 4 * i, 1, left);
      }
      for (int i = 0; i < 4; ++i) {
        sums[i] += v[i / 2 * 4 + i % 2];
      }
    }
  }
  for (int i = 0; i < 4; ++i) {
    const int64_t y = rows.first_input(pair.row) + i / 2 * rows.dilation;
    const int64_t x = columns.first_input(pair.column) + i % 2 * columns.dilation;
    if (y >= 0 && y < height && x >= 0 && x < width) {
      plane[y * width + x] = sums[i];
    }
  }
}

// A^T m A to a plane (rows.size, columns.size).
template <typename T>
C10_HOST_DEVICE void output_tile(T (&m)[kPlaces], const Tiles& tiles, Tile tile, T* plane) {
  for (int i = 0; i < 4; ++i) {
    output_axis(m + i, 4);
  }
  for (int i = 0; i < 2; ++i) {
    output_axis(m + 4 * i, 1);
  }
  const int64_t row = tiles.rows.first_output(tile.row), column = tiles.columns.first_output(tile.column);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      const int64_t y = row + i * tiles.rows.dilation, x = column + j * tiles.columns.dilation;
      if (y < tiles.rows.size && x < tiles.columns.size) {
        plane[y * tiles.columns.size + x] = m[4 * i + j];
      }
    }
  }
}

// A y A^T of the tile of a plane (rows.size, columns.size).
template <typename T>
C10_HOST_DEVICE void output_tile_transposed(const T* plane, const Tiles& tiles, Tile tile, T (&y)[kPlaces]) {
  load_tile(plane, tiles.rows.size, tiles.columns.size, tiles.rows.first_output(tile.row),
            tiles.columns.first_output(tile.column), tiles.rows.dilation, tiles.columns.dilation, 2, y);
  for (int i = 0; i < 2; ++i) {
    output_axis_transposed(y + i, 4);
  }
  for (int i = 0; i < 4; ++i) {
    output_axis_transposed(y + 4 * i, 1);
  }
}

// G g G^T of the nine weights at `from`.
template <typename T>
C10_HOST_DEVICE void weight_tile(const T* from, T (&g)[kPlaces]) {
  for (int i = 0; i < 9; ++i) {
    g[i / 3 * 4 + i % 3] = from[i];
  }
  for (int i = 0; i < 3; ++i) {
    weight_axis(g + i, 4);
  }
  for (int i = 0; i < 4; ++i) {
    weight_axis(g + 4 * i, 1);
  }
}

// G^T u G to the nine weights at `to`.
template <typename T>
C10_HOST_DEVICE void weight_tile_transposed(T (&u)[kPlaces], T* to) {
  for (int i = 0; i < 4; ++i) {
    weight_axis_transposed(u + i, 4);
  }
  for (int i = 0; i < 3; ++i) {
    weight_axis_transposed(u + 4 * i, 1);
  }
  for (int i = 0; i < 9; ++i) {
    to[i] = u[i / 3 * 4 + i % 3];
  }
}

}  // namespace detector::winograd_conv2d

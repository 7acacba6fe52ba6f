// What Winograd's F(2 x 2, 3 x 3) (arXiv 1509.09308) does to a tile, for both devices. Two by two outputs of
// a 3 x 3 convolution take 16 multiplications instead of 36,
//
//   y = A^T [(G g G^T) * (B^T d B)] A,   g 3 x 3, d 4 x 4, * element by element,
//
// so that of all tiles and channels the convolution is 16 matrix products, one for each of the 16 places.
// The three maps (input, weight, output) are linear, and the gradient of each is its transpose.
//
// A dilated convolution is a plain one on each of its phases, the cells whose row and column leave the same
// remainders by the dilation.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <vector>

#include "tensor.h"

namespace detector::winograd_conv2d {

using Sizes = std::vector<int64_t>;

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
      for (int place = 0; place < kPlaces; ++place) {
        v[place] = from[place * place_stride];
      }
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

// ---- the ops: arguments are checked here, a device says how its kernels run ----

inline void check_pair(const char* op, const char* name, const Sizes& pair) {
  if (pair.size() != 2) {
    fail(op, ": ", name, " is ", tuple_text(pair), ", expected two numbers");
  }
}

// Tiles of the outputs (images, height, width).
inline Tiles tiles_of_outputs(const char* op, const Sizes& size, const Sizes& dilation) {
  check_pair(op, "dilation", dilation);
  if (dilation[0] < 1 || dilation[1] < 1) {
    fail(op, ": dilation is ", tuple_text(dilation), ", expected at least 1");
  }
  if (size.size() != 3 || size[0] < 0 || size[1] < 1 || size[2] < 1) {
    fail(op, ": size is ", tuple_text(size), ", expected images, and at least one row and one column");
  }
  return {size[0], {size[1], dilation[0]}, {size[2], dilation[1]}};
}

// Tiles of the outputs for inputs of size (images, height, width).
inline Tiles tiles_of_inputs(const char* op, const Sizes& size, const Sizes& padding, const Sizes& dilation) {
  check_pair(op, "padding", padding);
  check_pair(op, "dilation", dilation);
  if (padding[0] < 0 || padding[1] < 0) {
    fail(op, ": padding is ", tuple_text(padding), ", expected at least 0");
  }
  if (size.size() != 3) {
    fail(op, ": size is ", tuple_text(size), ", expected images, rows and columns");
  }
  Sizes outputs = size;
  for (int i = 0; i < 2; ++i) {
    outputs[1 + i] += 2 * padding[i] - 2 * dilation[i];
    if (outputs[1 + i] < 1) {
      fail(op, ": the input has ", size[1 + i], i == 0 ? " rows" : " columns", ", expected at least ",
           2 * (dilation[i] - padding[i]) + 1, " with padding ", padding[i], " and dilation ", dilation[i]);
    }
  }
  Tiles tiles = tiles_of_outputs(op, outputs, dilation);
  tiles.rows.padding = padding[0], tiles.columns.padding = padding[1];
  return tiles;
}

inline Sizes size_of_planes(const char* op, const char* name, const Tensor& tensor) {
  check_rank(op, name, tensor, 4);
  return {tensor.size(0), tensor.size(2), tensor.size(3)};
}

inline void check_matrices(const char* op, const char* name, const Tensor& tensor, int64_t columns) {
  if (tensor.dim() != 3 || tensor.size(0) != kPlaces || tensor.size(2) != columns) {
    fail(op, ": ", name, " has shape ", shape_text(tensor), ", expected (16, C, ", columns, ")");
  }
}

// Calls body(T{}, from, to) with from contiguous and to new, unless that is empty.
template <typename Body>
Tensor map(const char* op, const char* name, const Tensor& any_from, const Sizes& shape, const Body& body) {
  const ScalarType type = any_from.scalar_type();
  if (type != ScalarType::Double && type != ScalarType::Float) {
    fail(op, ": ", name, " is ", torch::headeronly::toString(type), ", expected Double or Float");
  }
  const Tensor from = torch::stable::contiguous(any_from), to = torch::stable::new_empty(from, shape);
  if (to.numel() > 0) {
    type == ScalarType::Double ? body(double{}, from, to) : body(float{}, from, to);
  }
  return to;
}

template <typename T>
const T* data(const Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

template <typename T>
T* new_data(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

// `Device` has guard(tensor) and the kernels of each map.
template <typename Device>
struct Ops {
  // input (N, C, H, W) -> (16, C, tiles)
  static Tensor input_forward(const Tensor& input, const Sizes& padding, const Sizes& dilation) {
    constexpr const char* op = "winograd_conv2d_input_forward";
    const Tiles tiles = tiles_of_inputs(op, size_of_planes(op, "input", input), padding, dilation);
    const auto guard = Device::guard(input);
    return map(op, "input", input, {kPlaces, input.size(1), tiles.padded()},
               [&](auto zero, const Tensor& from, const Tensor& to) {
                 Device::template to_matrices<false, decltype(zero)>(from, tiles, to);
               });
  }

  static Tensor input_backward(const Tensor& grad, const Sizes& size, const Sizes& padding,
                               const Sizes& dilation) {
    constexpr const char* op = "winograd_conv2d_input_backward";
    const Tiles tiles = tiles_of_inputs(op, size, padding, dilation);
    check_matrices(op, "grad", grad, tiles.padded());
    const auto guard = Device::guard(grad);
    return map(op, "grad", grad, {size[0], grad.size(1), size[1], size[2]},
               [&](auto zero, const Tensor& from, const Tensor& to) {
                 Device::template to_inputs<decltype(zero)>(from, tiles, to);
               });
  }

  // products (16, K, tiles) -> (N, K, OH, OW)
  static Tensor output_forward(const Tensor& products, const Sizes& size, const Sizes& dilation) {
    constexpr const char* op = "winograd_conv2d_output_forward";
    const Tiles tiles = tiles_of_outputs(op, size, dilation);
    check_matrices(op, "products", products, tiles.padded());
    const auto guard = Device::guard(products);
    return map(op, "products", products, {size[0], products.size(1), size[1], size[2]},
               [&](auto zero, const Tensor& from, const Tensor& to) {
                 Device::template to_outputs<decltype(zero)>(from, tiles, to);
               });
  }

  static Tensor output_backward(const Tensor& grad, const Sizes& dilation) {
    constexpr const char* op = "winograd_conv2d_output_backward";
    const Tiles tiles = tiles_of_outputs(op, size_of_planes(op, "grad", grad), dilation);
    const auto guard = Device::guard(grad);
    return map(op, "grad", grad, {kPlaces, grad.size(1), tiles.padded()},
               [&](auto zero, const Tensor& from, const Tensor& to) {
                 Device::template to_matrices<true, decltype(zero)>(from, tiles, to);
               });
  }

  // weight (K, C, 3, 3) -> (16, K, C)
  static Tensor weight_forward(const Tensor& weight) {
    constexpr const char* op = "winograd_conv2d_weight_forward";
    if (weight.dim() != 4 || weight.size(2) != 3 || weight.size(3) != 3) {
      fail(op, ": weight has shape ", shape_text(weight), ", expected (K, C, 3, 3)");
    }
    const auto guard = Device::guard(weight);
    return map(op, "weight", weight, {kPlaces, weight.size(0), weight.size(1)},
               [&](auto zero, const Tensor& from, const Tensor& to) {
                 Device::template map_weights<false, decltype(zero)>(from, from.numel() / 9, to);
               });
  }

  static Tensor weight_backward(const Tensor& grad) {
    constexpr const char* op = "winograd_conv2d_weight_backward";
    if (grad.dim() != 3 || grad.size(0) != kPlaces) {
      fail(op, ": grad has shape ", shape_text(grad), ", expected (16, K, C)");
    }
    const auto guard = Device::guard(grad);
    return map(op, "grad", grad, {grad.size(1), grad.size(2), 3, 3},
               [&](auto zero, const Tensor& from, const Tensor& to) {
                 Device::template map_weights<true, decltype(zero)>(from, from.numel() / kPlaces, to);
               });
  }
};

// The registrations of both devices.
#define DETECTOR_WINOGRAD_CONV2D_OPS(m, Device)                                        \
  m.impl("winograd_conv2d_input_forward", TORCH_BOX(&Ops<Device>::input_forward));     \
  m.impl("winograd_conv2d_input_backward", TORCH_BOX(&Ops<Device>::input_backward));   \
  m.impl("winograd_conv2d_output_forward", TORCH_BOX(&Ops<Device>::output_forward));   \
  m.impl("winograd_conv2d_output_backward", TORCH_BOX(&Ops<Device>::output_backward)); \
  m.impl("winograd_conv2d_weight_forward", TORCH_BOX(&Ops<Device>::weight_forward));   \
  m.impl("winograd_conv2d_weight_backward", TORCH_BOX(&Ops<Device>::weight_backward))

}  // namespace detector::winograd_conv2d

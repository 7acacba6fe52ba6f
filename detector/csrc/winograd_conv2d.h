// Convolution by Winograd's F(2 x 2, 3 x 3) (arXiv 1509.09308), for both devices: what its ops check and
// allocate. Two by two outputs of a 3 x 3 convolution take 16 multiplications instead of 36,
//
//   y = A^T [(G g G^T) * (B^T d B)] A,   g 3 x 3, d 4 x 4, * element by element,
//
// so that of all tiles and channels the convolution is 16 matrix products, one for each of the 16 places.
// The three maps (input, weight, output) are linear, and the gradient of each is its transpose.
//
// A dilated convolution is a plain one on each of its phases, the cells whose row and column leave the same
// remainders by the dilation.
#pragma once

#include <vector>

#include "memory.h"
#include "winograd_tiles.h"

namespace detector::winograd_conv2d {

using Sizes = std::vector<int64_t>;

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
  const Tensor from = as_contiguous(any_from), to = allocate(from, shape);
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

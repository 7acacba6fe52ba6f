// Quick GELU, x * sigmoid(1.702 x), and its slope, for both devices.
#pragma once

#include "layout.h"

namespace detector::quick_gelu {

constexpr double kScale = 1.702;

// Sigmoid is a device's own way to take the sigmoid.
template <typename A, typename Sigmoid>
C10_HOST_DEVICE inline A value(A x, const Sigmoid& sigmoid) {
  return x * sigmoid(A(kScale) * x);
}

// d value / dx = s (1 + z (1 - s)) with z = 1.702 x, s = sigmoid(z)
template <typename A, typename Sigmoid>
C10_HOST_DEVICE inline A slope(A x, const Sigmoid& sigmoid) {
  const A z = A(kScale) * x, s = sigmoid(z);
  return s * (A(1) + z * (A(1) - s));
}

inline void check_backward_arguments(const Tensor& grad, const Tensor& input) {
  constexpr const char* op = "quick_gelu_backward";
  check_same_shape(op, "grad", grad, input);
  check_dtype(op, "grad", grad, input.scalar_type());
  check_device(op, "grad", grad, "input", input);
}

}  // namespace detector::quick_gelu

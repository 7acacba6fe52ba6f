// Quick GELU, x * sigmoid(1.702 x), and its slope, for both devices.
#pragma once

#include <bit>
#include <cfloat>
#include <cstdint>

#include "layout.h"

namespace detector::quick_gelu {

constexpr double kScale = 1.702;

// Sigmoid is a device's own way to take the sigmoid.
template <typename A, typename Sigmoid>
C10_HOST_DEVICE inline A value(A x, const Sigmoid& sigmoid) {
  return x * sigmoid(A(kScale) * x);
}

// z, or the largest finite number where z is infinite; what becomes of a NaN does not matter. By its bits:
// the compiler makes no vectors of comparisons of floats, since those may trap.
C10_HOST_DEVICE inline float finite(float z) {
#ifdef __CUDA_ARCH__
  return fminf(fmaxf(z, -FLT_MAX), FLT_MAX);
#else
  constexpr int32_t most = 0x7f7fffff;
  const int32_t bits = std::bit_cast<int32_t>(z), magnitude = bits & 0x7fffffff;
  return std::bit_cast<float>((magnitude < most ? magnitude : most) | (bits ^ magnitude));
#endif
}

C10_HOST_DEVICE inline double finite(double z) { return z < -DBL_MAX ? -DBL_MAX : z > DBL_MAX ? DBL_MAX : z; }

// d value / dx = s (1 + z (1 - s)) with z = 1.702 x, s = sigmoid(z). Where z overflows, s or 1 - s is 0, and
// 0 times infinity would be NaN; with a finite z the slope is 1 or 0, its limits.
template <typename A, typename Sigmoid>
C10_HOST_DEVICE inline A slope(A x, const Sigmoid& sigmoid) {
  const A z = A(kScale) * x, s = sigmoid(z);
  return s * (A(1) + finite(z) * (A(1) - s));
}

inline void check_backward_arguments(const Tensor& grad, const Tensor& input) {
  check_argument("quick_gelu_backward", "grad", grad, input.sizes(), input.scalar_type(), "input", input);
}

}  // namespace detector::quick_gelu

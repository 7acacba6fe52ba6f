// sigmoid, tanh and elu in operations that the compiler vectorizes, which it does to no call of std::exp.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "exp.h"

namespace detector {

// e^x - 1 = 2^n (e^r - 1) + (2^n - 1): within 2 ulp, near 0 too. Past +-88 it stays at its value there; NaN
// stays NaN.
__attribute__((always_inline)) inline float expm1_of(float x) {
  const Exponential e = exponential_of(x, 88);
  const float power = power_of_two(e.n);  // n is -127 to 127
  return or_bits(power * e.less_one + (power - 1), e.nan);
}

struct VectorMath {
  __attribute__((always_inline)) static float sigmoid(float x) { return 1 / (2 + expm1_of(-x)); }

  __attribute__((always_inline)) static float tanh(float x) {
    const float t = expm1_of(-2 * std::fabs(x));
    return std::copysign(t / (2 + t), x);
  }

  __attribute__((always_inline)) static float elu(float x) {
    const int32_t bits = std::bit_cast<int32_t>(x), negative = bits >> 31;  // all bits or none
    return std::bit_cast<float>((std::bit_cast<int32_t>(expm1_of(x)) & negative) | (bits & ~negative));
  }

  // From elu(x): elu(x) + 1 = e^x below 0, where elu(x) is negative, and 1 above.
  __attribute__((always_inline)) static float elu_slope(float elu) {
    const int32_t bits = std::bit_cast<int32_t>(elu);
    return 1 + std::bit_cast<float>(bits & (bits >> 31));
  }

  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  static double tanh(double x) { return std::tanh(x); }
  static double elu(double x) { return x < 0 ? std::expm1(x) : x; }
  static double elu_slope(double elu) { return elu < 0 ? elu + 1 : 1; }
};

}  // namespace detector

// sigmoid, tanh and elu in operations that the compiler vectorises, which it does to no call of std::exp.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace detector {

// e^x - 1 = 2^n (e^r - 1) + (2^n - 1), with n the integer nearest to x / ln 2 and |r| <= ln 2 / 2: within 2
// ulp, near 0 too. Past +-88 it stays at its value there; NaN stays NaN. Comparisons are of integers: those
// of floats may trap, which forbids vectors.
__attribute__((always_inline)) inline float expm1_of(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr int32_t kLargest = std::bit_cast<int32_t>(88.0f);
  const int32_t bits = std::bit_cast<int32_t>(x), magnitude = bits & 0x7fffffff;
  const float inside =
      std::bit_cast<float>((magnitude < kLargest ? magnitude : kLargest) | (bits ^ magnitude));
  const float shifted = inside * 1.44269504f + kRound;
  const float n = shifted - kRound;
  // ln 2 in two parts; the first has 9 bits, so that n times it is exact
  const float r = (inside - n * 0.693359375f) + n * 2.12194440e-4f;
  // Taylor: the remainder r^8 / 8! is below 2^-27
  float sum = 1.0f / 5040;
  sum = sum * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  const float less_one = r + r * r * sum;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);  // -127 to 127
  const float power = std::bit_cast<float>((exponent + 127) << 23);
  const int32_t nan = -int32_t(magnitude > 0x7f800000);  // all bits or none
  return std::bit_cast<float>(std::bit_cast<int32_t>(power * less_one + (power - 1)) | nan);
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

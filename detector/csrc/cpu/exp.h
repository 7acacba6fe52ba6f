// exp in operations that the compiler vectorises, which it does to no call of std::exp.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace detector {

// Within 1 ulp of exp; 0 below, inf above, and NaN stays NaN. e^x = 2^n e^r with n the integer nearest to
// x / ln 2, |r| <= ln 2 / 2. Comparisons are of integers: floats may trap, and so forbid vectors.
__attribute__((always_inline)) inline float exp_of(float x) {
  constexpr float kRound = 12582912.0f;                        // 1.5 * 2^23: adding it rounds to an integer
  constexpr int32_t kFarOut = std::bit_cast<int32_t>(104.0f);  // e^104 is inf, e^-104 is 0
  const int32_t bits = std::bit_cast<int32_t>(x), magnitude = bits & 0x7fffffff;
  const float inside = std::bit_cast<float>((magnitude < kFarOut ? magnitude : kFarOut) | (bits ^ magnitude));
  const float shifted = inside * 1.44269504f + kRound;
  const float n = shifted - kRound;
  // ln 2 in two parts; the first has 9 bits, so that n times it is exact
  const float r = (inside - n * 0.693359375f) + n * 2.12194440e-4f;
  // the Taylor polynomial of e^r - 1 - r: its remainder r^8 / 8! is below 2^-27
  float sum = 1.0f / 5040;
  sum = sum * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  const float value = 1.0f + (r + r * r * sum);
  // n is -150 to 150, and 2^n need not be a float: half of it, twice
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const int32_t half = exponent >> 1;
  const float power = std::bit_cast<float>((half + 127) << 23);
  const float other = std::bit_cast<float>((exponent - half + 127) << 23);
  const int32_t nan = -int32_t(magnitude > 0x7f800000);  // all bits or none
  return std::bit_cast<float>(std::bit_cast<int32_t>(value * power * other) | nan);
}

inline double exp_of(double x) { return std::exp(x); }

}  // namespace detector

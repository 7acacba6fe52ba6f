// A value and the cell it is of, as one number.
#pragma once

#include <cstdint>
#include <type_traits>

namespace detector::roi_pool {

// The greater of two keys is of the greater value or, of equal values, of the earlier cell, which a tie tells
// in its upper 16 bits; the lower ones mean nothing: keys that are equal but there are of the same cell.
// Cells count from 1, and 0 is no cell. A float and its tie are the halves of a double, which a GPU compares
// in one instruction: in the upper half neither floats nor infinity look like a double's NaN. Negative
// doubles are the smaller for a greater lower half.
struct FloatKey {
  double bits;

  __device__ FloatKey() {}
  __device__ FloatKey(float value, uint32_t tie) { bits = __hiloint2double(__float_as_int(value), tie); }

  __device__ static FloatKey of(float value, int cell) {
    return {value, uint32_t(value < 0 ? cell : 0xffff - cell) << 16};
  }
  __device__ uint32_t tie() const { return __double2loint(bits); }
  __device__ float value() const { return __int_as_float(__double2hiint(bits)); }
  __device__ int cell() const { return (tie() ^ ~(__double2hiint(bits) >> 31)) >> 16; }
  __device__ bool operator>(const FloatKey& other) const { return bits > other.bits; }
};

struct DoubleKey {
  double of_value;
  uint32_t of_tie;

  __device__ DoubleKey() {}
  __device__ DoubleKey(double value, uint32_t tie) : of_value(value), of_tie(tie) {}

  __device__ static DoubleKey of(double value, int cell) { return {value, uint32_t(0xffff - cell) << 16}; }
  __device__ uint32_t tie() const { return of_tie; }
  __device__ double value() const { return of_value; }
  __device__ int cell() const { return ~of_tie >> 16; }
  __device__ bool operator>(const DoubleKey& other) const {
    return of_value > other.of_value || (of_value == other.of_value && of_tie > other.of_tie);
  }
};

template <typename A>
using Key = std::conditional_t<std::is_same_v<A, double>, DoubleKey, FloatKey>;

template <typename K>
__device__ K greater(const K& a, const K& b) {
  return a > b ? a : b;
}

}  // namespace detector::roi_pool

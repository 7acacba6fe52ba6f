// A value and the cell it is of, as one number.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../launch.cuh"
#include "../pack.cuh"

namespace detector::roi_pool {

// The greater of two keys is of the greater value or, of equal values, of the earlier cell, which a tie tells
// in its upper 16 bits; the lower ones mean nothing: keys that are equal but there are of the same cell.
// Cells count from 1, and 0 is no cell. A float and its tie are the halves of a double, which a GPU compares
// in one instruction: in the upper half neither floats nor infinity look like a double's NaN. Negative
// doubles are the smaller for a greater lower half.
struct Key {
  double bits;

  __device__ Key() {}
  __device__ Key(float value, uint32_t tie) { bits = __hiloint2double(__float_as_int(value), tie); }

  // Not of minus zero.
  __device__ static Key of(float value, int cell) {
    const uint32_t negative = __float_as_int(value) >> 31;  // in all bits
    return {value, uint32_t(cell) << 16 ^ (~negative & 0xffff0000u)};
  }
  __device__ uint32_t tie() const { return __double2loint(bits); }
  __device__ float value() const { return __int_as_float(__double2hiint(bits)); }
  __device__ int cell() const {
    const int negative = __double2hiint(bits) >> 31;
    uint32_t equal;  // bits of tie and sign, in the one instruction that the compiler makes two of
    asm("lop3.b32 %0, %1, %2, 0, 0xc3;" : "=r"(equal) : "r"(tie()), "r"(negative));
    return equal >> 16;
  }
  __device__ bool operator>(const Key& other) const { return bits > other.bits; }
};

__device__ inline Key greater(const Key& a, const Key& b) { return a > b ? a : b; }

// The keys of V channels in each of some places in shared memory: values, and ties of which a word holds two.
template <typename T, int V>
class StoredKeys {
 public:
  using Ties = Pack<std::conditional_t<V == 1, uint16_t, uint32_t>, (V + 1) / 2>;
  static constexpr int64_t kBytes = sizeof(Pack<T, V>) + sizeof(Ties);  // of a place

  __device__ StoredKeys(char* shared, int places)
      : values_(reinterpret_cast<Pack<T, V>*>(shared)), ties_(reinterpret_cast<Ties*>(values_ + places)) {}

  __device__ void load(int i, Key (&key)[V]) const {
    const Pack<T, V> values = values_[i];
    const Ties ties = ties_[i];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const uint32_t word = ties.values[v / 2];
      key[v] = {float(values.values[v]), v % 2 == 0 ? word << 16 : word};
    }
  }

  __device__ void store(int i, const Key (&key)[V]) {
    Pack<T, V> values;
    Ties ties;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      values.values[v] = T(key[v].value());
      const uint32_t tie = key[v].tie();
      ties.values[v / 2] = v % 2 == 0 ? tie >> 16 : __byte_perm(ties.values[v / 2], tie, 0x7610);
    }
    values_[i] = values;
    ties_[i] = ties;
  }

 private:
  Pack<T, V>* values_;
  Ties* ties_;
};

}  // namespace detector::roi_pool

// Sums that are the same in whatever order their terms come: of integers of 64 bits, of 128 for doubles.
#pragma once

#include "../../roi_pool_plan.h"
#include "../launch.cuh"
#include "../reduce.cuh"

namespace detector::roi_pool {

// A sum for each of some cells, in a block's dynamic shared memory, as a multiple of a power of two.
//
// Terms are rounded to multiples of 2^(exponent - bits), where 2^exponent is above all terms so far and
// `bits`, 61 less the binary logarithm of the number of terms, keeps the sums below 2^62: of 100,000 terms
// each keeps the 45 binary places below the largest, where a float has 24. Of doubles, which have 53, it
// keeps 109. When a larger term comes, the sums are rounded to multiples of a larger unit; the terms of a
// call come together, so that this depends on no order either. Shared memory adds 32 bits at a time: each
// word tells whether it carries.
template <typename A>
class ExactSums {
 public:
  using Integer = std::conditional_t<std::is_same_v<A, double>, __int128, int64_t>;
  static constexpr int kWords = sizeof(Integer) / sizeof(uint32_t);
  static_assert(kWords == words_of_sum(sizeof(A)));

  // All threads call this and add().
  __device__ ExactSums(int cells, int64_t terms)
      : cells_(cells + kWarp), bits_(32 * kWords - 3 - ilogb(double(max(terms, int64_t(1))))) {
    for (int i = threadIdx.x; i < kWords * cells_ + (cells_ + 15) / 16; i += blockDim.x) {
      words()[i] = 0;
    }
    if (threadIdx.x == 0) {
      above_all() = exponent_;
    }
    __syncthreads();
  }

  // A cell for what belongs to none; each lane has its own, so that they do not wait for each other.
  __device__ int nowhere() const { return cells_ - kWarp + lane_of_thread(); }

  // Adds value[k] to the sum of cell[k].
  template <int K>
  __device__ void add(int (&cell)[K], const A (&value)[K]) {
    bool exceeds = false;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      exceeds = exceeds || !(abs(value[k]) < limit_);
    }
    if (__syncthreads_or(exceeds)) {
      int above = exponent_;
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (isfinite(value[k])) {
          above = max(above, exponent_above(value[k]));
        } else {
          mark(cell[k], value[k]);
          cell[k] = nowhere();
        }
      }
      raise(above);
    }
    Integer term[K];
    uint32_t carry[K] = {};
#pragma unroll
    for (int k = 0; k < K; ++k) {
      term[k] = rounded(double(value[k]) * scale_, Integer{});
    }
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
#pragma unroll
      for (int k = 0; k < K; ++k) {
        const uint32_t own = uint32_t(term[k] >> 32 * word), added = own + carry[k];
        carry[k] = added < own;
        if (word == 0 || added != 0) {
          const uint32_t old = atomicAdd(words() + word * cells_ + cell[k], added);
          carry[k] |= old + added < old;
        }
      }
    }
  }

  // When all threads have added and met.
  __device__ A operator[](int cell) const {
    const uint32_t mark = words()[kWords * cells_ + cell / 16] >> (cell % 16 * 2) & 3;
    return mark == 0   ? A(as_double(sum(cell)) / scale_)
           : mark == 1 ? A(INFINITY)
           : mark == 2 ? -A(INFINITY)
                       : A(NAN);
  }

 private:
  static constexpr double kUpper = 18446744073709551616.0;  // 2^64, the unit of the upper half

  // The lowest words, the next ones, ..., then two bits a cell: 1 for infinity, 2 for minus infinity, 3 for
  // both.
  __device__ static uint32_t* words() {
    extern __shared__ uint32_t exact_sums[];
    return exact_sums;
  }

  __device__ static int& above_all() {
    __shared__ int exponent;
    return exponent;
  }

  __device__ Integer sum(int cell) const {
    Integer sum = int32_t(words()[(kWords - 1) * cells_ + cell]);
    for (int word = kWords - 2; word >= 0; --word) {
      sum = sum << 32 | words()[word * cells_ + cell];
    }
    return sum;
  }

  __device__ static int64_t rounded(double value, int64_t) { return __double2ll_rn(value); }
  __device__ static __int128 rounded(double value, __int128) {  // both halves are exact as doubles
    const double magnitude = abs(value), high = trunc(magnitude / kUpper);
    const auto integer = static_cast<unsigned __int128>(__double2ull_rn(high)) << 64 |
                         __double2ull_rn(magnitude - high * kUpper);
    return value < 0 ? -__int128(integer) : __int128(integer);
  }

  __device__ static double as_double(int64_t sum) { return double(sum); }
  __device__ static double as_double(__int128 sum) {
    const auto magnitude = static_cast<unsigned __int128>(sum < 0 ? -sum : sum);
    const double value = double(uint64_t(magnitude >> 64)) * kUpper + double(uint64_t(magnitude));
    return sum < 0 ? -value : value;
  }

  // 2^this is greater; from the exponent's bits.
  __device__ static int exponent_above(A value) { return (__double2hiint(abs(double(value))) >> 20) - 1022; }

  __device__ void mark(int cell, A value) const {
    const uint32_t mark = isnan(value) ? 3 : value > 0 ? 1 : 2;
    atomicOr(words() + kWords * cells_ + cell / 16, mark << (cell % 16 * 2));
  }

  // Makes the exponent the highest of the threads'.
  __device__ void raise(int above) {
    above = warp_reduce(above, Max{});
    if (lane_of_thread() == 0) {
      atomicMax(&above_all(), above);
    }
    __syncthreads();
    const int rise = min(above_all() - exponent_, 32 * kWords - 1);
    exponent_ = above_all();
    limit_ = A(scalbn(1.0, exponent_));
    scale_ = scalbn(1.0, min(bits_ - exponent_, 1023));
    for (int i = threadIdx.x; rise > 0 && i < cells_; i += blockDim.x) {
      const Integer raised = ((sum(i) >> (rise - 1)) + 1) >> 1;
#pragma unroll
      for (int word = 0; word < kWords; ++word) {
        words()[word * cells_ + i] = uint32_t(raised >> 32 * word);
      }
    }
    __syncthreads();
  }

  int cells_;  // with those for nowhere
  int bits_, exponent_ = -1022;
  A limit_ = std::numeric_limits<A>::denorm_min();  // above it terms need a higher exponent
  double scale_ = 1;
};

}  // namespace detector::roi_pool

// Sums that are the same in whatever order their terms come: of 64-bit integers.
#pragma once

#include "../launch.cuh"
#include "../reduce.cuh"

namespace detector::roi_pool {

// A sum for each of some cells, in a block's dynamic shared memory, as a multiple of a power of two.
//
// Terms are rounded to multiples of 2^(exponent - bits), where 2^exponent is above all terms so far and
// `bits`, 61 less the binary logarithm of the number of terms, keeps the sums below 2^62: of 100,000 terms
// each keeps the 45 binary places below the largest, where a float has 24. When a larger term comes, the
// sums are rounded to multiples of a larger unit; the terms of a call come together, so that this depends on
// no order either. Shared memory adds 32 bits at a time: the lower half tells whether it carries.
template <typename A>
class ExactSums {
 public:
  static int64_t bytes(int64_t cells) {
    return (2 * (cells + kWarp) + ceil_div(cells + kWarp, 16)) * int64_t(sizeof(uint32_t));
  }
  static int64_t most_cells(int64_t bytes) { return (bytes - 4) * 4 / 33 - kWarp; }

  // All threads call this and add().
  __device__ ExactSums(int cells, int64_t terms)
      : cells_(cells + kWarp), bits_(61 - ilogb(double(max(terms, int64_t(1))))) {
    for (int i = threadIdx.x; i < 2 * cells_ + (cells_ + 15) / 16; i += blockDim.x) {
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
    uint32_t old[K];
    uint64_t term[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      term[k] = __double2ll_rn(double(value[k]) * scale_);
      old[k] = atomicAdd(words() + cell[k], uint32_t(term[k]));
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const uint32_t carry = old[k] + uint32_t(term[k]) < old[k], high = uint32_t(term[k] >> 32) + carry;
      if (high != 0) {
        atomicAdd(words() + cells_ + cell[k], high);
      }
    }
  }

  // When all threads have added and met.
  __device__ A operator[](int cell) const {
    const uint32_t mark = words()[2 * cells_ + cell / 16] >> (cell % 16 * 2) & 3;
    return mark == 0   ? A(double(sum(cell)) / scale_)
           : mark == 1 ? A(INFINITY)
           : mark == 2 ? -A(INFINITY)
                       : A(NAN);
  }

 private:
  // The lower halves, the upper ones, then two bits a cell: 1 for infinity, 2 for minus infinity, 3 for both.
  __device__ static uint32_t* words() {
    extern __shared__ uint32_t exact_sums[];
    return exact_sums;
  }

  __device__ static int& above_all() {
    __shared__ int exponent;
    return exponent;
  }

  __device__ int64_t sum(int cell) const {
    return int64_t(uint64_t(words()[cells_ + cell]) << 32 | words()[cell]);
  }

  // 2^this is greater; from the exponent's bits.
  __device__ static int exponent_above(A value) { return (__double2hiint(abs(double(value))) >> 20) - 1022; }

  __device__ void mark(int cell, A value) const {
    const uint32_t mark = isnan(value) ? 3 : value > 0 ? 1 : 2;
    atomicOr(words() + 2 * cells_ + cell / 16, mark << (cell % 16 * 2));
  }

  // Makes the exponent the highest of the threads'.
  __device__ void raise(int above) {
    above = warp_reduce(above, Max{});
    if (lane_of_thread() == 0) {
      atomicMax(&above_all(), above);
    }
    __syncthreads();
    const int rise = min(above_all() - exponent_, 63);
    exponent_ = above_all();
    limit_ = A(scalbn(1.0, exponent_));
    scale_ = scalbn(1.0, min(bits_ - exponent_, 1023));
    for (int i = threadIdx.x; rise > 0 && i < cells_; i += blockDim.x) {
      const uint64_t rounded = ((sum(i) >> (rise - 1)) + 1) >> 1;
      words()[i] = uint32_t(rounded);
      words()[cells_ + i] = uint32_t(rounded >> 32);
    }
    __syncthreads();
  }

  int cells_;  // with those for nowhere
  int bits_, exponent_ = -1022;
  A limit_ = std::numeric_limits<A>::denorm_min();  // above it terms need a higher exponent
  double scale_ = 1;
};

}  // namespace detector::roi_pool

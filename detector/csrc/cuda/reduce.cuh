// Reductions in a fixed order, so that the same inputs give the same bits.
#pragma once

#include <cstdint>

namespace detector {

constexpr int kWarp = 32;

__device__ inline int lane_of_thread() { return threadIdx.x % kWarp; }
__device__ inline int warp_of_thread() { return threadIdx.x / kWarp; }

struct Sum {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

struct Max {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

// Every lane of a full warp gets the result; Op commutes, so all lanes get the same bits.
template <typename Op, typename T>
__device__ T warp_reduce(T value, Op op) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = op(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  return value;
}

// Every thread of a block of kWarp full warps (1024 threads) gets the result.
template <typename Op, typename T>
__device__ T block_reduce(T value, Op op) {
  __shared__ T warp_results[kWarp];
  value = warp_reduce(value, op);
  if (lane_of_thread() == 0) {
    warp_results[warp_of_thread()] = value;
  }
  __syncthreads();
  const T result = warp_reduce(warp_results[lane_of_thread()], op);
  __syncthreads();  // warp_results is free again
  return result;
}

}  // namespace detector

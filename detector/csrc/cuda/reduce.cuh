// Reductions in a fixed order, so that the same inputs give the same bits.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../plan.h"

namespace detector {

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

struct Min {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

// Every lane of a full warp gets the result; Op commutes, so all lanes get the same bits. GPUs from compute
// capability 8.0 on have an instruction for integers of 32 bits.
template <typename Op, typename T>
__device__ T warp_reduce(T value, Op op) {
#if __CUDA_ARCH__ >= 800
  constexpr bool kInstruction = std::is_integral_v<T> && sizeof(T) == 4;
#else
  constexpr bool kInstruction = false;
#endif
  constexpr unsigned kLanes = 0xffffffffu;
  if constexpr (kInstruction && std::is_same_v<Op, Sum>) {
    return __reduce_add_sync(kLanes, value);
  } else if constexpr (kInstruction && std::is_same_v<Op, Max>) {
    return __reduce_max_sync(kLanes, value);
  } else if constexpr (kInstruction && std::is_same_v<Op, Min>) {
    return __reduce_min_sync(kLanes, value);
  } else {
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      value = op(value, __shfl_xor_sync(kLanes, value, offset));
    }
    return value;
  }
}

// The sum of the values of the lanes up to this one.
template <typename T>
__device__ T warp_scan(T value) {
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const T before = __shfl_up_sync(0xffffffffu, value, offset);
    value += lane_of_thread() >= offset ? before : 0;
  }
  return value;
}

// Sums of the values of the threads before this one, and of all, by a block of kWarp full warps (1024
// threads).
template <typename T>
struct Scan {
  T before, all;
};

template <typename T>
__device__ Scan<T> block_scan(T value) {
  __shared__ T warp_sums[kWarp];
  const T through = warp_scan(value);
  if (lane_of_thread() == kWarp - 1) {
    warp_sums[warp_of_thread()] = through;
  }
  __syncthreads();
  const T through_warps = warp_scan(warp_sums[lane_of_thread()]);
  const T through_own = __shfl_sync(0xffffffffu, through_warps, warp_of_thread());
  const T own = __shfl_sync(0xffffffffu, through, kWarp - 1);
  const T all = __shfl_sync(0xffffffffu, through_warps, kWarp - 1);
  __syncthreads();  // warp_sums is free again
  return {through_own - own + through - value, all};
}

// Every thread of such a block gets the result.
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

// What the threads of a block do together: the best of all its values, and sums of those before each.
#pragma once

#include <cstring>

#include "batch.cuh"

namespace detector::proposal_clusters {

constexpr int kWarps = 32;
constexpr int kThreads = kWarps * kWarp;

// Every lane gets the best; better(a, b) picks one of two by a total order.
template <typename T>
__device__ inline T warp_best(T value) {
  constexpr int words = sizeof(T) / sizeof(uint32_t);
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    uint32_t word[words];
    memcpy(word, &value, sizeof(T));
    for (int w = 0; w < words; ++w) {
      word[w] = __shfl_xor_sync(kAllLanes, word[w], offset);
    }
    T other;
    memcpy(&other, word, sizeof(T));
    value = better(value, other);
  }
  return value;
}

template <typename T>
__device__ inline T block_best(T value) {
  __shared__ T warp_values[kWarps];
  value = warp_best(value);
  if (lane_of_thread() == 0) {
    warp_values[warp_of_thread()] = value;
  }
  __syncthreads();
  value = warp_best(warp_values[lane_of_thread() % kWarps]);
  __syncthreads();  // warp_values is free again
  return value;
}

struct Scan {
  int64_t before, all;  // sums of the threads before this one, and of all
};

__device__ inline Scan block_scan(int64_t value) {
  __shared__ int64_t warp_values[kWarps];
  const int64_t inclusive = warp_scan(value);
  if (lane_of_thread() == kWarp - 1) {
    warp_values[warp_of_thread()] = inclusive;
  }
  __syncthreads();
  const int64_t warps = warp_scan(lane_of_thread() < kWarps ? warp_values[lane_of_thread()] : int64_t(0));
  const int64_t through_this_warp = __shfl_sync(kAllLanes, warps, warp_of_thread());
  const int64_t all = __shfl_sync(kAllLanes, warps, kWarp - 1);
  const int64_t this_warp = __shfl_sync(kAllLanes, inclusive, kWarp - 1);
  __syncthreads();  // warp_values is free again
  return {through_this_warp - this_warp + inclusive - value, all};
}

}  // namespace detector::proposal_clusters

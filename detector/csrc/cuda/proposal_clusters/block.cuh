// What the threads of a block do together: the best of all their values.
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

}  // namespace detector::proposal_clusters

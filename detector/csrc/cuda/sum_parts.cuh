// The sum of what several blocks have found, in a fixed order.
#pragma once

#include "launch.cuh"

namespace detector {

constexpr int kSumThreads = 128;

template <typename From, typename To>
__global__ void __launch_bounds__(kSumThreads)
    sum_parts_kernel(const From* parts, int number, int64_t size, To* sum) {
  for (int64_t i = int64_t(blockIdx.x) * kSumThreads + threadIdx.x; i < size;
       i += int64_t(gridDim.x) * kSumThreads) {
    From total = parts[i];
#pragma unroll 4
    for (int part = 1; part < number; ++part) {
      total += parts[part * size + i];
    }
    sum[i] = To(total);
  }
}

// (P, size) to (size,), in the order of the parts.
template <typename From, typename To>
void sum_parts(const From* parts, int number, int64_t size, To* sum, cudaStream_t stream) {
  if (size > 0) {
    launch_kernel(sum_parts_kernel<From, To>, blocks_for(size, kSumThreads), kSumThreads, 0, stream, parts,
                  number, size, sum);
  }
}

}  // namespace detector

// The blocks that share the work on one image and stream: a thread block cluster where the GPU has them
// (compute capability 9), else one block.
#pragma once

#include <cooperative_groups.h>

#include "batch.cuh"

namespace detector::proposal_clusters {

constexpr int kMostBlocks = 8;  // of a team: as many as every GPU that has clusters can have

struct Team {
  int32_t rank, size;  // of this block

  // All threads of all blocks wait for each other, and see what the others have written.
  __device__ void sync() const {
#if __CUDA_ARCH__ >= 900
    if (size > 1) {
      cooperative_groups::this_cluster().sync();
      return;
    }
#endif
    __syncthreads();
  }

  // Where another block has what this one has at `shared`, a place in its shared memory.
  template <typename T>
  __device__ T* in_block(int32_t other, T* shared) const {
#if __CUDA_ARCH__ >= 900
    if (other != rank) {
      return cooperative_groups::this_cluster().map_shared_rank(shared, other);
    }
#endif
    return shared;
  }
};

// The best of the values of all blocks, for all threads; better(a, b) picks one of two by a total order.
template <typename T>
__device__ inline T team_best(const Team& team, T value) {
  __shared__ T block_values[kMostBlocks];
  value = block_best(value);
  if (threadIdx.x < team.size) {
    *team.in_block(threadIdx.x, block_values + team.rank) = value;
  }
  team.sync();
  for (int32_t other = 0; other < team.size; ++other) {
    value = better(value, block_values[other]);
  }
  return value;  // block_values is free again when the team has met once more
}

}  // namespace detector::proposal_clusters

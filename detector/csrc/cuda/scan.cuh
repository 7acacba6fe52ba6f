// Prefix sums of a block, by CUB.
#pragma once

#include <cub/block/block_scan.cuh>

#include "../plan.h"

namespace detector {

// Sums of the values of the threads before this one, and of all, by a block of kWarp full warps (1024
// threads).
template <typename T>
struct Scan {
  T before, all;
};

template <typename T>
__device__ Scan<T> block_scan(T value) {
  using BlockScan = cub::BlockScan<T, kWarp * kWarp, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ typename BlockScan::TempStorage storage;
  Scan<T> scan;
  BlockScan(storage).ExclusiveSum(value, scan.before, scan.all);
  __syncthreads();  // storage is free again
  return scan;
}

}  // namespace detector

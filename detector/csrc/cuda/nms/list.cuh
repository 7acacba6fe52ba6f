// The list of the boxes that are kept, of the flags that nms_chunk_kernel writes: nms_list_kernel.
#pragma once

#include "chunk.cuh"

namespace detector::nms {

constexpr int kListThreads = kWarp * kWarp;
constexpr int kFlagsAThread = 4;
constexpr int kFlagsALoad = 16;
constexpr int kFlagsABlock = kListThreads * kFlagsAThread;

// A block lists the kept boxes of its stretch of ranks, after those before, which it counts for itself: the
// flags are few bytes, and no block waits for another. `flags` (size,), padded to 16 bytes, are 0 or 1.
__global__ void __launch_bounds__(kListThreads)
    nms_list_kernel(const uint8_t* flags, const uint32_t* indices, int64_t size,
                    const unsigned long long* count, Answer answer) {
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *answer.count = *count;
  }
  const int64_t stretch = int64_t(blockIdx.x) * kFlagsABlock;
  int64_t before = 0;
  for (int64_t i = threadIdx.x * kFlagsALoad; i < stretch; i += kListThreads * kFlagsALoad) {
    const uint4 words = *reinterpret_cast<const uint4*>(flags + i);
    before += __popc(words.x) + __popc(words.y) + __popc(words.z) + __popc(words.w);
  }
  before = block_reduce(before, Sum{});

  const int64_t begin = stretch + threadIdx.x * kFlagsAThread;
  uint32_t own = 0;  // a byte for each flag
  if (begin < size) {
    const int past = max(begin + kFlagsAThread - size, int64_t(0));
    own = *reinterpret_cast<const uint32_t*>(flags + begin) & (0xffffffffu >> 8 * past);
  }
  int64_t* next = answer.list + before + block_scan(__popc(own)).before;
  for (; own != 0; own &= own - 1) {
    *next++ = indices[begin + __ffs(own) / 8];
  }
}

}  // namespace detector::nms

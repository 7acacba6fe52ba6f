// Values on their way to a warp of the backward pass, in shared memory.
#pragma once

#include "visits.cuh"

namespace detector::roi_pool {

constexpr int kAhead = 8;  // visits whose values are on their way

// Copies that the thread does not wait for until the group that they are in must be there. GPUs older than
// Ampere wait at once.
template <int kBytes>
__device__ void copy_async(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(unsigned(__cvta_generic_to_shared(shared))),
               "l"(global), "n"(kBytes)
               : "memory");
#else
  memcpy(shared, global, kBytes);
#endif
}

__device__ inline void end_group() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int kPending>
__device__ void await_groups() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

// What is on its way to a warp. Half types come as the 4 bytes that hold them.
template <typename T>
struct Ring {
  static constexpr int kWord = sizeof(T) < 4 ? 4 : sizeof(T);

  Visit visits[2 * kAhead];
  alignas(kWord) char values[kAhead][2][kWarp][kWord];
  int cells[kAhead][2][kWarp];

  __device__ static uintptr_t place(const T* value) { return reinterpret_cast<uintptr_t>(value); }

  __device__ void copy(int slot, int k, const T* value, const int32_t* cell) {
    copy_async<kWord>(values[slot][k][lane_of_thread()],
                      reinterpret_cast<const void*>(place(value) & ~uintptr_t(kWord - 1)));
    copy_async<sizeof(int)>(&cells[slot][k][lane_of_thread()], cell);
  }

  __device__ Accumulate<T> value(int slot, int k, const T* from) const {
    const char* word = values[slot][k][lane_of_thread()];
    return Accumulate<T>(*reinterpret_cast<const T*>(word + (place(from) & (kWord - 1))));
  }
};

}  // namespace detector::roi_pool

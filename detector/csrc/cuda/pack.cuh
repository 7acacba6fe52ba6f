// Sixteen bytes at a time: the widest load and store of a thread.
#pragma once

#include <cstdint>

namespace detector {

template <typename T, int size>
struct alignas(sizeof(T) * size) Pack {
  T values[size];
};

template <typename T>
constexpr int kPackSize = 16 / sizeof(T);

inline bool fits_packs(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

template <int size, typename T>
__device__ Pack<T, size> load_pack(const T* data) {
  return *reinterpret_cast<const Pack<T, size>*>(data);
}

template <int size, typename T>
__device__ void store_pack(T* data, const Pack<T, size>& pack) {
  *reinterpret_cast<Pack<T, size>*>(data) = pack;
}

}  // namespace detector

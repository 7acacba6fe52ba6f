// Packs of V elements that one instruction loads or stores, 16 bytes at most.
#pragma once

#include <torch/headeronly/macros/Macros.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace detector {

template <typename T, int V>
struct alignas(sizeof(T) * V) Pack {
  T values[V];
};

// Elements in sixteen bytes, the widest load and store of a thread.
template <typename T>
constexpr int kPackSize = 16 / sizeof(T);

// Whether packs of so many bytes can be read from there.
C10_HOST_DEVICE inline bool is_aligned(const void* data, size_t bytes = 16) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

// The register type that a pack travels in.
template <int kBytes>
using Word = std::conditional_t<
    kBytes == 16, uint4,
    std::conditional_t<kBytes == 8, uint2, std::conditional_t<kBytes == 4, unsigned, unsigned short>>>;

template <int V, typename T>
__device__ Pack<T, V> load_pack(const T* data) {
  return *reinterpret_cast<const Pack<T, V>*>(data);
}

template <typename T, int V>
__device__ void store_pack(T* data, const Pack<T, V>& pack) {
  *reinterpret_cast<Pack<T, V>*>(data) = pack;
}

// Data that this kernel does not write, so that a load may move past stores.
template <int V, typename T>
__device__ Pack<T, V> load_once(const T* data) {
  using W = Word<sizeof(T) * V>;
  const W word = __ldg(reinterpret_cast<const W*>(data));
  Pack<T, V> pack;
  memcpy(&pack, &word, sizeof(word));
  return pack;
}

// Evicted from the cache first.
template <typename T, int V>
__device__ void store_once(T* data, const Pack<T, V>& pack) {
  using W = Word<sizeof(T) * V>;
  W word;
  memcpy(&word, &pack, sizeof(word));
  __stcs(reinterpret_cast<W*>(data), word);
}

}  // namespace detector

// Planes that do not come in whole vectors, as those of 7 x 7 or 14 x 14: a block takes several of them, one
// stretch of memory, through shared memory, so that global memory sees whole vectors.
#pragma once

#include "strips.cuh"

namespace detector::depthwise_conv2d {

constexpr int kMostStaged = 48 << 10;  // bytes, which need no permission

// Elements that `data` lies behind a multiple of 16 bytes. A copy in shared memory lies as far behind one.
template <typename T>
__device__ int misalignment(const T* data) {
  return int(reinterpret_cast<uintptr_t>(data) % 16 / sizeof(T));
}

// By all threads of a block.
template <typename T>
__device__ void copy_stretch(const T* from, int count, T* to) {
  constexpr int V = 16 / sizeof(T);
  const int head = min(count, (V - misalignment(from)) % V), vectors = (count - head) / V;
  const auto* source = reinterpret_cast<const uint4*>(from + head);
  auto* target = reinterpret_cast<uint4*>(to + head);
#pragma unroll 4
  for (int v = threadIdx.x; v < vectors; v += blockDim.x) {
    target[v] = source[v];
  }
  const int rest = count - vectors * V;  // the head and what follows the vectors
  for (int i = threadIdx.x; i < rest; i += blockDim.x) {
    const int at = i < head ? i : i + vectors * V;
    to[at] = from[at];
  }
}

// How many whole planes a block of `threads` takes, in strips of their own and with so many elements at once
// in shared memory; 0 where the strips read global memory.
inline int staged_planes(const Strips& strips, int threads, int64_t elements, size_t size) {
  const int planes = threads / int(std::min<int64_t>(strips.strips_per_plane(), threads + 1));
  return planes * elements * int64_t(size) + 64 <= kMostStaged ? planes : 0;
}

inline int staged_bytes(int planes, int64_t elements, size_t size) {
  return planes > 0 ? int(planes * elements * int64_t(size)) + 64 : 0;
}

// What a launch of strips takes from one tensor to another; `multiplier` planes of the target read the same
// plane of the source.
struct Staging {
  Strips strips;
  unsigned num_strips, multiplier;
  int source_plane_size, target_plane_size;  // elements of a plane
  int planes;                                // of a block, or 0
};

// Calls body(place, its plane of the source, its plane of the target) for the strip of the thread.
template <bool kStaged, typename T, typename Body>
__device__ void with_strip(const Staging& s, const T* source, T* target, const Body& body) {
  const bool staged = kStaged && s.planes > 0;
  const unsigned strips_per_block = staged ? s.planes * s.strips.strips_per_plane() : blockDim.x;
  const unsigned strip = blockIdx.x * strips_per_block + threadIdx.x;
  const auto at = s.strips.place(strip);
  const bool has_strip = threadIdx.x < strips_per_block && strip < s.num_strips;
  const T* from = source + int64_t(at.plane / s.multiplier) * s.source_plane_size;
  T* to = target + int64_t(at.plane) * s.target_plane_size;
  const unsigned first = blockIdx.x * s.planes;
  const int planes = min(s.planes, int(s.num_strips / s.strips.strips_per_plane() - first));
  T* staged_target = nullptr;
  if (staged) {
    extern __shared__ uint4 shared[];
    const unsigned first_source = first / s.multiplier;
    const int count = int((first + planes - 1) / s.multiplier - first_source + 1) * s.source_plane_size;
    const T* const global = source + int64_t(first_source) * s.source_plane_size;
    T* const copy = reinterpret_cast<T*>(shared) + misalignment(global);
    copy_stretch(global, count, copy);
    T* const behind =
        reinterpret_cast<T*>(shared + (s.planes * s.source_plane_size * int(sizeof(T)) + 31) / 16);
    staged_target = behind + misalignment(target + int64_t(first) * s.target_plane_size);
    from = copy + int(at.plane / s.multiplier - first_source) * s.source_plane_size;
    to = staged_target + int(at.plane - first) * s.target_plane_size;
    __syncthreads();
  }
  if (has_strip) {
    body(at, from, to);
  }
  if (staged) {
    __syncthreads();
    copy_stretch(staged_target, planes * s.target_plane_size, target + int64_t(first) * s.target_plane_size);
  }
}

}  // namespace detector::depthwise_conv2d

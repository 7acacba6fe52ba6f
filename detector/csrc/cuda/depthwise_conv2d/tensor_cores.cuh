// What the tensor-core kernels share: tiles of planes in shared memory, the next image's on its way while
// this one's are worked on, and the matrix instructions. They take half types, stride 1, kernels of 3 to 7
// square with padding to the same size, and rows of whole 16-byte vectors.
#pragma once

#include "../reduce.cuh"
#include "channels_last/walk.cuh"
#include "strips.cuh"

namespace detector::depthwise_conv2d {

// Where the block of a thread begins.
__device__ inline int first_row(const TileSizes& s) {
  return int(blockIdx.y) % s.bands * s.warps * kTileRows;
}
__device__ inline int first_column(const TileSizes& s) { return int(blockIdx.y) / s.bands * s.columns; }

// Calls body(row, vector) for the vectors of this thread, of `rows` rows of `vectors`. It does not divide:
// for each image that took longer than the copies.
template <typename Body>
__device__ void for_each_vector(int thread, int threads, int rows, int vectors, const Body& body) {
  const int bits = 32 - __clz(vectors - 1), vector = thread & ((1 << bits) - 1);
  if (vector < vectors) {
    for (int r = thread >> bits; r < rows; r += threads >> bits) {
      body(r, vector);
    }
  }
}

// Rows first_row ... and columns first_column ... of planes, a multiple of kVector. What is outside of the
// plane is the same for all: it is zeroed once.
struct StagedTile {
  int height, width, first_row, first_column, rows, vectors, pitch;

  template <typename T>
  __device__ void clear(T* tile) const {
    for (int e = threadIdx.x; e < rows * pitch / kVector; e += blockDim.x) {
      reinterpret_cast<uint4*>(tile)[e] = uint4{};
    }
  }

  template <typename T>
  __device__ void fetch(const T* plane, T* tile) const {
    const int top = max(-first_row, 0), bottom = min(rows, height - first_row);
    const int left = max(-first_column / kVector, 0);
    const int right = min(vectors, (width - first_column) / kVector);
    plane += (first_row + top) * width + (first_column + left * kVector);
    tile += top * pitch + left * kVector;
    for_each_vector(threadIdx.x, blockDim.x, bottom - top, right - left, [&](int r, int v) {
      channels_last::copy_async(tile + (r * pitch + v * kVector), plane + (r * width + v * kVector), true);
    });
  }
};

// Two sums as two elements.
template <typename T>
__device__ uint32_t rounded_pair(float first, float second) {
  uint32_t pair = 0;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, Half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  }
#endif
  return pair;
}

// Four matrices of 8 x 8; lanes 8 i ... 8 i + 7 give the addresses of the rows of matrix i.
template <bool kTransposed>
__device__ void load_matrices(uint32_t (&to)[4], const void* row) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  const uint32_t address = uint32_t(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  }
#endif
}

// Two 8 x 8 matrices below each other: lane l gives the address of row l % 16.
template <bool kTransposed>
__device__ void load_matrices(uint32_t& upper, uint32_t& lower, const void* row) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  const uint32_t address = uint32_t(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(upper), "=r"(lower)
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(upper), "=r"(lower)
                 : "r"(address)
                 : "memory");
  }
#endif
}

// sums (16, 8) = before (16, 8) + a (16, 16) b (16, 8). Lane l holds rows l / 4 and l / 4 + 8, columns l % 4
// * 2 and the next.
template <typename T>
__device__ void multiply_add(float (&sums)[4], const float (&before)[4], const uint32_t (&a)[4],
                             const uint32_t (&b)[2]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, Half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%11,%12,%13};"
        : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(before[0]), "f"(before[1]),
          "f"(before[2]), "f"(before[3]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%11,%12,%13};"
        : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(before[0]), "f"(before[1]),
          "f"(before[2]), "f"(before[3]));
  }
#endif
}

}  // namespace detector::depthwise_conv2d

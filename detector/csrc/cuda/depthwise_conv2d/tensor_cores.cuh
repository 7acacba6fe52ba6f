// What the tensor-core kernels share: tiles of planes in shared memory and the matrix instructions. They take
// half types, stride 1, kernels of 3 to 7 square with padding to the same size, and rows of whole 16-byte
// vectors.
#pragma once

#include "../reduce.cuh"
#include "strips.cuh"

namespace detector::depthwise_conv2d {

constexpr int kVector = 8;         // elements in 16 bytes
constexpr int kTileRows = 16;      // rows of a warp
constexpr int kMostColumns = 128;  // of a block
constexpr int kMostWarps = 8;

// Blocks cover a plane by bands of rows and stretches of columns; each goes through several images.
struct TileSizes {
  int height, width, channels, multiplier, batch;
  int bands, warps, columns;    // columns of a block, a multiple of kVector
  int images;                   // of a block, gridDim.z apart
  int input_pitch, grad_pitch;  // elements from row to row in shared memory

  __device__ int first_row() const { return int(blockIdx.y) % bands * warps * kTileRows; }
  __device__ int first_column() const { return int(blockIdx.y) / bands * columns; }
};

// The next odd number of vectors: then eight rows fall into different banks.
inline int pitch_of(int columns) { return (columns / kVector | 1) * kVector; }

inline TileSizes tile_sizes(const Problem& p) {
  const int tiles = int(ceil_div(p.height, kTileRows));
  const int bands = int(ceil_div(tiles, kMostWarps)), stretches = int(ceil_div(p.width, kMostColumns));
  const int columns = int(ceil_div(ceil_div(p.width, stretches), kVector)) * kVector;
  return {int(p.height),
          int(p.width),
          int(p.channels),
          int(p.multiplier),
          int(p.batch),
          bands,
          int(ceil_div(tiles, bands)),
          columns,
          1,
          pitch_of(columns + kVector),
          pitch_of(columns)};
}

inline dim3 tile_grid(const Problem& p, const TileSizes& s, int64_t image_groups) {
  return dim3(unsigned(p.out_channels()), unsigned(s.bands * ceil_div(s.width, s.columns)),
              unsigned(image_groups));
}

template <int K, typename T>
bool tensor_cores_fit(const Problem& p, const T* a, const T* b) {
  const auto whole = [](const T* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  int device = 0, major = 0;
  return sizeof(T) == 2 && p.stride_h == 1 && p.pad_h == K / 2 && p.pad_w == K / 2 &&
         p.width % kVector == 0 && p.height >= 10 && p.out_channels() < (1 << 30) && whole(a) && whole(b) &&
         cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major >= 8;
}

// Copies rows first_row.. and columns first_column - kShift.. of a plane to shared memory, zeros outside.
// Four vectors a thread are under way at a time.
template <int kShift, typename T>
__device__ void stage(const T* __restrict__ plane, int height, int width, int first_row, int first_column,
                      int rows, int columns, int pitch, T* tile) {
  constexpr int kBatch = 4, start = kVector - kShift;
  const int vectors = columns / kVector, all = rows * vectors;
  for (int first = threadIdx.x; first < all; first += kBatch * blockDim.x) {
    uint4 before[kBatch], at[kBatch];
    int place[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int e = first + b * blockDim.x, r = e / vectors, v = e - r * vectors;
      const int row = first_row + r, column = first_column + v * kVector;
      const bool inside = e < all && 0 <= row && row < height;
      const uint4* source = reinterpret_cast<const uint4*>(plane + int64_t(row) * width + column);
      place[b] = e < all ? r * pitch + v * kVector : -1;
      before[b] = kShift > 0 && inside && column > 0 ? __ldg(source - 1) : uint4{};
      at[b] = inside && column < width ? __ldg(source) : uint4{};
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const uint32_t words[8] = {before[b].x, before[b].y, before[b].z, before[b].w,
                                 at[b].x,     at[b].y,     at[b].z,     at[b].w};
      uint32_t shifted[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        shifted[i] = start % 2 == 0 ? words[start / 2 + i]
                                    : __funnelshift_r(words[start / 2 + i], words[start / 2 + i + 1], 16);
      }
      if (place[b] >= 0) {
        *reinterpret_cast<uint4*>(tile + place[b]) = uint4{shifted[0], shifted[1], shifted[2], shifted[3]};
      }
    }
  }
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

// sums (16, 8) += a (16, 16) b (16, 8). Lane l holds rows l / 4 and l / 4 + 8, columns l % 4 * 2 and the
// next.
template <typename T>
__device__ void multiply_add(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                             uint32_t b0, uint32_t b1) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, Half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
#endif
}

}  // namespace detector::depthwise_conv2d

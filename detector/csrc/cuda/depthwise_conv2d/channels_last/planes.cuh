// Images of float16 or bfloat16 for the matrix units, which want the pixels of one channel side by side,
// where channels_last has the channels of one pixel. A chunk of rows comes as it lies in memory (staging) and
// is transposed to a plane for each channel.
#pragma once

#include "walk.cuh"

namespace detector::depthwise_conv2d::channels_last {

// A block has 32 channels of 56 columns, of which it reads 64, and walks down in chunks of eight rows.
struct Chunk {
  static constexpr int channels = 32;
  static constexpr int rows = 8;
  static constexpr int columns = 56;
  static constexpr int input_columns = 64;
  static constexpr int warps = rows;  // that fetch and transpose it, each a row
  static constexpr int staging_bytes = rows * input_columns * channels * 2;
};

// Where the 16 bytes of eight channels of a staged pixel are, such that eight neighbors lie in different
// banks.
__device__ inline unsigned staging_offset(unsigned row, unsigned column, unsigned octet) {
  return ((row * Chunk::input_columns + column) * 4 + (octet ^ (column / 2 % 4))) * 16;
}

// Planes of kRows rows. The padding puts in different banks: the same eight columns of eight rows; of eight
// channels from a multiple of eight on; of the channels 8 t + i and 8 t + i + 1 for t < 4 and an even i.
template <int kRows>
struct Planes {
  static constexpr int row_bytes = Chunk::input_columns * 2 + 16;
  static constexpr int plane_bytes = kRows * row_bytes + 16;
  static constexpr int bytes = Chunk::channels * plane_bytes + Chunk::channels / 8 * 32;

  // Where the 16 bytes of eight columns are.
  static __device__ unsigned offset(unsigned channel, unsigned row, unsigned octet) {
    return channel * plane_bytes + channel / 8 * 32 + row * row_bytes + octet * 16;
  }
};

__device__ inline unsigned shared_address(const void* data) {
  return static_cast<unsigned>(__cvta_generic_to_shared(data));
}

// Four matrices of 8 x 8; lanes 8 i ... 8 i + 7 give the addresses of the rows of matrix i.
__device__ inline void load_matrices(unsigned address, unsigned (&to)[4]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
#endif
}

__device__ inline void load_transposed(unsigned address, unsigned (&to)[4]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
#endif
}

// The chunks of one sample, one after the other; zeros outside of the image and of the first `columns`
// columns. Each of 256 threads fetches the same eight channels of the same column of every row.
template <typename T, typename Planes>
class ChunkReader {
 public:
  __device__ ChunkReader(const T* image, int height, int width, int channels, const Place& place,
                         int first_row, int first_column, int columns, unsigned char* staging)
      : staging_(staging), row_(first_row), height_(height) {
    const unsigned thread = threadIdx.y % Chunk::warps * kWarp + threadIdx.x;
    octet_ = thread % 4;
    column_ = thread / 4;
    const int column = first_column + int(column_), channel = place.channel + int(octet_) * 8;
    has_column_ = unsigned(column) < unsigned(width) && int(column_) < columns && channel < channels;
    stride_ = width * channels;
    source_ = image + (place.sample * height + first_row) * stride_ + int64_t(column) * channels + channel;
  }

  __device__ void fetch() {
#pragma unroll 4
    for (int row = 0; row < Chunk::rows; ++row) {
      copy_async(staging_ + staging_offset(row, column_, octet_), source_,
                 has_column_ && unsigned(row_) < unsigned(height_));
      source_ += stride_;
      row_ += 1;
    }
  }

  // A warp transposes one row, eight columns of all channels at a time, to the row `to` of the planes.
  __device__ void transpose(unsigned char* planes, unsigned to) const {
    const unsigned row = threadIdx.y % Chunk::warps, lane = threadIdx.x;
#pragma unroll
    for (unsigned i = 0; i < Chunk::input_columns / 8; ++i) {
      unsigned matrices[4];
      load_transposed(shared_address(staging_) + staging_offset(row, i * 8 + lane % 8, lane / 8), matrices);
#pragma unroll
      for (unsigned m = 0; m < 4; ++m) {  // channel 8 m + lane / 4, columns lane % 4 * 2 and the next
        const unsigned offset = Planes::offset(m * 8 + lane / 4, to + row, i) + lane % 4 * 4;
        *reinterpret_cast<unsigned*>(planes + offset) = matrices[m];
      }
    }
  }

 private:
  unsigned char* staging_;
  const T* source_;
  int stride_, row_, height_;
  unsigned octet_, column_;
  bool has_column_;
};

}  // namespace detector::depthwise_conv2d::channels_last

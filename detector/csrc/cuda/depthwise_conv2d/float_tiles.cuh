// float32 of stride 1 where a thread does much with what it reads: large kernels, and planes that are small
// or of odd width. A block works on one channel. It copies a band of rows of several images to shared memory,
// zeros around them, while it computes on the band copied before; from there each thread reads the rows that
// its strip of 8 x 4 outputs touches, at constant offsets and without a test.
#pragma once

#include <cuda_pipeline.h>

#include "strips.cuh"

namespace detector::depthwise_conv2d {

constexpr int kStripRows = 8;
constexpr int kMostThreads = 256;

// Aligned vectors that hold the inputs of kColumns outputs.
template <int K>
constexpr int kWindowVectors = (kColumns + K - 1 + kColumns - 1) / kColumns;

struct FloatTiles {
  int height, width, out_height, out_width, pad_h, pad_w;
  int channels, multiplier, batch;
  int across, down, bands;  // strips of a row, strips of a band below each other, bands of a plane
  int images, threads;      // of a block at a time
  int input_rows, input_pitch, grad_rows, grad_pitch;

  __host__ __device__ int of_input() const { return images * input_rows * input_pitch; }
  __host__ __device__ int of_grad() const { return images * grad_rows * grad_pitch; }
};

template <int K>
FloatTiles float_tiles(const Problem& p) {
  FloatTiles t{int(p.height), int(p.width),    int(p.out_height), int(p.out_width), int(p.pad_h),
               int(p.pad_w),  int(p.channels), int(p.multiplier), int(p.batch)};
  const int strips = int(ceil_div(p.out_height, kStripRows));
  t.across = int(ceil_div(p.out_width, kColumns));
  t.bands = int(ceil_div(strips, std::max(1, kMostThreads / 2 / t.across)));
  t.down = int(ceil_div(strips, t.bands));
  t.images = std::clamp(kMostThreads / 2 / (t.across * t.down), 1, t.batch);
  t.threads = int(ceil_div(t.images * t.across * t.down, kWarp)) * kWarp;
  t.input_rows = t.down * kStripRows + K - 1, t.grad_rows = t.down * kStripRows;
  t.input_pitch = (t.across + kWindowVectors<K> - 1) * kColumns, t.grad_pitch = t.across * kColumns;
  return t;
}

inline bool float_tiles_fit(const Problem& p) {
  return p.stride_h == 1 && p.out_width <= kMostThreads && p.width <= 2 * kMostThreads && p.pad_h >= 0 &&
         p.pad_w >= 0 && p.batch < (1 << 20) && p.out_channels() < (1 << 30);
}

// Begins to copy rows first_row.. and columns -left.. of planes `stride` apart; `images` of them exist.
inline __device__ void begin_copy(const float* planes, int64_t stride, int images, int height, int width,
                                  int first_row, int left, int rows, int pitch, int all_images, float* tile) {
  const int lanes = pitch > 16 ? 32 : pitch > 8 ? 16 : 8;  // of a row
  for (int r = threadIdx.x / lanes; r < all_images * rows; r += blockDim.x / lanes) {
    const int image = r / rows, row = first_row + r - image * rows;
    const bool inside = image < images && 0 <= row && row < height;
    const float* source = planes + image * stride + int64_t(row) * width - left;
    for (int s = threadIdx.x % lanes; s < pitch; s += lanes) {
      const bool copied = inside && left <= s && s < left + width;
      __pipeline_memcpy_async(tile + r * pitch + s, copied ? source + s : planes, 4, copied ? 0 : 4);
    }
  }
}

template <int N>
__device__ void read_row(const float* source, float (&values)[N]) {
#pragma unroll
  for (int v = 0; v < N; v += kColumns) {
    *reinterpret_cast<float4*>(values + v) = *reinterpret_cast<const float4*>(source + v);
  }
}

// The strip of a thread.
struct TilePlace {
  int image, row, column;
  bool works;

  __device__ explicit TilePlace(const FloatTiles& t) {
    const int strip = threadIdx.x, line = strip / t.across;
    image = line / t.down;
    row = (line - image * t.down) * kStripRows;
    column = (strip - line * t.across) * kColumns;
    works = image < t.images;
  }
};

}  // namespace detector::depthwise_conv2d

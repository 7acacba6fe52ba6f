// Pooled values with the channels last, as the backward pass reads them.
#pragma once

#include "../launch.cuh"
#include "../pack.cuh"

namespace detector::roi_align {

constexpr int kTile = 64;
constexpr int kTileThreads = 256;

// (B, M, N) to (B, N, M). A block takes a tile of kTile x kTile: it reads along columns, writes along rows.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    transpose_kernel(const T* from, int64_t num_rows, int64_t num_columns, int tiles_of_rows,
                     int tiles_of_columns, T* to) {
  __shared__ T tile[kTile][kTile + 1];  // columns x rows
  const int64_t batch = blockIdx.x / tiles_of_rows / tiles_of_columns;
  const int64_t row = int64_t(blockIdx.x / tiles_of_columns % tiles_of_rows) * kTile;
  const int64_t column = int64_t(blockIdx.x % tiles_of_columns) * kTile;
  const int rows = min(int64_t(kTile), num_rows - row), columns = min(int64_t(kTile), num_columns - column);
  const T* data = from + (batch * num_rows + row) * num_columns + column;
#pragma unroll 8
  for (int i = threadIdx.x; i < rows * kTile; i += kTileThreads) {
    if (i % kTile < columns) {
      tile[i % kTile][i / kTile] = data[i / kTile * num_columns + i % kTile];
    }
  }
  __syncthreads();
  T* output = to + (batch * num_columns + column) * num_rows + row;
#pragma unroll 4
  for (int i = threadIdx.x; i < columns * kTile; i += kTileThreads) {
    if (i % kTile < rows) {
      output[i / kTile * num_rows + i % kTile] = tile[i / kTile][i % kTile];
    }
  }
}

// Pooled values (R, C, bins), contiguous, to (R, bins, C).
template <typename T>
void channels_to_last(const T* from, int64_t boxes, int64_t channels, int64_t bins, T* to,
                      cudaStream_t stream) {
  const int64_t groups = ceil_div(channels, kTile), tiles_of_bins = ceil_div(bins, kTile);
  if (boxes * groups > 0) {
    launch_kernel(transpose_kernel<T>, boxes * groups * tiles_of_bins, kTileThreads, 0, stream, from,
                  channels, bins, int(groups), int(tiles_of_bins), to);
  }
}

}  // namespace detector::roi_align

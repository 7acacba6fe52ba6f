// The rows of each class in the order of their scores: proposal_clusters_order_kernel.
#pragma once

#include "batch.cuh"

namespace detector::proposal_clusters {

constexpr int kOrderWarps = 16;  // each block reads all scores, so they should be few
constexpr int kWarpRows = 4;
constexpr int kOrderRows = kOrderWarps * kWarpRows;
constexpr int kOrderTile = 2048;

__device__ inline int32_t clamp_to(int32_t value, int32_t most) { return max(0, min(value, most)); }

// order[s, c] (sum R,): the rows of each image by ascending score of class c in stream s, equal scores by
// descending row. The place of a row is the count of rows before it. Block (s * B + i, j, k) takes every
// gridDim.y-th stretch of image i's rows and every gridDim.z-th of its positive classes.
template <typename T>
__global__ void __launch_bounds__(kOrderWarps* kWarp)
    proposal_clusters_order_kernel(Streams<T> streams, int64_t num_classes, Matrix<float> image_labels,
                                   Batch batch, uint16_t* order) {
  __shared__ Accumulate<T> tile[kOrderTile];
  const int64_t stream = blockIdx.x / batch.num_images, index = blockIdx.x % batch.num_images;
  const Image image = image_at(batch, stream, index);
  const int32_t num_rows = image.num_rows;
  unsigned turn = 0;
  for_each_positive(image_labels.row(index), num_classes, [&](int64_t column) {
    if (turn++ % gridDim.z != blockIdx.z) {
      return;
    }
    const Scores<T> scores{streams[stream].from_row(image.begin).column(column)};
    for (int64_t first = int64_t(blockIdx.y) * kOrderRows; first < num_rows;
         first += gridDim.y * kOrderRows) {
      int32_t row[kWarpRows], place[kWarpRows];
      Accumulate<T> score[kWarpRows];
      for (int k = 0; k < kWarpRows; ++k) {
        row[k] = first + warp_of_thread() * kWarpRows + k;
        place[k] = 0;
        score[k] = scores[min(row[k], num_rows - 1)];
      }
      for (int32_t begin = 0; begin < num_rows; begin += kOrderTile) {
        const int32_t size = min(kOrderTile, num_rows - begin);
        __syncthreads();  // the tile before this one has been read
        for (int32_t i = threadIdx.x; i < size; i += kOrderWarps * kWarp) {
          tile[i] = scores[begin + i];
        }
        __syncthreads();
        // The warp's own rows, if the tile has them, are at own..own_end; equal scores count from there on.
        const int32_t own = clamp_to(row[0] - begin, size),
                      own_end = clamp_to(row[0] + kWarpRows - begin, size);
        const auto count = [&](int32_t from, int32_t to, const auto& is_before) {
          for (int32_t i = from + lane_of_thread(); i < to; i += kWarp) {
#pragma unroll
            for (int k = 0; k < kWarpRows; ++k) {
              place[k] += is_before(i, k);
            }
          }
        };
        count(0, own, [&](int32_t i, int k) { return tile[i] < score[k]; });
        count(own, own_end, [&](int32_t i, int k) {
          return tile[i] < score[k] || (tile[i] == score[k] && begin + i > row[k]);
        });
        count(own_end, size, [&](int32_t i, int k) { return tile[i] <= score[k]; });
      }
      for (int k = 0; k < kWarpRows; ++k) {
        const int32_t place_of_row = warp_reduce(place[k], Sum{});
        if (lane_of_thread() == 0 && row[k] < num_rows) {
          order[(stream * num_classes + column) * batch.num_rows + image.begin + place_of_row] = row[k];
        }
      }
    }
  });
}

}  // namespace detector::proposal_clusters

// Which rows of an image are neighbours: graph_kernel.
#pragma once

#include "batch.cuh"

namespace detector::proposal_clusters {

constexpr int kGraphWarps = 8;
constexpr int kTileRows = 8;   // a warp's tile of the graph, in rows
constexpr int kTileWords = 4;  // and in words

template <typename B>
__global__ void __launch_bounds__(kGraphWarps* kWarp)
    graph_kernel(Matrix<B> all_boxes, Batch batch, B edge_iou, uint64_t* graph, int64_t graph_size) {
  const Image image = image_at(batch, blockIdx.x);
  const int32_t num_rows = image.num_rows;
  const int64_t words = num_words(num_rows);
  if (image.graph_begin + graph_words(num_rows) > graph_size) {
    return;  // the bits are found when they are needed
  }
  const Matrix<B> boxes = all_boxes.from_row(image.begin);
  const int lane = lane_of_thread();
  const int64_t row_tiles = (num_rows + kTileRows - 1) / kTileRows;
  const int64_t tiles = row_tiles * ((words + kTileWords - 1) / kTileWords);
  const int64_t step = int64_t(gridDim.y) * kGraphWarps;
  for (int64_t tile = blockIdx.y * kGraphWarps + warp_of_thread(); tile < tiles; tile += step) {
    const int64_t first_row = tile % row_tiles * kTileRows;
    const int64_t first_word = tile / row_tiles * kTileWords;
    Box<B> box[kTileRows];
    B box_area[kTileRows];
#pragma unroll
    for (int k = 0; k < kTileRows; ++k) {
      box[k] = box_at(boxes, min(first_row + k, int64_t(num_rows) - 1));
      box_area[k] = area(box[k]);
    }
    for (int64_t word = first_word; word < min(first_word + kTileWords, words); ++word) {
      uint64_t bits = 0;  // lane k < kTileRows keeps those of row k
      for (int half = 0; half < 2; ++half) {
        const int64_t column = word * 64 + half * kWarp + lane;
        const bool exists = column < num_rows;
        const Box<B> other = box_at(boxes, exists ? column : 0);
        const B other_area = area(other);
#pragma unroll
        for (int k = 0; k < kTileRows; ++k) {
          const bool joined =
              iou(box[k], box_area[k], other, other_area) > edge_iou || column == first_row + k;
          const unsigned found = __ballot_sync(kAllLanes, exists && joined);
          bits |= lane == k ? uint64_t(found) << (half * kWarp) : 0;
        }
      }
      if (lane < kTileRows && first_row + lane < num_rows) {
        graph[image.graph_begin + (first_row + lane) * words + word] = bits;
      }
    }
  }
}

// The neighbours of a row; each row is its own. Without stored bits they are computed where a mask asks for
// them.
template <typename B>
struct Graph {
  const uint64_t* bits;  // null if there was no space
  int32_t words;
  Matrix<B> boxes;  // from the image's first row
  B edge_iou;

  __device__ uint64_t neighbours(int32_t row, int32_t word, uint64_t mask) const {
    if (bits != nullptr) {
      return bits[int64_t(row) * words + word] & mask;
    }
    const Box<B> box = box_at(boxes, row);
    const B box_area = area(box);
    uint64_t found = 0;
    for (; mask != 0; mask &= mask - 1) {
      const int32_t other_row = word * 64 + __ffsll(mask) - 1;
      const Box<B> other = box_at(boxes, other_row);
      if (other_row == row || iou(box, box_area, other, area(other)) > edge_iou) {
        found |= mask & -mask;
      }
    }
    return found;
  }
};

}  // namespace detector::proposal_clusters

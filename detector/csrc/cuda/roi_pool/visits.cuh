// The work of the backward pass: which boxes reach a band of cells, and which bins of them a lane takes.
#pragma once

#include "../../roi_pool.h"
#include "../roi/boxes.cuh"
#include "../roi/parts.cuh"

namespace detector::roi_pool {

using roi::BoxesByImage;
using roi::Sizes;

// A whole piece of the grid of bins: two of them a lane. Of a small grid the first is in an even row, the
// second in an odd one, and both are in the same column.
struct LaneBins {
  int bin[2], row[2], column[2];

  __device__ LaneBins(const Sizes& sizes, bool small, int piece) {
    const int lane = lane_of_thread(), width = sizes.pooled_width;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int linear = (2 * piece + k) * kWarp + lane;
      row[k] = small ? lane / width * 2 + k : linear / width;
      column[k] = small ? lane % width : linear % width;
      bin[k] = row[k] < sizes.pooled_height ? row[k] * width + column[k] : -1;
    }
  }
};

inline bool is_small(const Sizes& sizes) {
  return (sizes.pooled_height + 1) / 2 * int64_t(sizes.pooled_width) <= kWarp;
}

// Bins p and p + period of an axis share no cell: what lies between them is at least a cell long.
template <typename A>
__device__ uint16_t period_of(A bin_size, int bins) {
  const A period = bin_size >= A(1) ? A(2) : A(1) + ceil(A(1.001) / bin_size);
  return uint16_t(min(min(period, A(bins)), A(0xffff)));
}

// A box that reaches a band: which rows of bins do, and how many steps keep its bins apart.
struct alignas(16) Visit {
  int box, first_row, end_row;
  uint16_t period_y, period_x;
};

// The boxes of each image that reach each band, in order. Those of band b and image n begin at b * R +
// boxes.starts[n]; counts: (bands, N). A block writes them, a thread looks at a box at a time.
template <typename A>
__global__ void __launch_bounds__(roi::kOrderThreads)
    visits_kernel(BoxesByImage<A> boxes, A scale, Sizes sizes, roi::Pieces bands, Visit* visits,
                  int* counts) {
  const int image = blockIdx.x % sizes.images, band = blockIdx.x / sizes.images, width = sizes.width;
  const int64_t first_cell = int64_t(band) * bands.size;
  const int first_row = first_cell / width;
  const int end_row = (min(first_cell + bands.size, sizes.cells()) - 1) / width + 1;
  const int begin = boxes.starts[image], number = boxes.starts[image + 1] - begin;
  Visit* to = visits + band * sizes.boxes + begin;
  int written = 0;
  for (int base = 0; base < number; base += roi::kOrderThreads) {
    const int i = base + threadIdx.x, position = begin + min(i, number - 1);
    const PooledBox<A> box(boxes.row(position), scale, sizes.pooled_height, sizes.pooled_width);
    int first = 0;
    while (first < sizes.pooled_height && box.rows(first, sizes.height).end <= first_row) {
      ++first;
    }
    int end = first;
    while (end < sizes.pooled_height && box.rows(end, sizes.height).begin < end_row) {
      ++end;
    }
    const bool reaches = i < number && first < end;
    const roi::Place place = roi::place_of(reaches);
    if (reaches) {
      to[written + place.before] = {boxes.order[position], first, end,
                                    period_of(box.bin_height, sizes.pooled_height),
                                    period_of(box.bin_width, sizes.pooled_width)};
    }
    written += place.total;
  }
  if (threadIdx.x == 0) {
    counts[blockIdx.x] = written;
  }
}

}  // namespace detector::roi_pool

// The boxes that touch a tile, found and weighed by a block of threads.
#pragma once

#include "../roi/boxes.cuh"
#include "weights.cuh"

namespace detector::roi_align {

using roi::BoxesByImage;
using roi::Sizes;

constexpr int kWarps = kSide / kRows * (kSide / kColumns);  // of a block, one for each part of a tile
constexpr int kThreads = kWarps * kWarp;

// A box that touches the tile.
template <typename A>
struct Hit {
  AlignedBox<A> box;
  int index;
};

template <typename A>
struct Shared {
  BoxWeights<A> weights[2][kWarps];
  Hit<A> hits[kThreads];
  unsigned of_warp[kWarps];
};

// The boxes of a block and where they meet its tile.
template <typename A>
struct Walk {
  BoxesByImage<A> boxes;
  Mean<A> mean;
  Sizes sizes;
  int first_row, first_column, first, end;
  Shared<A>& shared;

  __device__ AlignedBox<A> box(int index) const { return mean.box(boxes.rows + 5 * int64_t(index), sizes); }

  // Calls add(weights) for each box from first to end that touches the tile, and each kBins x kBins of its
  // bins, in order; a warp works out the weights of one of them for all warps.
  template <typename Add>
  __device__ void operator()(const Add& add) const {
    auto& [weights, hits, of_warp] = shared;
    const int lane = lane_of_thread(), warp = warp_of_thread();
    int half = 0;
    for (int base = first; base < end; base += kThreads) {
      const int index = boxes.order[min(base + int(threadIdx.x), end - 1)];
      const AlignedBox<A> mine = box(index);
      const bool hit = base + int(threadIdx.x) < end &&
                       may_touch(mine.y, sizes.pooled_height, first_row, kSide) &&
                       may_touch(mine.x, sizes.pooled_width, first_column, kSide);
      const unsigned of_lanes = __ballot_sync(0xffffffffu, hit);
      if (lane == 0) {
        of_warp[warp] = of_lanes;
      }
      __syncthreads();
      int before = __popc(of_lanes & ((1u << lane) - 1)), total = 0;
      for (int w = 0; w < kWarps; ++w) {
        before += w < warp ? __popc(of_warp[w]) : 0;
        total += __popc(of_warp[w]);
      }
      if (hit) {
        hits[before] = {mine, index};
      }
      __syncthreads();
      for (int bin_y = 0; bin_y < sizes.pooled_height; bin_y += kBins) {
        for (int bin_x = 0; bin_x < sizes.pooled_width; bin_x += kBins) {
          for (int round = 0; round < total; round += kWarps, half ^= 1) {
            BoxWeights<A>* of_round = weights[half];  // the other half may still be in use
            if (round + warp < total) {
              const auto& [its, index] = hits[round + warp];
              BoxWeights<A>& to = of_round[warp];
              to.y.fill(its.y, bin_y, sizes.pooled_height, first_row, sizes.height, A(1) / its.count());
              to.x.fill(its.x, bin_x, sizes.pooled_width, first_column, sizes.width, A(1));
              to.first_bin = index * sizes.bins() + int64_t(bin_y) * sizes.pooled_width + bin_x;
            }
            __syncthreads();
#pragma unroll 1
            for (int w = 0; w < min(kWarps, total - round); ++w) {
              add(of_round[w]);
            }
          }
        }
      }
    }
  }
};

}  // namespace detector::roi_align

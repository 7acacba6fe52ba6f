// The boxes that touch a tile, found and weighed by a block of threads.
#pragma once

#include "../roi/boxes.cuh"
#include "weights.cuh"

namespace detector::roi_align {

constexpr int kWarps = kSide;  // of a block, one for each row of a tile
constexpr int kThreads = kWarps * kWarp;

struct Tile {
  int row, column;  // the first
};

using roi::BoxesByImage;
using roi::Sizes;

// Whether some of the samples may weigh in the cells from `first` on.
template <typename A>
__device__ bool may_touch(const Axis<A>& axis, int bins, int first) {
  const A end = axis.start + A(bins) * axis.bin;
  const A low = min(axis.start, end), high = max(axis.start, end);
  return axis.grid > 0 && A(first + kSide) >= low - A(1) && A(first) <= high + A(2);
}

template <typename A>
struct Shared {
  // A box that touches the tile.
  struct Hit {
    AlignedBox<A> box;
    int index;
  };
  BoxWeights<A> weights[2][kWarps];
  Hit hits[kThreads];
  unsigned warp_hits[kWarps];
};

// The boxes of a block and where they meet the tile of the block.
template <typename A>
struct Walk {
  BoxesByImage<A> boxes;
  Sampling<A> sampling;
  Sizes sizes;
  Tile tile;
  int first, end;
  Shared<A>& shared;

  // Calls add(weights) for each box from first to end that touches the tile, and each kBins x kBins of
  // the bins of the box, in order; a warp computes the weights of one of them for all warps.
  template <typename Add>
  __device__ void operator()(const Add& add) const {
    auto& [weights, hits, warp_hits] = shared;
    const int lane = lane_of_thread(), warp = warp_of_thread();
    int half = 0;
    for (int base = first; base < end; base += kThreads) {
      const int position = min(base + int(threadIdx.x), end - 1);
      const AlignedBox<A> thread_box = sampling.box(boxes.row(position), sizes);
      const bool hit = base + int(threadIdx.x) < end &&
                       may_touch(thread_box.y, sizes.pooled_height, tile.row) &&
                       may_touch(thread_box.x, sizes.pooled_width, tile.column);
      const unsigned lane_hits = __ballot_sync(0xffffffffu, hit);
      if (lane == 0) {
        warp_hits[warp] = lane_hits;
      }
      __syncthreads();
      int before = __popc(lane_hits & ((1u << lane) - 1)), total = 0;
      for (int w = 0; w < kWarps; ++w) {
        before += w < warp ? __popc(warp_hits[w]) : 0;
        total += __popc(warp_hits[w]);
      }
      if (hit) {
        hits[before] = {thread_box, boxes.order[position]};
      }
      __syncthreads();
      for (int bin_y = 0; bin_y < sizes.pooled_height; bin_y += kBins) {
        for (int bin_x = 0; bin_x < sizes.pooled_width; bin_x += kBins) {
          for (int round = 0; round < total; round += kWarps, half ^= 1) {
            BoxWeights<A>* round_weights = weights[half];  // the other half may still be in use
            if (round + warp < total) {
              const auto& [hit_box, index] = hits[round + warp];
              weigh(hit_box, bin_y, bin_x, round_weights[warp]);
              const int64_t bin = index * sizes.bins() + int64_t(bin_y) * sizes.pooled_width + bin_x;
              round_weights[warp].first = bin * sizes.channels;
            }
            __syncthreads();
#pragma unroll 1
            for (int w = 0; w < min(kWarps, total - round); ++w) {
              add(round_weights[w]);
            }
          }
        }
      }
    }
  }

 private:
  __device__ void weigh(const AlignedBox<A>& box, int bin_y, int bin_x, BoxWeights<A>& to) const {
    to.y.fill(SampleWeights<A>(box.y, bin_y, sizes.pooled_height, tile.row, sizes.height),
              A(1) / box.count());
    to.x.fill(SampleWeights<A>(box.x, bin_x, sizes.pooled_width, tile.column, sizes.width), A(1));
  }
};

}  // namespace detector::roi_align

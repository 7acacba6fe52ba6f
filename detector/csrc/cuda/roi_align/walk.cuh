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

// Boxes of any number of samples and bins, by their rows.
template <typename A>
struct FromRows {
  using Box = AlignedBox<A>;
  BoxesByImage<A> boxes;
  Mean<A> mean;

  __device__ Box box(int position, const Sizes& sizes) const { return mean.box(boxes.row(position), sizes); }
  __device__ static bool may_touch(const Box& box, const Tile& tile, const Sizes& sizes) {
    return may_touch(box.y, sizes.pooled_height, tile.row) &&
           may_touch(box.x, sizes.pooled_width, tile.column);
  }
  __device__ static void weigh(const Box& box, const Tile& tile, const Sizes& sizes, int bin_y, int bin_x,
                               BoxWeights<A>& to) {
    to.y.fill(AnySamples<A>(box.y, bin_y, sizes.pooled_height, tile.row, sizes.height), A(1) / box.count());
    to.x.fill(AnySamples<A>(box.x, bin_x, sizes.pooled_width, tile.column, sizes.width), A(1));
  }

 private:
  __device__ static bool may_touch(const Axis<A>& axis, int bins, int first) {
    const A end = axis.start + A(bins) * axis.bin;
    const A low = min(axis.start, end), high = max(axis.start, end);
    return axis.grid > 0 && A(first + kSide) >= low - A(1) && A(first) <= high + A(2);
  }
};

// Boxes of the usual numbers, by their tables.
template <typename A>
struct FromTables {
  using Box = const BoxTable<A>*;
  const BoxTable<A>* tables;

  __device__ Box box(int position, const Sizes&) const { return tables + position; }
  __device__ static bool may_touch(Box box, const Tile& tile, const Sizes&) {
    return box->first_row < tile.row + kSide && box->last_row >= tile.row &&
           box->first_column < tile.column + kSide && box->last_column >= tile.column;
  }
  __device__ static void weigh(Box box, const Tile& tile, const Sizes&, int, int, BoxWeights<A>& to) {
    static_assert(kMostBins == kBins);  // there are no more to come
    const auto along = [](const SamplesOfBin<A>* samples, int first) {
      return [samples, first](int bin, int cell) { return weight_at(samples[bin], A(first + cell)); };
    };
    to.y.fill(along(box->y, tile.row), A(1) / A(kSamples * kSamples));
    to.x.fill(along(box->x, tile.column), A(1));
  }
};

template <typename A, typename Source>
struct Shared {
  // A box that touches the tile.
  struct Hit {
    typename Source::Box box;
    int index;
  };
  BoxWeights<A> weights[2][kWarps];
  Hit hits[kThreads];
  unsigned warp_hits[kWarps];
};

// The boxes of a block and where they meet the tile of the block.
template <typename A, typename Source>
struct Walk {
  Source source;
  const int* order;
  Sizes sizes;
  Tile tile;
  int first, end;
  Shared<A, Source>& shared;

  // Calls add(weights) for each box from first to end that touches the tile, and each kBins x kBins of
  // the bins of the box, in order; a warp computes the weights of one of them for all warps.
  template <typename Add>
  __device__ void operator()(const Add& add) const {
    auto& [weights, hits, warp_hits] = shared;
    const int lane = lane_of_thread(), warp = warp_of_thread();
    int half = 0;
    for (int base = first; base < end; base += kThreads) {
      const int position = min(base + int(threadIdx.x), end - 1);
      const typename Source::Box thread_box = source.box(position, sizes);
      const bool hit = base + int(threadIdx.x) < end && source.may_touch(thread_box, tile, sizes);
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
        hits[before] = {thread_box, order[position]};
      }
      __syncthreads();
      for (int bin_y = 0; bin_y < sizes.pooled_height; bin_y += kBins) {
        for (int bin_x = 0; bin_x < sizes.pooled_width; bin_x += kBins) {
          for (int round = 0; round < total; round += kWarps, half ^= 1) {
            BoxWeights<A>* round_weights = weights[half];  // the other half may still be in use
            if (round + warp < total) {
              const auto& [hit_box, index] = hits[round + warp];
              source.weigh(hit_box, tile, sizes, bin_y, bin_x, round_weights[warp]);
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
};

}  // namespace detector::roi_align

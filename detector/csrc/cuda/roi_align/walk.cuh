// The boxes that touch a tile, found and weighed by a block of threads, and how much the cells of the tile
// weigh in their bins.
#pragma once

#include "../../roi_align.h"
#include "../../roi_align_plan.h"
#include "../pack.cuh"
#include "../reduce.cuh"
#include "../roi/boxes.cuh"

namespace detector::roi_align {

constexpr int kBins = 8;  // of an axis, whose weights are worked out together

// One axis of a box. All lanes of a warp ask for weights together.
template <typename A>
class SampleWeights {
 public:
  __device__ SampleWeights(const Axis<A>& axis, int first_bin, int bins, int first_cell, int size)
      : axis_(axis), first_bin_(first_bin), bins_(bins), first_cell_(first_cell), size_(size) {
    const int lane = lane_of_thread(), bin = first_bin + lane / kFew;
    const Sample<A> lane_sample = axis.sample(bin, lane % kFew, size);
    low_ = lane_sample.inside && bin < bins ? lane_sample.low - first_cell : -2;
    high_weight_ = lane_sample.high_weight;
  }

  __device__ A operator()(int bin, int cell) const {
    A weight = 0;
    if (axis_.grid <= kFew) {
#pragma unroll 1
      for (int k = 0; k < axis_.grid; ++k) {
        const int sample_low = __shfl_sync(0xffffffffu, low_, bin * kFew + k);
        const A high_weight = __shfl_sync(0xffffffffu, high_weight_, bin * kFew + k);
        weight += sample_low == cell ? A(1) - high_weight : sample_low == cell - 1 ? high_weight : A(0);
      }
    } else if (first_bin_ + bin < bins_) {
      bin += first_bin_;
      cell += first_cell_;
      const int end = axis_.end_sample(bin, cell - 1, cell + 1);
#pragma unroll 1
      for (int i = axis_.first_sample(bin, cell - 1, cell + 1); i < end; ++i) {
        const Sample<A> sample = axis_.sample(bin, i, size_);
        weight += sample.inside && sample.low == cell ? sample.low_weight : A(0);
        weight += sample.inside && sample.high == cell ? sample.high_weight : A(0);
      }
    }
    return weight;
  }

 private:
  static constexpr int kFew = kWarp / kBins;  // samples of a bin, of which a lane works out one
  const Axis<A>& axis_;
  int first_bin_, bins_, first_cell_, size_, low_;
  A high_weight_;
};

// Some of the bins of an axis, from `begin` to before `end`.
struct Bins {
  uint16_t begin, end;
};

// One axis of a tile and kBins bins of a box. Warps take kPart cells each.
template <typename A, int kPart>
struct AxisWeights {
  static constexpr int kParts = kSide / kPart;
  Pack<A, kPart> of[kBins][kParts];
  Bins bins[kParts];  // that weigh on each part

  // weigh(bin, cell) of a tile's cell. All lanes of a warp call this.
  template <typename Weigh>
  __device__ void fill(const Weigh& weigh, A scale) {
    const int lane = lane_of_thread();
    uint64_t any = 0;
#pragma unroll
    for (int i = 0; i < kBins * kSide; i += kWarp) {
      const int bin = (i + lane) / kSide, cell = lane % kSide;
      const A weight = scale * weigh(bin, cell);
      of[bin][cell / kPart].values[cell % kPart] = weight;
      any |= uint64_t(__ballot_sync(0xffffffffu, weight != A(0))) << i;
    }
    if (lane < kParts) {
      constexpr uint64_t cell_in_all_bins = 0x0101010101010101u;
      const uint64_t part_bits = any & (cell_in_all_bins * ((1u << kPart) - 1) << lane * kPart);
      bins[lane] = {uint16_t(part_bits == 0 ? 0 : (__ffsll(part_bits) - 1) / kSide),
                    uint16_t(part_bits == 0 ? 0 : (63 - __clzll(part_bits)) / kSide + 1)};
    }
  }
};

template <typename A>
struct BoxWeights {
  AxisWeights<A, 1> y;
  AxisWeights<A, kSide> x;
  int64_t first;  // where the gradients of bin [0][0] lie
};

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

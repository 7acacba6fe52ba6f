// How much the cells of a tile weigh in the bins of a box that touches it.
#pragma once

#include "../pack.cuh"
#include "../reduce.cuh"
#include "mean.cuh"

namespace detector::roi_align {

constexpr int kSide = 8;                // cells of a tile, on both axes
constexpr int kRows = 4, kColumns = 2;  // of a warp's part of it
constexpr int kBins = 8;                // of an axis, whose weights are worked out together

template <typename A>
__device__ bool may_touch(const Axis<A>& axis, int bins, int first, int count) {
  const A end = axis.start + A(bins) * axis.bin;
  const A low = min(axis.start, end), high = max(axis.start, end);
  return axis.grid > 0 && A(first + count) >= low - A(1) && A(first) <= high + A(2);
}

// The sum over the samples of a bin.
template <typename A>
__device__ A weight_of(const Axis<A>& axis, int bin, int cell, int size) {
  A weight = 0;
  const int end = axis.end_sample(bin, cell - 1, cell + 1);
#pragma unroll 1
  for (int i = axis.first_sample(bin, cell - 1, cell + 1); i < end; ++i) {
    const Sample<A> sample = axis.sample(bin, i, size);
    weight += sample.inside && sample.low == cell ? sample.low_weight : A(0);
    weight += sample.inside && sample.high == cell ? sample.high_weight : A(0);
  }
  return weight;
}

// One axis of a tile and kBins bins of a box. Warps take kPart cells each.
template <typename A, int kPart>
struct AxisWeights {
  static constexpr int kParts = kSide / kPart;
  Pack<A, kPart> of[kBins][kParts];
  int begin[kParts], end[kParts];  // the bins that weigh on each part

  // All lanes of a warp call this.
  __device__ void fill(const Axis<A>& axis, int first_bin, int bins, int first_cell, int size, A scale) {
    const int lane = lane_of_thread();
    // Of few samples a lane works out one.
    constexpr int few = kWarp / kBins;
    const Sample<A> mine = axis.sample(first_bin + lane / few, lane % few, size);
    const int low = mine.inside && first_bin + lane / few < bins ? mine.low - first_cell : -2;
    uint64_t any = 0;
#pragma unroll
    for (int i = 0; i < kBins * kSide; i += kWarp) {
      const int bin = (i + lane) / kSide, cell = lane % kSide;
      A weight = 0;
      if (axis.grid <= few) {
#pragma unroll 1
        for (int k = 0; k < axis.grid; ++k) {
          const int of_sample = __shfl_sync(0xffffffffu, low, bin * few + k);
          const A high_weight = __shfl_sync(0xffffffffu, mine.high_weight, bin * few + k);
          weight += of_sample == cell ? A(1) - high_weight : of_sample == cell - 1 ? high_weight : A(0);
        }
      } else if (first_bin + bin < bins) {
        weight = weight_of(axis, first_bin + bin, first_cell + cell, size);
      }
      weight *= scale;
      of[bin][cell / kPart].values[cell % kPart] = weight;
      any |= uint64_t(__ballot_sync(0xffffffffu, weight != A(0))) << i;
    }
    if (lane < kParts) {
      uint64_t of_part = 0;
      for (int bin = 0; bin < kBins; ++bin) {
        of_part |= uint64_t((1 << kPart) - 1) << (bin * kSide + lane * kPart);
      }
      of_part &= any;
      begin[lane] = of_part == 0 ? 0 : (__ffsll(of_part) - 1) / kSide;
      end[lane] = of_part == 0 ? 0 : (63 - __clzll(of_part)) / kSide + 1;
    }
  }
};

template <typename A>
struct BoxWeights {
  AxisWeights<A, kRows> y;
  AxisWeights<A, kColumns> x;
  int64_t first_bin;  // of the box's rows of bins, whose first is [0][0]
};

}  // namespace detector::roi_align

// How much the cells of a tile weigh in the bins of a box that touches it.
#pragma once

#include "../../roi_align.h"
#include "../pack.cuh"
#include "../reduce.cuh"

namespace detector::roi_align {

constexpr int kSide = 8;  // cells of a tile, on both axes
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

}  // namespace detector::roi_align

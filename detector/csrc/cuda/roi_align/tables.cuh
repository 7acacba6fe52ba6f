// What the backward pass knows of each box, worked out once for all channels and tiles: where its samples
// lie. Made for the usual number of samples and bins; others are worked out where they are needed.
#pragma once

#include "../roi/boxes.cuh"
#include "mean.cuh"
#include "samples.cuh"

namespace detector::roi_align {

using roi::BoxesByImage;
using roi::Sizes;

template <typename A>
using SamplesOfBin = Pack<A, kSamples>;

template <typename A>
struct alignas(16) BoxTable {
  // Of each bin, within the image; far from all cells where there is no sample.
  SamplesOfBin<A> y[kMostBins], x[kMostBins];
  // The cells that they touch, none if the last comes before the first.
  int first_row, last_row, first_column, last_column;
};

// How much the samples of a bin weigh in a cell of their axis.
template <typename A>
__device__ A weight_at(const SamplesOfBin<A>& samples, A cell) {
  A weight = 0;
#pragma unroll
  for (int i = 0; i < kSamples; ++i) {
    weight += max(A(0), A(1) - abs(samples.values[i] - cell));
  }
  return weight;
}

// A warp takes a box, a lane one sample of each axis; tables come in the order of `boxes`.
template <typename A>
__global__ void tables_kernel(BoxesByImage<A> boxes, Mean<A> mean, Sizes sizes, BoxTable<A>* tables) {
  static_assert(kMostBins * kSamples <= kWarp);
  const int64_t position = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (position >= sizes.boxes) {
    return;
  }
  BoxTable<A>& table = tables[position];
  const AlignedBox<A> box = mean.box(boxes.row(position), sizes);
  const int lane = lane_of_thread(), bin = lane / kSamples, i = lane % kSamples;
  const auto fill = [&](const Axis<A>& axis, int bins, int size, SamplesOfBin<A>* samples, int& first,
                        int& last) {
    const Sample<A> sample = axis.sample(bin, i, size);
    const bool weighs = bin < bins && sample.inside;
    if (bin < kMostBins) {
      samples[bin].values[i] = weighs ? A(sample.low) + sample.high_weight : A(-4);
    }
    const int least = warp_reduce(weighs ? sample.low : size, Min{});
    const int most = warp_reduce(weighs ? sample.high : -1, Max{});
    if (lane == 0) {
      first = least;
      last = most;
    }
  };
  fill(box.y, sizes.pooled_height, sizes.height, table.y, table.first_row, table.last_row);
  fill(box.x, sizes.pooled_width, sizes.width, table.x, table.first_column, table.last_column);
}

}  // namespace detector::roi_align

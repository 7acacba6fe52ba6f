// The forward pass of roi_align with two samples a bin on each axis. A block keeps V channels of one image in
// shared memory; a warp takes a box. A lane has one of the four columns that a bin's samples touch: it sums
// its cells over the rows of a row of bins, whose weights are those of all lanes, and four lanes sum up their
// bin.
#pragma once

#include "../roi/gather.cuh"
#include "mean.cuh"
#include "samples.cuh"

namespace detector::roi_align {

using roi::BoxesByImage;
using roi::Sizes;

constexpr int kRowWarps = 32;  // of a block

// A row of cells that a row of bins weighs. `cell` is its first.
template <typename A>
struct alignas(2 * sizeof(A)) WeighedRow {
  int cell;
  A weight;
};

constexpr int kNoCell = -1;

// Of one axis, the cell that a lane has: of each four, two of one sample, then two of the other.
template <typename A>
struct CellOfLane {
  int cell;  // kNoCell if the bin has no sample
  A weight;

  __device__ CellOfLane(const Axis<A>& axis, int bins, int size) {
    const int lane = lane_of_thread(), bin = lane / 4, high = lane % 2;
    const Sample<A> sample = axis.sample(bin, lane / 2 % 2, size);
    const bool inside = sample.inside && bin < bins;
    cell = inside ? (high == 0 ? sample.low : sample.high) : kNoCell;
    weight = inside ? (high == 0 ? sample.low_weight : sample.high_weight) : A(0);
    const int other = __shfl_xor_sync(0xffffffffu, cell, 2);
    const A other_weight = __shfl_xor_sync(0xffffffffu, weight, 2);
    // A sample outside counts as zero, whatever lies there: it stands in for half of the other.
    if ((cell == kNoCell) != (other == kNoCell)) {
      weight = A(0.5) * (inside ? weight : other_weight);
      cell = inside ? cell : other;
    }
  }
};

// Sums over each four lanes, of which each ends with V / 4 of the channels, from first_of_four() on, or one.
template <int V, typename A>
__device__ void sum_of_four(A (&values)[V]) {
  constexpr unsigned all = 0xffffffffu;
  int number = V;
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    const bool upper = lane_of_thread() & step;
    number = max(number / 2, 1);
#pragma unroll
    for (int v = 0; v < number; ++v) {
      const bool halves = V >= 2 * step;  // more than one channel is left
      const A kept = halves && upper ? values[halves ? v + number : v] : values[v];
      const A given = halves && !upper ? values[halves ? v + number : v] : values[v];
      values[v] = kept + __shfl_xor_sync(all, given, step);
    }
  }
}

template <int V>
__device__ int first_of_four() {
  const int lane = lane_of_thread();
  return lane % 2 * (V / 2) + lane / 2 % 2 * (V / 4);
}

template <typename T, int V>
struct ByRows {
  using A = Accumulate<T>;
  static constexpr int kOfLane = V < 4 ? 1 : V / 4;  // channels, of a bin's sum

  const Pack<T, V>* cells;  // in shared memory
  WeighedRow<A>* rows;      // (kMostBins, 4), the warp's own
  Sizes sizes;
  int channels;  // that there are of V
  T* output;     // of the block's first channel
  int64_t box_stride, bin_stride, channel_stride;

  __device__ void pool(const AlignedBox<A>& box, int64_t index) const {
    const int lane = lane_of_thread(), bin = lane / 4, channel = first_of_four<V>();
    const CellOfLane<A> y(box.y, sizes.pooled_height, sizes.height),
        x(box.x, sizes.pooled_width, sizes.width);
    rows[lane] = {y.cell == kNoCell ? kNoCell : y.cell * int(sizes.width), y.weight / A(kSamples * kSamples)};
    __syncwarp();
    const Pack<T, V>* column = cells + max(x.cell, 0);
    T* to = output + index * box_stride + bin * bin_stride + channel * channel_stride;
    const int64_t bin_row = sizes.pooled_width * bin_stride;
    // Where lanes are more than channels some have the same.
    const int exist = bin < sizes.pooled_width && (V >= 4 || lane % 4 < V) ? channels - channel : 0;
#pragma unroll 1
    for (int bin_y = 0; bin_y < sizes.pooled_height; ++bin_y, to += bin_row) {
      WeighedRow<A> bin_rows[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        bin_rows[k] = rows[bin_y * 4 + k];
      }
      A sum[V] = {};
      const bool empty = bin_rows[0].cell == kNoCell;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const Pack<T, V> cell = column[empty ? 0 : bin_rows[k].cell];
#pragma unroll
        for (int v = 0; v < V; ++v) {
          sum[v] += bin_rows[k].weight * A(cell.values[v]);
        }
      }
#pragma unroll
      for (int v = 0; v < V; ++v) {
        sum[v] *= x.weight;
      }
      sum_of_four(sum);
#pragma unroll
      for (int v = 0; v < kOfLane; ++v) {
        if (v < exist) {
          to[v * channel_stride] = T(empty || x.cell == kNoCell ? A(0) : sum[v]);
        }
      }
    }
    __syncwarp();  // rows are free again
  }
};

template <typename T, int V>
__global__ void __launch_bounds__(kRowWarps* kWarp, 1)
    by_rows_kernel(roi::Features<T> input, BoxesByImage<Accumulate<T>> boxes, Mean<Accumulate<T>> mean,
                   Sizes sizes, int groups, int chunks, roi::Output<T> output) {
  using A = Accumulate<T>;
  extern __shared__ __align__(16) char shared[];
  __shared__ WeighedRow<A> rows[kRowWarps][kWarp];
  const int chunk = blockIdx.x % chunks, group = blockIdx.x / chunks % groups;
  const int image = blockIdx.x / chunks / groups;
  const int start = boxes.starts[image], count = boxes.starts[image + 1] - start;
  const int first = start + int64_t(count) * chunk / chunks;
  const int end = start + int64_t(count) * (chunk + 1) / chunks;
  if (first == end) {
    return;
  }
  const int64_t channel = int64_t(group) * V, bins = sizes.bins();
  const int channels = min(int64_t(V), sizes.channels - channel);
  const bool impossible = image == sizes.images;
  const int64_t channel_stride = output.channels_last ? 1 : bins;
  auto* cells = reinterpret_cast<Pack<T, V>*>(shared);
  const ByRows<T, V> block{cells,
                           rows[warp_of_thread()],
                           sizes,
                           channels,
                           output.values + channel * channel_stride,
                           sizes.channels * bins,
                           output.channels_last ? sizes.channels : 1,
                           channel_stride};
  if (impossible) {
    for (int64_t i = int64_t(first) * bins * channels + threadIdx.x; i < int64_t(end) * bins * channels;
         i += blockDim.x) {
      const int64_t bin = i / channels % bins, box = boxes.order[i / channels / bins];
      block.output[box * block.box_stride + bin * block.bin_stride + i % channels * channel_stride] = T(0);
    }
    return;
  }
  const roi::CellReader<T, V, false> reader{
      nullptr,
      input.data + image * input.image_stride + channel * input.channel_stride,
      input.channel_stride,
      input.row_stride,
      input.column_stride,
      int(sizes.width),
      channels};
  reader.stage(cells, sizes.height);
  for (int position = first + warp_of_thread(); position < end; position += blockDim.x / kWarp) {
    block.pool(mean.box(boxes.row(position), sizes), boxes.order[position]);
  }
}

template <typename T, int V>
void launch_by_rows(const Tensor& input, const BoxesByImage<Accumulate<T>>& boxes, const Sizes& sizes,
                    const Mean<Accumulate<T>>& mean, const roi::Output<T>& output) {
  const int64_t shared = sizes.cells() * sizeof(Pack<T, V>),
                rows = kRowWarps * kWarp * sizeof(WeighedRow<Accumulate<T>>);
  const int threads = shared > 100 * 1024 ? 1024 : 512;
  const int64_t blocks_per_processor = std::min<int64_t>(1024 / threads, 227 * 1024 / (shared + rows + 1024));
  const int64_t groups = ceil_div(sizes.channels, V);
  const int64_t slots =
      std::max<int64_t>(blocks_per_processor, 1) * device_attribute(cudaDevAttrMultiProcessorCount);
  const int chunks = roi::chunks_for(groups * sizes.images, slots);
  const auto kernel = by_rows_kernel<T, V>;
  STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  kernel<<<(sizes.images + 1) * groups * chunks, threads, shared, current_stream(input)>>>(
      roi::Features<T>(input), boxes, mean, sizes, int(groups), chunks, output);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

// False, and nothing written, where a box has too many samples or an image too many cells.
template <typename T>
bool launch_by_rows(const Tensor& input, const Tensor& boxes, const Sizes& sizes,
                    const Mean<Accumulate<T>>& mean, const roi::Output<T>& output) {
  constexpr int V = 16 / sizeof(T);
  const int64_t most = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) -
                       kRowWarps * kWarp * sizeof(WeighedRow<Accumulate<T>>);
  const int64_t channel_bytes = sizes.cells() * sizeof(T);
  if (mean.sampling_ratio != kSamples || std::max(sizes.pooled_height, sizes.pooled_width) > kMostBins ||
      channel_bytes * V / 2 > most) {
    return false;
  }
  const roi::OrderedBoxes<Accumulate<T>> ordered(boxes, sizes);
  if (channel_bytes * V <= most) {
    launch_by_rows<T, V>(input, ordered.view(), sizes, mean, output);
  } else {
    launch_by_rows<T, V / 2>(input, ordered.view(), sizes, mean, output);
  }
  return true;
}

}  // namespace detector::roi_align

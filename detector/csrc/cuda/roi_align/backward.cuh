// The backward pass of roi_align. A warp owns a piece of one row of an image, in shared memory, with V
// channels a lane. It walks all boxes in order and adds what falls into the piece, so no two threads add to
// one place.
#pragma once

#include "../roi/gather.cuh"
#include "../roi/parts.cuh"
#include "mean.cuh"

namespace detector::roi_align {

using roi::BoxesByImage;
using roi::Sizes;

constexpr int kPiece = 32;  // columns

template <typename A>
__device__ bool may_touch(const Axis<A>& axis, int bins, int first, int count) {
  const A end = axis.start + A(bins) * axis.bin;
  const A low = min(axis.start, end), high = max(axis.start, end);
  return axis.grid > 0 && A(first + count) >= low - A(1) && A(first) <= high + A(2);
}

constexpr int kBins = 8;  // of one row, whose gradients are loaded together

// One of the samples of an axis, a lane each.
template <typename A>
struct LaneSample {
  int bin;
  Sample<A> sample;

  // Number `i` of those of the bins from `first` on; one past their end is not inside.
  __device__ LaneSample(const Axis<A>& axis, int first, int end, int i, int size)
      : bin(first + i / max(axis.grid, 1)), sample(axis.sample(bin, i % max(axis.grid, 1), size)) {
    sample.inside = sample.inside && bin < end && axis.grid > 0;
  }
};

template <typename T, int V>
struct RowPiece {
  using A = Accumulate<T>;
  Pack<A, V>* sums;  // (columns, kWarp)
  int row, first_column, columns, height, width, pooled_height, pooled_width;
  int64_t channels;

  __device__ void add(int column, A weight, const A (&value)[V]) const {
    if (unsigned(column - first_column) < unsigned(columns)) {
      Pack<A, V>& sum = sums[(column - first_column) * kWarp + lane_of_thread()];
      Pack<A, V> next = sum;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        next.values[v] += weight * value[v];
      }
      sum = next;
    }
  }

  // The gradients of bins first..end of each row of bins, times the weights of this row of cells. False
  // where no weight is.
  __device__ bool load(const AlignedBox<A>& box, const T* grad, bool exists, int first, int end,
                       A (&values)[kBins][V]) const {
#pragma unroll
    for (int q = 0; q < kBins; ++q) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        values[q][v] = 0;
      }
    }
    bool any = false;
    const A count = box.count();
    for (int base = 0; base < pooled_height * box.y.grid; base += kWarp) {
      const LaneSample<A> lane(box.y, 0, pooled_height, base + lane_of_thread(), height);
      A weight = lane.sample.low == row ? lane.sample.low_weight : A(0);
      weight += lane.sample.high == row ? lane.sample.high_weight : A(0);
      weight /= count;
      unsigned mask = __ballot_sync(0xffffffffu, lane.sample.inside && weight != A(0));
      any = any || mask != 0;
      for (; mask != 0; mask &= mask - 1) {
        const int from = __ffs(mask) - 1;
        const A scale = __shfl_sync(0xffffffffu, weight, from);
        const int ph = __shfl_sync(0xffffffffu, lane.bin, from);
        const T* bins = grad + int64_t(ph) * pooled_width * channels;
        Pack<T, V> packs[kBins];
#pragma unroll
        for (int q = 0; q < kBins; ++q) {
          packs[q] = first + q < end && exists
                         ? *reinterpret_cast<const Pack<T, V>*>(bins + (first + q) * channels)
                         : Pack<T, V>{};
        }
#pragma unroll
        for (int q = 0; q < kBins; ++q) {
#pragma unroll
          for (int v = 0; v < V; ++v) {
            values[q][v] += scale * A(packs[q].values[v]);
          }
        }
      }
    }
    return any;
  }

  __device__ void add_box(const AlignedBox<A>& box, const T* grad, bool exists) const {
    const int grid = box.x.grid;
    if (grid == 0) {
      return;
    }
    const int together = max(1, min(kBins, kWarp / grid));
    for (int first = 0; first < pooled_width; first += together) {
      const int end = min(first + together, pooled_width);
      A values[kBins][V];
      bool loaded = false;
      for (int base = 0; base < together * grid; base += kWarp) {
        const LaneSample<A> lane(box.x, first, end, base + lane_of_thread(), width);
        const unsigned mask =
            __ballot_sync(0xffffffffu, lane.sample.inside && lane.sample.high >= first_column &&
                                           lane.sample.low < first_column + columns);
        if (mask == 0) {
          continue;
        }
        if (!loaded && !load(box, grad, exists, first, end, values)) {
          return;  // no sample of the box weighs this row
        }
        loaded = true;
#pragma unroll
        for (int q = 0; q < kBins; ++q) {
          if (q < together) {
            const unsigned lanes = grid >= kWarp ? 0xffffffffu : ((1u << grid) - 1) << (q * grid);
            for (unsigned samples = mask & lanes; samples != 0; samples &= samples - 1) {
              const int from = __ffs(samples) - 1;
              const int low = __shfl_sync(0xffffffffu, lane.sample.low, from);
              const A high_weight = __shfl_sync(0xffffffffu, lane.sample.high_weight, from);
              add(low, A(1) - high_weight, values[q]);
              add(min(low + 1, width - 1), high_weight, values[q]);
            }
          }
        }
      }
    }
  }
};

// The axis of lane `from`.
template <typename A>
__device__ Axis<A> broadcast(Axis<A> axis, int from) {
  axis.start = __shfl_sync(0xffffffffu, axis.start, from);
  axis.bin = __shfl_sync(0xffffffffu, axis.bin, from);
  axis.grid = __shfl_sync(0xffffffffu, axis.grid, from);
  return axis;
}

template <typename T, int V>
__global__ void __launch_bounds__(kWarp)
    backward_kernel(const T* grad, BoxesByImage<Accumulate<T>> boxes, Mean<Accumulate<T>> mean, Sizes sizes,
                    int groups, int chunks, roi::Pieces pieces, Accumulate<T>* parts) {
  using A = Accumulate<T>;
  extern __shared__ char shared[];
  const int lane = lane_of_thread(), height = sizes.height, width = sizes.width;
  const int group = blockIdx.x % groups;
  int rest = blockIdx.x / groups;
  const int first = rest % pieces.number * pieces.size;
  rest /= pieces.number;
  const int row = rest % height;
  rest /= height;
  const int chunk = rest % chunks, image = rest / chunks;
  const int columns = min(pieces.size, width - first);
  const RowPiece<T, V> piece{reinterpret_cast<Pack<A, V>*>(shared),
                             row,
                             first,
                             columns,
                             height,
                             width,
                             sizes.pooled_height,
                             sizes.pooled_width,
                             sizes.channels};
  const int64_t channel = (int64_t(group) * kWarp + lane) * V;
  const bool exists = channel < sizes.channels;
  for (int i = 0; i < columns; ++i) {
    piece.sums[i * kWarp + lane] = {};
  }
  const int start = boxes.starts[image];
  const int64_t count = boxes.starts[image + 1] - start;
  const int end = start + int(count * (chunk + 1) / chunks);
  for (int base = start + int(count * chunk / chunks); base < end; base += kWarp) {
    const int position = min(base + lane, end - 1), index = boxes.order[position];
    const AlignedBox<A> mine = mean.box(boxes.rows + 5 * int64_t(index), sizes);
    const bool hit = base + lane < end && may_touch(mine.y, sizes.pooled_height, row, 1) &&
                     may_touch(mine.x, sizes.pooled_width, first, columns);
    for (unsigned hits = __ballot_sync(0xffffffffu, hit); hits != 0; hits &= hits - 1) {
      const int from = __ffs(hits) - 1;
      AlignedBox<A> box = mine;
      box.y = broadcast(mine.y, from);
      box.x = broadcast(mine.x, from);
      const int64_t row_of_grad = __shfl_sync(0xffffffffu, index, from);
      piece.add_box(box, grad + row_of_grad * sizes.bins() * sizes.channels + channel, exists);
    }
  }
  if (!exists) {
    return;
  }
  // (chunks, N, H, W, C)
  A* to = parts + ((int64_t(chunk) * sizes.images + image) * sizes.cells() + int64_t(row) * width + first) *
                      sizes.channels;
  for (int column = 0; column < columns; ++column) {
    *reinterpret_cast<Pack<A, V>*>(to + column * sizes.channels + channel) =
        piece.sums[column * kWarp + lane];
  }
}

// grad: (R, PH, PW, C), contiguous.
template <typename T, int V>
void launch_backward(const T* grad, const BoxesByImage<Accumulate<T>>& boxes, const Mean<Accumulate<T>>& mean,
                     const Sizes& sizes, bool channels_last, const Tensor& output) {
  using A = Accumulate<T>;
  const cudaStream_t stream = current_stream(output);
  const roi::Pieces pieces(sizes.width, kPiece);
  const int64_t groups = ceil_div(sizes.channels, kWarp * V);
  const int64_t shared = pieces.size * kWarp * V * sizeof(A);
  const int64_t blocks = sizes.images * sizes.height * pieces.number * groups;
  // Most boxes meet in the middle of an image: several waves even that out.
  const int64_t slots =
      roi::device_attribute(cudaDevAttrMultiProcessorCount) * (227 * 1024 / (shared + 1024));
  const int chunks = int(std::clamp<int64_t>(ceil_div(3 * slots, blocks), 1, 8));
  const bool direct = chunks == 1 && channels_last && std::is_same_v<T, A>;
  const int64_t of_image = sizes.cells() * sizes.channels;
  const Tensor parts = direct ? output
                              : torch::stable::new_empty(output, {chunks, sizes.images, of_image},
                                                         accumulate_type(output.scalar_type()));
  auto* sums = static_cast<A*>(parts.mutable_data_ptr());
  backward_kernel<T, V><<<blocks * chunks, kWarp, shared, stream>>>(grad, boxes, mean, sizes, int(groups),
                                                                    chunks, pieces, sums);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  auto* to = static_cast<T*>(output.mutable_data_ptr());
  if (!channels_last) {
    roi::transpose(roi::Strided<A>{sums, sizes.images * of_image, of_image, sizes.channels, 1, chunks,
                                   sizes.cells(), sizes.channels},
                   sizes.images, to, stream);
  } else if (!direct) {
    roi::sum_parts(sums, chunks, sizes.images * of_image, to, stream);
  }
}

template <typename T>
void launch_backward(const Tensor& grad, const Tensor& boxes, const Sizes& sizes,
                     const Mean<Accumulate<T>>& mean, bool channels_last, const Tensor& output) {
  const roi::OrderedBoxes<Accumulate<T>> ordered(boxes, sizes);
  Tensor last = torch::stable::contiguous(grad);
  if (!channels_last) {
    const Tensor dense = last;
    last = torch::stable::new_empty(grad, {sizes.boxes, sizes.bins(), sizes.channels});
    roi::channels_to_last(static_cast<const T*>(dense.const_data_ptr()), sizes.boxes, sizes.channels,
                          sizes.bins(), static_cast<T*>(last.mutable_data_ptr()), current_stream(grad));
  }
  const auto* values = static_cast<const T*>(last.const_data_ptr());
  constexpr int V = 16 / sizeof(Accumulate<T>);
  if (sizes.channels % V == 0 && reinterpret_cast<uintptr_t>(values) % (V * sizeof(T)) == 0) {
    launch_backward<T, V>(values, ordered.view(), mean, sizes, channels_last, output);
  } else {
    launch_backward<T, 1>(values, ordered.view(), mean, sizes, channels_last, output);
  }
}

}  // namespace detector::roi_align

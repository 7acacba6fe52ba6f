// RoI align on a GPU, without float atomics or host synchronisation.
#include <torch/csrc/stable/library.h>

#include "../roi_align.h"
#include "roi/gather.cuh"
#include "roi/parts.cuh"

namespace detector::roi_align {
namespace {

using roi::BoxesByImage;
using roi::Pack;
using roi::Sizes;

template <typename A>
struct Mean {
  A scale;
  int sampling_ratio;
  bool aligned;

  __device__ AlignedBox<A> box(const A* values, const Sizes& sizes) const {
    return {values, scale, sizes.pooled_height, sizes.pooled_width, sampling_ratio, aligned};
  }

  template <typename Reader, int V>
  __device__ void pool(const Reader& reader, const A* values, int ph, int pw, const Sizes& sizes, A (&sum)[V],
                       int32_t (&)[V]) const {
    const AlignedBox<A> box = this->box(values, sizes);
    const int height = sizes.height, width = sizes.width;
    if (sampling_ratio == 2) {  // the usual number, unrolled
      const Sample<A> y[2] = {box.y.sample(ph, 0, height), box.y.sample(ph, 1, height)};
      const Sample<A> x[2] = {box.x.sample(pw, 0, width), box.x.sample(pw, 1, width)};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        add(reader, y[i / 2], x[i % 2], sum);
      }
    } else {
      const int end_y = box.y.end_sample(ph, height), end_x = box.x.end_sample(pw, width);
      for (int i = box.y.first_sample(ph, height); i < end_y; ++i) {
        const Sample<A> y = box.y.sample(ph, i, height);
        for (int j = box.x.first_sample(pw, width); j < end_x; ++j) {
          add(reader, y, box.x.sample(pw, j, width), sum);
        }
      }
    }
    const A count = box.count();
#pragma unroll
    for (int v = 0; v < V; ++v) {
      sum[v] /= count;
    }
  }

 private:
  template <typename Reader, int V>
  __device__ static void add(const Reader& reader, const Sample<A>& y, const Sample<A>& x, A (&sum)[V]) {
    if (y.inside && x.inside) {
      add(reader, y.low, x.low, y.low_weight * x.low_weight, sum);
      add(reader, y.low, x.high, y.low_weight * x.high_weight, sum);
      add(reader, y.high, x.low, y.high_weight * x.low_weight, sum);
      add(reader, y.high, x.high, y.high_weight * x.high_weight, sum);
    }
  }

  template <typename Reader, int V>
  __device__ static void add(const Reader& reader, int y, int x, A weight, A (&sum)[V]) {
    A cell[V];
    reader.load(y, x, cell);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      sum[v] += weight * cell[v];
    }
  }
};

// The backward pass: a warp owns a piece of one row of an image, in shared memory, with V channels a lane.
// It walks all boxes in order and adds what falls into the piece, so no two threads add to one place.
constexpr int kPiece = 32;  // columns

template <typename A>
__device__ bool may_touch(const Axis<A>& axis, int bins, int first, int count) {
  const A end = axis.start + A(bins) * axis.bin;
  const A low = min(axis.start, end), high = max(axis.start, end);
  return A(first + count) >= low - A(2) && A(first) <= high + A(2);
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
    bool hit = false;
    if (base + lane < end) {
      const auto box = mean.box(boxes.row(base + lane), sizes);
      hit = may_touch(box.y, sizes.pooled_height, row, 1) &&
            may_touch(box.x, sizes.pooled_width, first, columns);
    }
    for (unsigned hits = __ballot_sync(0xffffffffu, hit); hits != 0; hits &= hits - 1) {
      const int position = base + __ffs(hits) - 1;
      piece.add_box(mean.box(boxes.row(position), sizes),
                    grad + int64_t(boxes.order[position]) * sizes.bins() * sizes.channels + channel, exists);
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
    roi::transpose(
        roi::Strided<T>{static_cast<const T*>(dense.const_data_ptr()), 0, sizes.bins() * sizes.channels,
                        sizes.bins(), 1, 1, sizes.channels, sizes.bins()},
        sizes.boxes, static_cast<T*>(last.mutable_data_ptr()), current_stream(grad));
  }
  const auto* values = static_cast<const T*>(last.const_data_ptr());
  constexpr int V = 16 / sizeof(Accumulate<T>);
  if (sizes.channels % V == 0 && reinterpret_cast<uintptr_t>(values) % (V * sizeof(T)) == 0) {
    launch_backward<T, V>(values, ordered.view(), mean, sizes, channels_last, output);
  } else {
    launch_backward<T, 1>(values, ordered.view(), mean, sizes, channels_last, output);
  }
}

Tensor forward(const Tensor& input, const Tensor& boxes, int64_t pooled_height, int64_t pooled_width,
               double spatial_scale, int64_t sampling_ratio, bool aligned, bool channels_last) {
  constexpr const char* op = "roi_align";
  const Sizes sizes = roi::check_forward(op, input, boxes, pooled_height, pooled_width, spatial_scale);
  const int ratio = checked_ratio(op, sampling_ratio);
  if (validate_values()) {
    roi::check_values(op, on_host(boxes), sizes);
  }
  const auto guard = device_guard(input);
  const Tensor output =
      roi::new_output(input, sizes.boxes, sizes.channels, pooled_height, pooled_width, channels_last);
  if (sizes.boxes > 0 && sizes.channels > 0) {
    dispatch_floating(op, "input", input.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      using A = Accumulate<T>;
      roi::gather<T>(input, boxes, sizes, Mean<A>{A(spatial_scale), ratio, aligned},
                     {static_cast<T*>(output.mutable_data_ptr()), nullptr, channels_last});
    });
  }
  return output;
}

Tensor backward(const Tensor& grad, const Tensor& boxes, int64_t images, int64_t height, int64_t width,
                double spatial_scale, int64_t sampling_ratio, bool aligned, bool channels_last) {
  constexpr const char* op = "roi_align_backward";
  const Sizes sizes = roi::check_backward(op, grad, boxes, images, height, width, channels_last);
  const int ratio = checked_ratio(op, sampling_ratio);
  if (validate_values()) {
    roi::check_values(op, on_host(boxes), sizes);
  }
  const auto guard = device_guard(grad);
  const Tensor output = roi::new_output(grad, images, sizes.channels, height, width, channels_last);
  if (images > 0 && sizes.channels > 0) {
    dispatch_floating(op, "grad", grad.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      const Mean<Accumulate<T>> mean{Accumulate<T>(spatial_scale), ratio, aligned};
      launch_backward<T>(grad, boxes, sizes, mean, channels_last, output);
    });
  }
  return output;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("roi_align_forward", TORCH_BOX(&forward));
  m.impl("roi_align_backward", TORCH_BOX(&backward));
}

}  // namespace detector::roi_align

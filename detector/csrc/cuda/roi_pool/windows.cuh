// The forward pass of roi_pool by windows. A block keeps a few channels of one image in shared memory, and of
// each cell not its value but the maximum of the window that begins there. A bin of 5 x 7 cells is the
// maximum of four windows of 4 x 4. The sides of windows double; boxes go by the largest that fit all their
// bins.
#pragma once

#include "../../roi_pool.h"
#include "../roi/gather.cuh"

namespace detector::roi_pool {

using roi::Sizes;

constexpr int kSides = 4;  // 1, 2, 4 and 8 cells
constexpr int kClasses = kSides * kSides;

// The spans of a box: (PH + PW,), rows first.
template <typename A>
__global__ void spans_kernel(const A* rows, A scale, Sizes sizes, Span* spans, int* groups) {
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= sizes.boxes) {
    return;
  }
  const A* row = rows + 5 * int64_t(r);
  const PooledBox<A> box(row, scale, sizes.pooled_height, sizes.pooled_width);
  Span* to = spans + int64_t(r) * (sizes.pooled_height + sizes.pooled_width);
  const auto largest = [&](int bins, auto span_of) {  // the logarithm of the side that fits all bins
    int least = 1 << (kSides - 1);
    for (int i = 0; i < bins; ++i) {
      const Span span = span_of(i);
      *to++ = span;
      least = span.empty() ? least : min(least, span.end - span.begin);
    }
    return 31 - __clz(least);
  };
  const int y = largest(sizes.pooled_height, [&](int i) { return box.rows(i, sizes.height); });
  const int x = largest(sizes.pooled_width, [&](int i) { return box.columns(i, sizes.width); });
  const int image = roi::is_valid(row, sizes.images) ? int(row[0]) : int(sizes.images);
  groups[r] = image * kClasses + (image < sizes.images ? y * kSides + x : 0);
}

struct GroupOf {
  const int* groups;
  __device__ int operator()(int r) const { return groups[r]; }
};

// Boxes in order of image and class; starts: (N * kClasses + 2,).
struct ClassedBoxes {
  const int *order, *starts;
  const Span* spans;
};

// Maxima of windows of 2^y x 2^x cells, cut off at the border of the image, and where they were found first,
// counted in cells from the window's first. Without a value above the lowest float it is that.
template <typename T, int V>
class Windows {
 public:
  using A = Accumulate<T>;

  __device__ Windows(char* shared, int height, int width)
      : values_(reinterpret_cast<Pack<T, V>*>(shared)),
        offsets_(reinterpret_cast<Pack<uint16_t, V>*>(values_ + height * width)),
        height_(height),
        width_(width) {}

  template <typename Reader>
  __device__ void resize(const Reader& reader, int y, int x) {
    __syncthreads();
    if (y != y_ || x < x_) {
      reader.stage(values_, height_);
      clear();
      y_ = x_ = 0;
    }
    for (; y_ < y; ++y_) {
      grow(width_ << y_, [](int) { return true; });
    }
    for (; x_ < x; ++x_) {
      const int side = 1 << x_, last = width_ - side;
      grow(side, [&](int i) { return i % width_ < last; });
    }
  }

  // The maximum of a bin of at least the size of a window.
  __device__ void pool(const Span& rows, const Span& columns, A (&best)[V], int32_t (&where)[V]) const {
    const int height = 1 << y_, width = 1 << x_;
    for (int y = rows.begin; y < rows.end; y += 2 * height) {
      for (int x = columns.begin; x < columns.end; x += 2 * width) {
        pool_four(min(y, rows.end - height), min(y + height, rows.end - height), min(x, columns.end - width),
                  min(x + width, columns.end - width), best, where);
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      where[v] = best[v] == none() ? -1 : where[v];
      best[v] = best[v] == none() ? A(kLowest) : best[v];
    }
  }

  __device__ static A none() { return A(T(kLowest)); }

 private:
  __device__ void clear() {
    for (int i = threadIdx.x; i < height_ * width_; i += blockDim.x) {
      Pack<T, V> pack = values_[i];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        pack.values[v] = A(pack.values[v]) > A(kLowest) ? pack.values[v] : T(kLowest);
      }
      values_[i] = pack;
      offsets_[i] = {};
    }
    __syncthreads();
  }

  // Joins each window with the one that begins `step` cells later, in place: cells ascend, and those of a
  // round are read before any of them is written.
  template <typename HasOther>
  __device__ void grow(int step, const HasOther& has_other) {
    const int cells = height_ * width_;
    for (int base = 0; base < cells; base += blockDim.x) {
      const int i = base + threadIdx.x;
      const bool joins = i + step < cells && has_other(i);
      Pack<T, V> pack, other;
      Pack<uint16_t, V> offset, other_offset;
      if (joins) {
        pack = values_[i];
        other = values_[i + step];
        offset = offsets_[i];
        other_offset = offsets_[i + step];
      }
      __syncthreads();
      if (joins) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const A a = A(pack.values[v]), b = A(other.values[v]);
          const int at = other_offset.values[v] + step;
          const bool takes = b > a || (b == a && at < offset.values[v]);
          pack.values[v] = takes ? other.values[v] : pack.values[v];
          offset.values[v] = takes ? uint16_t(at) : offset.values[v];
        }
        values_[i] = pack;
        offsets_[i] = offset;
      }
    }
    __syncthreads();
  }

  __device__ void pool_four(int top, int bottom, int left, int right, A (&best)[V],
                            int32_t (&where)[V]) const {
    const int cell[4] = {top * width_ + left, top * width_ + right, bottom * width_ + left,
                         bottom * width_ + right};
    A value[4][V], most[V];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const Pack<T, V> pack = values_[cell[k]];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        value[k][v] = A(pack.values[v]);
      }
    }
    int32_t at[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      most[v] = max(max(value[0][v], value[1][v]), max(value[2][v], value[3][v]));
      at[v] = std::numeric_limits<int32_t>::max();
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const Pack<uint16_t, V> offset = offsets_[cell[k]];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        at[v] = value[k][v] == most[v] ? min(at[v], cell[k] + offset.values[v]) : at[v];
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const bool takes = most[v] > best[v] || (most[v] == best[v] && at[v] < where[v]);
      best[v] = takes ? most[v] : best[v];
      where[v] = takes ? at[v] : where[v];
    }
  }

  Pack<T, V>* values_;
  Pack<uint16_t, V>* offsets_;
  int height_, width_, y_ = -1, x_ = 0;
};

// The bins of boxes first..end of the order, a thread each.
template <typename T, int V>
__device__ void pool_boxes(const Windows<T, V>& windows, const ClassedBoxes& boxes, int first, int end,
                           const Sizes& sizes, bool impossible, int64_t channel,
                           const roi::Output<T>& output) {
  using A = Accumulate<T>;
  const int bins = sizes.bins(), pooled_width = sizes.pooled_width;
  int position = first + threadIdx.x / bins, bin = threadIdx.x % bins;
  const int step = blockDim.x / bins, bin_step = blockDim.x % bins;
  while (position < end) {
    const int64_t box = boxes.order[position];
    const Span* spans = boxes.spans + box * (sizes.pooled_height + pooled_width);
    const Span rows = spans[bin / pooled_width], columns = spans[sizes.pooled_height + bin % pooled_width];
    const bool empty = impossible || rows.empty() || columns.empty();
    A values[V];
    int32_t where[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      values[v] = empty ? A(0) : Windows<T, V>::none();
      where[v] = -1;
    }
    if (!empty) {
      windows.pool(rows, columns, values, where);
    }
    roi::store(output.values, output.channels_last, box, bin, bins, channel, sizes.channels, values);
    roi::store(output.argmax, output.channels_last, box, bin, bins, channel, sizes.channels, where);
    position += step;
    bin += bin_step;
    if (bin >= bins) {
      bin -= bins;
      ++position;
    }
  }
}

template <typename T, int V>
__global__ void __launch_bounds__(1024)
    windows_kernel(roi::Features<T> input, ClassedBoxes boxes, Sizes sizes, int groups, int chunks,
                   roi::Output<T> output) {
  extern __shared__ __align__(16) char shared[];
  const int chunk = blockIdx.x % chunks, group = blockIdx.x / chunks % groups;
  const int image = blockIdx.x / chunks / groups;
  const bool impossible = image == sizes.images;
  const int64_t channel = int64_t(group) * V;
  const roi::CellReader<T, V, true> reader{
      nullptr,
      input.data + (impossible ? 0 : image * input.image_stride + channel * input.channel_stride),
      input.channel_stride,
      input.row_stride,
      input.column_stride,
      int(sizes.width),
      int(min(int64_t(V), sizes.channels - channel))};
  Windows<T, V> windows(shared, sizes.height, sizes.width);
  for (int of_class = 0; of_class < (impossible ? 1 : kClasses); ++of_class) {
    const int start = boxes.starts[image * kClasses + of_class];
    const int64_t count = boxes.starts[image * kClasses + of_class + 1] - start;
    const int first = start + int(count * chunk / chunks), end = start + int(count * (chunk + 1) / chunks);
    if (first < end) {
      if (!impossible) {
        windows.resize(reader, of_class / kSides, of_class % kSides);
      }
      pool_boxes<T, V>(windows, boxes, first, end, sizes, impossible, channel, output);
    }
  }
}

// False, and nothing written, where the windows of V channels fit no block.
template <typename T, int V>
bool pool_windows(const Tensor& input, const Tensor& boxes, const Sizes& sizes, Accumulate<T> scale,
                  const roi::Output<T>& output) {
  using A = Accumulate<T>;
  constexpr int64_t of_cell = sizeof(Pack<T, V>) + sizeof(Pack<uint16_t, V>);
  const int64_t shared = sizes.cells() * of_cell;
  if (shared > roi::device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)) {
    if constexpr (V > 1) {
      return pool_windows<T, V / 2>(input, boxes, sizes, scale, output);
    }
    return false;
  }
  const cudaStream_t stream = current_stream(input);
  const int64_t of_box = int64_t(sizes.pooled_height) + sizes.pooled_width;
  const Tensor rows = torch::stable::contiguous(boxes);
  const Tensor spans = torch::stable::new_empty(boxes, {sizes.boxes, of_box, 2}, ScalarType::Int);
  const Tensor of_boxes = torch::stable::new_empty(boxes, {sizes.boxes}, ScalarType::Int);
  const Tensor order = torch::stable::new_empty(boxes, {sizes.boxes}, ScalarType::Int);
  const Tensor starts = torch::stable::new_empty(boxes, {sizes.images * kClasses + 2}, ScalarType::Int);
  constexpr int span_threads = 128;
  spans_kernel<<<blocks_for(sizes.boxes, span_threads), span_threads, 0, stream>>>(
      static_cast<const A*>(rows.const_data_ptr()), scale, sizes,
      static_cast<Span*>(spans.mutable_data_ptr()), static_cast<int*>(of_boxes.mutable_data_ptr()));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  roi::order_boxes(GroupOf{static_cast<const int*>(of_boxes.const_data_ptr())}, sizes.boxes,
                   sizes.images * kClasses, order, starts);
  const ClassedBoxes classed{static_cast<const int*>(order.const_data_ptr()),
                             static_cast<const int*>(starts.const_data_ptr()),
                             static_cast<const Span*>(spans.const_data_ptr())};
  const int threads = shared > 100 * 1024 ? 1024 : 512;
  const int64_t of_processor = std::min<int64_t>(1024 / threads, 227 * 1024 / (shared + 1024));
  const int64_t groups = ceil_div(sizes.channels, V);
  const int64_t slots =
      std::max<int64_t>(of_processor, 1) * roi::device_attribute(cudaDevAttrMultiProcessorCount);
  const int chunks = roi::chunks_for(groups * sizes.images, slots, 0.3);
  const auto kernel = windows_kernel<T, V>;
  STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  kernel<<<(sizes.images + 1) * groups * chunks, threads, shared, stream>>>(
      roi::Features<T>(input), classed, sizes, int(groups), chunks, output);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  return true;
}

template <typename T>
bool pool_windows(const Tensor& input, const Tensor& boxes, const Sizes& sizes, Accumulate<T> scale,
                  const roi::Output<T>& output) {
  return pool_windows<T, 2>(input, boxes, sizes, scale, output);
}

}  // namespace detector::roi_pool

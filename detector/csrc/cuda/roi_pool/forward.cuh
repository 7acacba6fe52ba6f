// The forward pass of roi_pool by windows. A block keeps a few channels of one image in shared memory, and of
// each cell not its value but the maximum of the window that begins there. A bin of 5 x 7 cells is the
// maximum of four windows of 4 x 4. The sides of windows double; boxes go by the largest that fit all their
// bins.
#pragma once

#include "windows.cuh"

namespace detector::roi_pool {

using roi::Sizes;

constexpr int kSides = 4;  // 1, 2, 4 and 8 cells
constexpr int kClasses = kSides * kSides;

// Boxes in order of image and class; starts: (N * kClasses + 2,).
struct ClassedBoxes {
  const int *order, *starts;
  const Bin* bins;  // (R, bins), in the order of the call
};

// The group of each box, its image and the class that tells the sides of its windows, and its bins: a warp
// takes a box.
template <typename A>
__global__ void groups_kernel(const A* rows, A scale, Sizes sizes, int* groups, Bin* bins) {
  const int64_t r = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (r >= sizes.boxes) {
    return;
  }
  const PooledBox<A> box(rows + 5 * r, scale, sizes.pooled_height, sizes.pooled_width);
  const auto largest = [](int number, auto span_of) {  // the logarithm of the side that fits all bins
    int least = 1 << (kSides - 1);
    for (int i = lane_of_thread(); i < number; i += kWarp) {
      const Span span = span_of(i);
      least = span.empty() ? least : min(least, span.end - span.begin);
    }
    return 31 - __clz(__reduce_min_sync(0xffffffffu, least));
  };
  const int log_y = largest(sizes.pooled_height, [&](int i) { return box.rows(i, sizes.height); });
  const int log_x = largest(sizes.pooled_width, [&](int i) { return box.columns(i, sizes.width); });
  const bool valid = roi::is_valid(rows + 5 * r, sizes.images);
  if (lane_of_thread() == 0) {
    const int image = valid ? int(rows[5 * r]) : int(sizes.images);
    groups[r] = image * kClasses + (valid ? log_y * kSides + log_x : 0);
  }
  const int height = 1 << log_y, width = 1 << log_x, row = sizes.width, number = sizes.bins();
  for (int i = lane_of_thread(); i < number; i += kWarp) {
    const Span y = box.rows(i / sizes.pooled_width, sizes.height);
    const Span x = box.columns(i % sizes.pooled_width, sizes.width);
    Bin bin = {};
    if (valid && !y.empty() && !x.empty()) {
      const int down = y.end - height - y.begin, right = x.end - width - x.begin;
      bin = {uint16_t(y.begin * row + x.begin), uint16_t(right), uint16_t(down * row),
             down <= height && right <= width ? kFour : kMore};
    }
    bins[r * number + i] = bin;
  }
}

struct GroupOf {
  const int* groups;
  __device__ int operator()(int r) const { return groups[r]; }
};

// The bins of boxes first..end of the order, of `exist` channels: a thread has the same bin of some boxes.
template <typename T, int V>
__device__ void pool_boxes(const Windows<T, V>& windows, const ClassedBoxes& boxes, int first, int end,
                           const Sizes& sizes, int exist, T* values, int32_t* argmax) {
  const int bins = sizes.bins(), at_once = max(int(blockDim.x) / bins, 1);  // boxes
  const int64_t box_stride = sizes.channels * bins;
  for (int first_bin = 0; first_bin < bins; first_bin += blockDim.x) {
    const int of_thread = threadIdx.x / bins, bin = first_bin + threadIdx.x % bins;
    if (of_thread >= at_once || bin >= bins) {
      continue;
    }
    for (int position = first + of_thread; position < end; position += at_once) {
      const int box = boxes.order[position];
      const Bin place = (boxes.bins + bin)[int64_t(box) * bins];
      Accumulate<T> best[V] = {};
      int32_t where[V];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        where[v] = -1;
      }
      if (place.cover != kNone) {
        windows.pool(place, best, where);
      }
      T* value = values + bin + box * box_stride;
      int32_t* cell = argmax + bin + box * box_stride;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (v < exist) {
          value[v * bins] = T(best[v]);
          cell[v * bins] = where[v];
        }
      }
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
  const roi::CellReader<T, V, false> reader{
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
      pool_boxes(windows, boxes, first, end, sizes, reader.channels, output.values + channel * sizes.bins(),
                 output.argmax + channel * sizes.bins());
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
  const Tensor rows = torch::stable::contiguous(boxes);
  const Tensor of_boxes = torch::stable::new_empty(boxes, {sizes.boxes}, ScalarType::Int);
  const Tensor order = torch::stable::new_empty(boxes, {sizes.boxes}, ScalarType::Int);
  const Tensor starts = torch::stable::new_empty(boxes, {sizes.images * kClasses + 2}, ScalarType::Int);
  const Tensor bins =
      torch::stable::new_empty(boxes, {sizes.boxes, sizes.bins(), int64_t(sizeof(Bin))}, ScalarType::Byte);
  const auto* row = static_cast<const A*>(rows.const_data_ptr());
  auto* group = static_cast<int*>(of_boxes.mutable_data_ptr());
  auto* bin = static_cast<Bin*>(bins.mutable_data_ptr());
  const auto* ordered = static_cast<const int*>(order.const_data_ptr());
  constexpr int of_block = 128;
  groups_kernel<<<blocks_for(sizes.boxes * kWarp, of_block), of_block, 0, stream>>>(row, scale, sizes, group,
                                                                                    bin);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  roi::order_boxes(GroupOf{group}, sizes.boxes, sizes.images * kClasses, order, starts);
  const ClassedBoxes classed{ordered, static_cast<const int*>(starts.const_data_ptr()), bin};
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

// The forward pass of roi_pool by windows. A block keeps a few channels of one image in shared memory, and of
// each cell not its value but the maximum of the window that begins there. A bin of 5 x 7 cells is the
// maximum of four windows of 4 x 4. The sides of windows double; boxes go by the largest that fit all their
// bins. The memory takes what is written only when it comes in whole pieces: a warp writes all of a box.
#pragma once

#include "../../memory.h"
#include "windows.cuh"

namespace detector::roi_pool {

using roi::Sizes;

constexpr int kSides = 4;  // 1, 2, 4 and 8 cells
constexpr int kClasses = kSides * kSides;
constexpr int kUsualBins = 7 * 7;

// Boxes in order of image and class; starts: (N * kClasses + 2,).
struct ClassedBoxes {
  const int *order, *starts;
  const Bin* bins;  // (R, pairs of bins, 2), in that order
};

__host__ __device__ inline int pairs_of(const Sizes& sizes) { return int((sizes.bins() + 1) / 2); }

// The group of each box: its image and the class that tells the sides of its windows.
__global__ void roi_pool_groups_kernel(const float* rows, float scale, Sizes sizes, int* groups) {
  const int64_t r = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (r >= sizes.boxes) {
    return;
  }
  const float* row = rows + 5 * r;
  const PooledBox<float> box(row, scale, sizes.pooled_height, sizes.pooled_width);
  // The logarithm of the largest side that fits all bins; one that the border ends is as wide as its window.
  const auto largest = [](int number, int border, auto span_of) {
    int least = 1 << (kSides - 1);
    for (int i = 0; i < number; ++i) {
      const Span span = span_of(i);
      least = span.empty() || span.end == border ? least : min(least, span.end - span.begin);
    }
    return 31 - __clz(least);
  };
  const int height = int(sizes.height), width = int(sizes.width);
  const int log_y = largest(sizes.pooled_height, height, [&](int i) { return box.rows(i, height); });
  const int log_x = largest(sizes.pooled_width, width, [&](int i) { return box.columns(i, width); });
  const bool valid = roi::is_valid(row, sizes.images);
  groups[r] = valid ? int(row[0]) * kClasses + log_y * kSides + log_x : int(sizes.images) * kClasses;
}

struct GroupOf {
  const int* groups;
  __device__ int operator()(int r) const { return groups[r]; }
};

// The bins of all boxes, a thread each.
__global__ void roi_pool_bins_kernel(const float* rows, float scale, Sizes sizes, const int* groups,
                                     const int* order, Grid grid, Bin* bins) {
  const int pitch = 2 * pairs_of(sizes);
  const int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, position = at / pitch;
  if (position >= sizes.boxes) {
    return;
  }
  const int r = order[position], i = at % pitch, window_class = groups[r] % kClasses;
  const PooledBox<float> box(rows + 5 * int64_t(r), scale, sizes.pooled_height, sizes.pooled_width);
  const Span y = box.rows(i / sizes.pooled_width, sizes.height);
  const Span x = box.columns(i % sizes.pooled_width, sizes.width);
  const int nothing = grid.nothing();
  Bin bin(grid.zero(), nothing, nothing, grid.zero());
  if (i < sizes.bins() && groups[r] < sizes.images * kClasses && !y.empty() && !x.empty()) {
    const int height = 1 << (window_class / kSides), width = 1 << (window_class % kSides);
    const int right = max(x.end - width - x.begin, 0), rows_down = max(y.end - height - y.begin, 0);
    const int first = y.begin * grid.stride() + x.begin, down = rows_down * grid.stride();
    if (rows_down > height || right > width) {
      bin = {first + down + right, right, down, first};
    } else {
      bin = {first, right > 0 ? first + right : nothing, down > 0 ? first + down : nothing,
             right > 0 && down > 0 ? first + down + right : nothing};
    }
  }
  bins[at] = bin;
}

// Keeps an address of global memory in registers, where the compiler would work it out again each time.
template <typename T>
__device__ T* kept(T* address) {
  asm("" : "+l"(address));
  __builtin_assume(__isGlobal(address));
  return address;
}

// The bins of boxes first..end of the order, of `exist` channels. A warp takes a box, or as many as it has
// lanes for, and a lane two bins that lie side by side. Each channel's values are written in pairs too; with
// an odd number of bins each second channel's begin between pairs, and lanes take one value from the lane
// before. Unless kPaired, values are written one by one. kBins, unless 0, tells the compiler how far apart
// values lie.
template <bool kPaired, int kBins, typename T, int V>
__device__ void pool_boxes(const Windows<T, V>& windows, const ClassedBoxes& boxes, int first, int end,
                           const Sizes& sizes, int exist, T* values, int32_t* argmax) {
  const int bins = kBins > 0 ? kBins : sizes.bins(), pairs = (bins + 1) / 2;
  const int at_once = max(kWarp / pairs, 1);
  const uint32_t box_stride = uint32_t(sizes.channels) * bins, pitch = 2 * pairs;
  const int lane = lane_of_thread();
  const bool odd = bins % 2 != 0;
  const int step = int(blockDim.x) / kWarp * at_once;
  for (int first_pair = 0; first_pair < pairs; first_pair += kWarp) {
    const int lane_box = min(lane / pairs, at_once - 1);  // which of the warp's boxes
    const int wanted = first_pair + lane - lane_box * pairs, pair = min(wanted, pairs - 1);
    const bool last = odd && pair == pairs - 1;
    const int before = pair == 0 ? lane + pairs - 1 : lane - 1;
    const Bin* records = boxes.bins + 2 * pair;
    const auto fetch = [&](int position) {
      return load_once<2>(records + uint64_t(uint32_t(min(position, end - 1))) * pitch);
    };
    int position = first + warp_of_thread() * at_once + lane_box;
    Pack<Bin, 2> next = fetch(position);
    uint32_t next_box = boxes.order[min(position, end - 1)];
    for (; position - lane_box < end; position += step) {
      const Bin place[2] = {next.values[0], next.values[1]};
      const uint64_t offset = uint64_t(next_box) * box_stride + 2 * pair;
      T* const box_values = kept(values + offset);
      int32_t* const box_argmax = kept(argmax + offset);
      next = fetch(position + step);  // on its way meanwhile
      next_box = boxes.order[min(position + step, end - 1)];
      const bool exists = position < end && wanted < pairs;
      Key key[2][V];
      windows.pool(place, key);
      Pack<T, 2> value[V];
      Pack<int32_t, 2> cell[V];
#pragma unroll
      for (int v = 0; v < V; ++v) {  // all before the first is written, behind which shuffles would wait
        value[v] = {T(key[0][v].value()), T(key[1][v].value())};
        cell[v] = {key[0][v].cell() - 1, key[1][v].cell() - 1};
        if (kPaired && odd && v % 2 != 0) {
          // The first lane's value before is the last of the channel before.
          const int ended = v > 0 ? v - 1 : 0;
          const auto given = last ? key[0][ended].value() : key[1][v].value();
          const int given_cell = last ? cell[ended].values[0] : cell[v].values[1];
          value[v] = {T(__shfl_sync(0xffffffffu, given, before)), value[v].values[0]};
          cell[v] = {__shfl_sync(0xffffffffu, given_cell, before), cell[v].values[0]};
        }
      }
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const bool between = odd && v % 2 != 0;
        T* const to = box_values + v * bins;
        int32_t* const cell_to = box_argmax + v * bins;
        if (!kPaired) {
          for (int k = 0; k < 2; ++k) {
            if (exists && v < exist && 2 * pair + k < bins) {
              to[k] = value[v].values[k];
              cell_to[k] = cell[v].values[k];
            }
          }
        } else if (exists && (between || !last)) {
          store_once(to - between, value[v]);
          store_once(cell_to - between, cell[v]);
        }
      }
    }
  }
}

template <typename T, int V>
__global__ void __launch_bounds__(kMostThreads<V>)
    roi_pool_windows_kernel(roi::Features<T> input, ClassedBoxes boxes, Sizes sizes, int groups, int chunks,
                            roi::Output<T> output) {
  extern __shared__ __align__(16) char shared[];
  const int chunk = blockIdx.x % chunks, group = blockIdx.x / chunks % groups;
  const int image = blockIdx.x / chunks / groups;
  const bool impossible = image == sizes.images;
  const int64_t channel = int64_t(group) * V;
  const roi::CellReader<T, V, false> reader(input, sizes, image, channel, nullptr);
  const int bins = sizes.bins();
  // Else pairs would be at odd addresses, or a lane's value before in another warp.
  const bool paired = reader.channels == V && sizes.channels * bins % 2 == 0 &&
                      (bins % 2 == 0 || (V > 1 && pairs_of(sizes) <= kWarp));
  Windows<T, V> windows(shared, {int(sizes.height), int(sizes.width)});
  __syncthreads();
  for (int window_class = 0; window_class < (impossible ? 1 : kClasses); ++window_class) {
    const int start = boxes.starts[image * kClasses + window_class];
    const int64_t count = boxes.starts[image * kClasses + window_class + 1] - start;
    const int first = start + int(count * chunk / chunks), end = start + int(count * (chunk + 1) / chunks);
    if (first < end) {
      if (!impossible) {
        windows.resize(reader, window_class / kSides, window_class % kSides);
      }
      T* const values = output.values + channel * bins;
      int32_t* const argmax = output.argmax + channel * bins;
      if (paired && bins == kUsualBins) {
        pool_boxes<true, kUsualBins>(windows, boxes, first, end, sizes, V, values, argmax);
      } else if (paired) {
        pool_boxes<true, 0>(windows, boxes, first, end, sizes, V, values, argmax);
      } else {
        pool_boxes<false, 0>(windows, boxes, first, end, sizes, reader.channels, values, argmax);
      }
    }
  }
}

template <typename T, int V>
void pool_windows(const Tensor& input, const Tensor& boxes, const Request& request, float scale,
                  const roi::Output<T>& output) {
  const Sizes& sizes = request.sizes;
  const Grid grid{int(sizes.height), int(sizes.width)};
  const auto [groups, chunks, launch] = windows_blocks<V>(request);
  const cudaStream_t stream = current_stream(input);
  const Tensor rows = as_contiguous(boxes);
  const int64_t num_groups = sizes.images * kClasses, num_bins = sizes.boxes * 2 * pairs_of(sizes);
  const Tensor scratch = allocate(
      boxes, {num_bins * int64_t(sizeof(Bin)) + (2 * sizes.boxes + num_groups + 2) * int64_t(sizeof(int))},
      ScalarType::Byte);
  const auto* row = rows.const_data_ptr<float>();
  auto* bin = static_cast<Bin*>(scratch.mutable_data_ptr());
  int* box_groups = reinterpret_cast<int*>(bin + num_bins);
  int *order = box_groups + sizes.boxes, *starts = order + sizes.boxes;
  constexpr int block_threads = 128;
  launch_kernel(roi_pool_groups_kernel, blocks_for(sizes.boxes, block_threads), block_threads, 0, stream, row,
                scale, sizes, box_groups);
  roi::order_boxes("roi_pool", GroupOf{box_groups}, sizes.boxes, num_groups, order, starts, boxes);
  launch_kernel(roi_pool_bins_kernel, blocks_for(num_bins, block_threads), block_threads, 0, stream, row,
                scale, sizes, box_groups, order, grid, bin);
  launch_kernel(roi_pool_windows_kernel<T, V>, launch, stream, roi::Features<T>(input),
                ClassedBoxes{order, starts, bin}, sizes, groups, chunks, output);
}

}  // namespace detector::roi_pool

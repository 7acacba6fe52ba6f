// RoI pooling on a GPU, without float atomics or host synchronisation.
#include <torch/csrc/stable/library.h>

#include "../roi_pool.h"
#include "roi/channels_last.cuh"
#include "roi/gather.cuh"

namespace detector::roi_pool {
namespace {

using roi::BoxesByImage;
using roi::Sizes;

template <typename A>
struct Maximum {
  A scale;

  template <typename Reader, int V>
  __device__ void pool(const Reader& reader, const A* values, int ph, int pw, const Sizes& sizes,
                       A (&best)[V], int32_t (&where)[V]) const {
    const PooledBox<A> box(values, scale, sizes.pooled_height, sizes.pooled_width);
    const Span rows = box.rows(ph, sizes.height), columns = box.columns(pw, sizes.width);
    if (rows.empty() || columns.empty()) {
      return;
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      best[v] = A(kLowest);
    }
    for (int y = rows.begin; y < rows.end; ++y) {
      for (int x = columns.begin; x < columns.end; ++x) {
        A cell[V];
        reader.load(y, x, cell);
        const int32_t index = y * int(sizes.width) + x;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          where[v] = cell[v] > best[v] ? index : where[v];
          best[v] = cell[v] > best[v] ? cell[v] : best[v];
        }
      }
    }
  }
};

// The backward pass: a warp owns a tile of an image, in shared memory, and one channel a lane. It walks all
// boxes in order and adds what falls into the tile, so no two threads ever add to one place.
constexpr int kTileRows = 8;
constexpr int kTileColumns = 32;
constexpr int kBatch = 8;  // loads in flight

struct Tile {
  int y, x, rows, columns;

  __device__ bool overlaps_rows(Span span) const { return span.begin < y + rows && span.end > y; }
  __device__ bool overlaps_columns(Span span) const { return span.begin < x + columns && span.end > x; }
};

// The bins that overlap, which are neighbours. All lanes get them.
template <typename Overlaps>
__device__ Span overlapping(int bins, const Overlaps& overlaps) {
  Span result{bins, 0};
  for (int base = 0; base < bins; base += kWarp) {
    const int bin = base + lane_of_thread();
    const unsigned mask = __ballot_sync(0xffffffffu, bin < bins && overlaps(bin));
    if (mask != 0) {
      result.begin = min(result.begin, base + __ffs(mask) - 1);
      result.end = base + kWarp - __clz(mask);
    }
  }
  return result;
}

template <typename T>
__global__ void __launch_bounds__(kWarp)
    backward_kernel(const T* grad, const int32_t* argmax, BoxesByImage<Accumulate<T>> boxes,
                    Accumulate<T> scale, Sizes sizes, int groups, roi::Pieces tile_rows,
                    roi::Pieces tile_columns, bool channels_last, T* output) {
  using A = Accumulate<T>;
  extern __shared__ char shared[];
  A* sums = reinterpret_cast<A*>(shared);  // (rows, columns, kWarp)
  const int lane = lane_of_thread(), height = sizes.height, width = sizes.width, bins = sizes.bins();
  const int group = blockIdx.x % groups;
  int rest = blockIdx.x / groups;
  const int x = rest % tile_columns.number * tile_columns.size;
  rest /= tile_columns.number;
  const int y = rest % tile_rows.number * tile_rows.size;
  const int image = rest / tile_rows.number;
  const Tile tile{y, x, min(tile_rows.size, height - y), min(tile_columns.size, width - x)};
  const int64_t channel = int64_t(group) * kWarp + lane;
  const bool exists = channel < sizes.channels;
  for (int i = 0; i < tile.rows * tile.columns; ++i) {
    sums[i * kWarp + lane] = 0;
  }
  const auto pooled = [&](const A* box) {
    return PooledBox<A>(box, scale, sizes.pooled_height, sizes.pooled_width);
  };
  const int end = boxes.starts[image + 1];
  for (int base = boxes.starts[image]; base < end; base += kWarp) {
    bool hit = false;
    if (base + lane < end) {
      const auto box = pooled(boxes.row(base + lane));
      hit = tile.overlaps_rows({box.rows(0, height).begin, box.rows(sizes.pooled_height - 1, height).end}) &&
            tile.overlaps_columns(
                {box.columns(0, width).begin, box.columns(sizes.pooled_width - 1, width).end});
    }
    for (unsigned hits = __ballot_sync(0xffffffffu, hit); hits != 0; hits &= hits - 1) {
      const int position = base + __ffs(hits) - 1;
      const auto box = pooled(boxes.row(position));
      const Span rows = overlapping(sizes.pooled_height,
                                    [&](int bin) { return tile.overlaps_rows(box.rows(bin, height)); });
      const Span columns = overlapping(
          sizes.pooled_width, [&](int bin) { return tile.overlaps_columns(box.columns(bin, width)); });
      const int64_t first = int64_t(boxes.order[position]) * bins * sizes.channels + channel;
      int ph = rows.begin, pw = columns.begin;
      while (ph < rows.end && pw < columns.end) {
        int32_t where[kBatch];
        T value[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          where[i] = -1;
          if (ph < rows.end && exists) {
            const int64_t at = first + int64_t(ph * sizes.pooled_width + pw) * sizes.channels;
            where[i] = argmax[at];
            value[i] = grad[at];
          }
          if (++pw == columns.end) {
            pw = columns.begin;
            ++ph;
          }
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const int row = where[i] / width - tile.y, column = where[i] % width - tile.x;
          if (where[i] >= 0 && unsigned(row) < unsigned(tile.rows) &&
              unsigned(column) < unsigned(tile.columns)) {
            sums[(row * tile.columns + column) * kWarp + lane] += A(value[i]);
          }
        }
      }
    }
  }
  if (!exists) {
    return;
  }
  const int64_t cell_stride = channels_last ? sizes.channels : 1;
  T* to = output + image * sizes.cells() * sizes.channels + channel * (channels_last ? 1 : sizes.cells());
  for (int row = 0; row < tile.rows; ++row) {
    for (int column = 0; column < tile.columns; ++column) {
      to[(int64_t(tile.y + row) * width + tile.x + column) * cell_stride] =
          T(sums[(row * tile.columns + column) * kWarp + lane]);
    }
  }
}

template <typename T>
void launch_backward(const Tensor& grad, const Tensor& argmax, const Tensor& boxes, const Sizes& sizes,
                     double spatial_scale, bool channels_last, const Tensor& output) {
  using A = Accumulate<T>;
  const roi::OrderedBoxes<A> ordered(boxes, sizes);
  const Tensor values = roi::channels_last<T>(grad, sizes), where = torch::stable::contiguous(argmax);
  const roi::Pieces rows(sizes.height, kTileRows), columns(sizes.width, kTileColumns);
  const int64_t groups = ceil_div(sizes.channels, kWarp);
  const int shared = rows.size * columns.size * kWarp * sizeof(A);
  STD_CUDA_CHECK(
      cudaFuncSetAttribute(backward_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  backward_kernel<T>
      <<<sizes.images * rows.number * columns.number * groups, kWarp, shared, current_stream(grad)>>>(
          static_cast<const T*>(values.const_data_ptr()), static_cast<const int32_t*>(where.const_data_ptr()),
          ordered.view(), A(spatial_scale), sizes, int(groups), rows, columns, channels_last,
          static_cast<T*>(output.mutable_data_ptr()));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& boxes, int64_t pooled_height,
                                   int64_t pooled_width, double spatial_scale, bool channels_last) {
  constexpr const char* op = "roi_pool";
  const Sizes sizes = roi::check_forward(op, input, boxes, pooled_height, pooled_width, spatial_scale);
  if (validate_values()) {
    roi::check_values(op, on_host(boxes), sizes);
  }
  const auto guard = device_guard(input);
  const Tensor output =
      roi::new_output(input, sizes.boxes, sizes.channels, pooled_height, pooled_width, channels_last);
  const Tensor argmax = torch::stable::new_empty(
      input, {sizes.boxes, pooled_height, pooled_width, sizes.channels}, ScalarType::Int);
  if (sizes.boxes > 0 && sizes.channels > 0) {
    dispatch_floating(op, "input", input.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      using A = Accumulate<T>;
      roi::gather<T>(input, boxes, sizes, Maximum<A>{A(spatial_scale)},
                     {static_cast<T*>(output.mutable_data_ptr()),
                      static_cast<int32_t*>(argmax.mutable_data_ptr()), channels_last});
    });
  }
  return {output, argmax};
}

Tensor backward(const Tensor& grad, const Tensor& argmax, const Tensor& boxes, int64_t images, int64_t height,
                int64_t width, double spatial_scale, bool channels_last) {
  constexpr const char* op = "roi_pool_backward";
  const Sizes sizes = roi::check_backward(op, grad, boxes, images, height, width, spatial_scale);
  check_argmax(op, argmax, grad);
  if (validate_values()) {
    roi::check_values(op, on_host(boxes), sizes);
  }
  const auto guard = device_guard(grad);
  const Tensor output = roi::new_output(grad, images, sizes.channels, height, width, channels_last);
  if (images > 0 && sizes.channels > 0) {
    dispatch_floating(op, "grad", grad.scalar_type(), [&](auto zero) {
      launch_backward<decltype(zero)>(grad, argmax, boxes, sizes, spatial_scale, channels_last, output);
    });
  }
  return output;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("roi_pool_forward", TORCH_BOX(&forward));
  m.impl("roi_pool_backward", TORCH_BOX(&backward));
}

}  // namespace detector::roi_pool

// RoI align on a GPU, without float atomics or host synchronisation.
#include <torch/csrc/stable/library.h>

#include "../roi_align.h"
#include "roi/channels_last.cuh"
#include "roi/gather.cuh"

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
    const int end_y = box.y.end_sample(ph, height), end_x = box.x.end_sample(pw, width);
    for (int i = box.y.first_sample(ph, height); i < end_y; ++i) {
      const Sample<A> y = box.y.sample(ph, i, height);
      if (!y.inside) {
        continue;
      }
      for (int j = box.x.first_sample(pw, width); j < end_x; ++j) {
        const Sample<A> x = box.x.sample(pw, j, width);
        if (x.inside) {
          add(reader, y.low, x.low, y.low_weight * x.low_weight, sum);
          add(reader, y.low, x.high, y.low_weight * x.high_weight, sum);
          add(reader, y.high, x.low, y.high_weight * x.low_weight, sum);
          add(reader, y.high, x.high, y.high_weight * x.high_weight, sum);
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

template <typename T, int V>
__global__ void __launch_bounds__(kWarp)
    backward_kernel(const T* grad, BoxesByImage<Accumulate<T>> boxes, Mean<Accumulate<T>> mean, Sizes sizes,
                    int groups, roi::Pieces pieces, bool channels_last, T* output) {
  using A = Accumulate<T>;
  extern __shared__ char shared[];
  auto* sums = reinterpret_cast<Pack<A, V>*>(shared);  // (columns, kWarp)
  const int lane = lane_of_thread(), height = sizes.height, width = sizes.width, bins = sizes.bins();
  const int group = blockIdx.x % groups;
  int rest = blockIdx.x / groups;
  const int first_x = rest % pieces.number * pieces.size;
  rest /= pieces.number;
  const int row = rest % height, image = rest / height;
  const int columns = min(pieces.size, width - first_x);
  const int64_t channel = (int64_t(group) * kWarp + lane) * V;
  const bool exists = channel < sizes.channels;
  for (int i = 0; i < columns; ++i) {
    sums[i * kWarp + lane] = {};
  }
  const auto add = [&](int column, A weight, const A(&value)[V]) {
    if (unsigned(column) < unsigned(columns)) {
      Pack<A, V> sum = sums[column * kWarp + lane];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        sum.values[v] += weight * value[v];
      }
      sums[column * kWarp + lane] = sum;
    }
  };
  const int end = boxes.starts[image + 1];
  for (int base = boxes.starts[image]; base < end; base += kWarp) {
    bool hit = false;
    if (base + lane < end) {
      const auto box = mean.box(boxes.row(base + lane), sizes);
      hit = may_touch(box.y, sizes.pooled_height, row, 1) &&
            may_touch(box.x, sizes.pooled_width, first_x, columns);
    }
    for (unsigned hits = __ballot_sync(0xffffffffu, hit); hits != 0; hits &= hits - 1) {
      const int position = base + __ffs(hits) - 1;
      const auto box = mean.box(boxes.row(position), sizes);
      const A count = box.count();
      const T* of_box = grad + int64_t(boxes.order[position]) * bins * sizes.channels + channel;
      for (int pw = 0; pw < sizes.pooled_width; ++pw) {
        bool loaded = false;
        A value[V];
        for (int j = box.x.first_sample(pw, width), end_x = box.x.end_sample(pw, width); j < end_x; ++j) {
          const Sample<A> x = box.x.sample(pw, j, width);
          if (!x.inside || x.high < first_x || x.low >= first_x + columns) {
            continue;
          }
          if (!loaded) {  // this column of bins, times the weights of the row
            loaded = true;
#pragma unroll
            for (int v = 0; v < V; ++v) {
              value[v] = 0;
            }
            for (int ph = 0; ph < sizes.pooled_height; ++ph) {
              A weight = 0;
              for (int i = box.y.first_sample(ph, height), end_y = box.y.end_sample(ph, height); i < end_y;
                   ++i) {
                const Sample<A> y = box.y.sample(ph, i, height);
                weight += y.inside && y.low == row ? y.low_weight : A(0);
                weight += y.inside && y.high == row ? y.high_weight : A(0);
              }
              if (weight != A(0) && exists) {
                const auto pack = *reinterpret_cast<const Pack<T, V>*>(
                    of_box + int64_t(ph * sizes.pooled_width + pw) * sizes.channels);
#pragma unroll
                for (int v = 0; v < V; ++v) {
                  value[v] += weight / count * A(pack.values[v]);
                }
              }
            }
          }
          add(x.low - first_x, x.low_weight, value);
          add(x.high - first_x, x.high_weight, value);
        }
      }
    }
  }
  if (!exists) {
    return;
  }
  T* to = output + image * sizes.cells() * sizes.channels;
  for (int column = 0; column < columns; ++column) {
    const Pack<A, V> sum = sums[column * kWarp + lane];
    const int64_t cell = int64_t(row) * width + first_x + column;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      to[channels_last ? cell * sizes.channels + channel + v : (channel + v) * sizes.cells() + cell] =
          T(sum.values[v]);
    }
  }
}

template <typename T, int V>
void launch_backward(const Tensor& grad, const BoxesByImage<Accumulate<T>>& boxes,
                     const Mean<Accumulate<T>>& mean, const Sizes& sizes, bool channels_last,
                     const Tensor& output) {
  const roi::Pieces pieces(sizes.width, kPiece);
  const int64_t groups = ceil_div(sizes.channels, kWarp * V);
  const int64_t shared = pieces.size * kWarp * V * sizeof(Accumulate<T>);
  backward_kernel<T, V>
      <<<sizes.images * sizes.height * pieces.number * groups, kWarp, shared, current_stream(grad)>>>(
          static_cast<const T*>(grad.const_data_ptr()), boxes, mean, sizes, int(groups), pieces,
          channels_last, static_cast<T*>(output.mutable_data_ptr()));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
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
  const Sizes sizes = roi::check_backward(op, grad, boxes, images, height, width, spatial_scale);
  const int ratio = checked_ratio(op, sampling_ratio);
  if (validate_values()) {
    roi::check_values(op, on_host(boxes), sizes);
  }
  const auto guard = device_guard(grad);
  const Tensor output = roi::new_output(grad, images, sizes.channels, height, width, channels_last);
  if (images > 0 && sizes.channels > 0) {
    dispatch_floating(op, "grad", grad.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      using A = Accumulate<T>;
      const roi::OrderedBoxes<A> ordered(boxes, sizes);
      const Tensor values = roi::channels_last<T>(grad, sizes);
      const Mean<A> mean{A(spatial_scale), ratio, aligned};
      constexpr int V = 16 / sizeof(A);
      const bool vector = sizes.channels % V == 0 &&
                          reinterpret_cast<uintptr_t>(values.const_data_ptr()) % (V * sizeof(T)) == 0;
      if (vector) {
        launch_backward<T, V>(values, ordered.view(), mean, sizes, channels_last, output);
      } else {
        launch_backward<T, 1>(values, ordered.view(), mean, sizes, channels_last, output);
      }
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

// RoI pooling on a GPU, without float atomics or host synchronization.
#include <torch/csrc/stable/library.h>

#include "../../layout.h"
#include "../../roi_pool.h"
#include "../../roi_pool_plan.h"
#include "../roi/gather.cuh"
#include "backward.cuh"
#include "forward.cuh"

namespace detector::roi_pool {
namespace {

// One bin, cell after cell: for images that fit no shared memory, and float64.
template <typename A>
struct Maximum {
  A scale;

  template <typename Reader, int V>
  __device__ void pool(const Reader& reader, const A* values, int ph, int pw, const roi::Sizes& sizes,
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

std::tuple<Tensor, Tensor> forward(const Tensor& any_input, const Tensor& boxes, int64_t pooled_height,
                                   int64_t pooled_width, double spatial_scale) {
  constexpr const char* op = "roi_pool";
  const Sizes sizes = roi::check_forward(op, any_input, boxes, pooled_height, pooled_width, spatial_scale);
  const auto guard = device_guard(any_input);
  // A block reads one channel or a few: of channels-last features these are pieces too small for the memory.
  const Tensor input = is_channels_last(any_input) ? as_contiguous(any_input) : any_input;
  const Tensor output = allocate(input, {sizes.boxes, sizes.channels, pooled_height, pooled_width});
  const Tensor argmax =
      allocate(input, {sizes.boxes, sizes.channels, pooled_height, pooled_width}, ScalarType::Int);
  if (sizes.boxes > 0 && sizes.channels > 0) {
    dispatch_floating(op, "input", input.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      using A = Accumulate<T>;
      const roi::Output<T> to{output.mutable_data_ptr<T>(), argmax.mutable_data_ptr<int32_t>(), false};
      const Request request{sizes, sizeof(T), false, current_gpu()};
      const Forward kernel = forward_kernel(request);
      if constexpr (!std::is_same_v<T, double>) {
        if (kernel < Forward::kStaged16) {
          const auto pool = kernel == Forward::kWindows4   ? pool_windows<T, 4>
                            : kernel == Forward::kWindows2 ? pool_windows<T, 2>
                                                           : pool_windows<T, 1>;
          return pool(input, boxes, request, A(spatial_scale), to);
        }
      }
      constexpr int V = 16 / sizeof(T);
      const roi::OrderedBoxes<A> ordered("roi_pool", boxes, sizes);
      const auto gather = kernel == Forward::kStaged16 ? roi::launch_gather<T, V, true, Maximum<A>>
                                                       : roi::launch_gather<T, V, false, Maximum<A>>;
      gather(request, input, ordered.view(), {A(spatial_scale)}, to);
    });
  }
  return {output, argmax};
}

Tensor backward(const Tensor& grad, const Tensor& argmax, const Tensor& boxes, int64_t images, int64_t height,
                int64_t width, double spatial_scale) {
  constexpr const char* op = "roi_pool_backward";
  const Sizes sizes = roi::check_backward(op, grad, boxes, images, height, width, spatial_scale, false);
  check_argument(op, "argmax", argmax, grad.sizes(), ScalarType::Int, "grad", grad);
  const auto guard = device_guard(grad);
  const Tensor output = allocate(grad, {images, sizes.channels, height, width});
  if (images > 0 && sizes.channels > 0) {
    dispatch_floating(op, "grad", grad.scalar_type(), [&](auto zero) {
      launch_backward<decltype(zero)>(grad, argmax, boxes, sizes, output);
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

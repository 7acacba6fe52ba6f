// RoI pooling on a GPU, without float atomics or host synchronization.
#include <torch/csrc/stable/library.h>

#include "../roi_pool.h"
#include "roi/gather.cuh"
#include "roi_pool/backward.cuh"
#include "roi_pool/forward.cuh"
#include "roi_pool/maximum.cuh"

namespace detector::roi_pool {
namespace {

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
  const Tensor argmax = roi::new_output(input, sizes.boxes, sizes.channels, pooled_height, pooled_width,
                                        channels_last, ScalarType::Int);
  if (sizes.boxes > 0 && sizes.channels > 0) {
    dispatch_floating(op, "input", input.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      using A = Accumulate<T>;
      const roi::Output<T> to{static_cast<T*>(output.mutable_data_ptr()),
                              static_cast<int32_t*>(argmax.mutable_data_ptr()), channels_last};
      // Not of channels-last features, which would be touched in pieces too small, nor for bins of few cells.
      const bool by_windows = !channels_last && sizes.cells() >= 16 * sizes.bins();
      if (!by_windows || !pool_windows<T>(input, boxes, sizes, A(spatial_scale), to)) {
        roi::gather<T>(input, boxes, sizes, Maximum<A>{A(spatial_scale)}, to);
      }
    });
  }
  return {output, argmax};
}

Tensor backward(const Tensor& grad, const Tensor& argmax, const Tensor& boxes, int64_t images, int64_t height,
                int64_t width, double spatial_scale, bool channels_last) {
  constexpr const char* op = "roi_pool_backward";
  const Sizes sizes =
      roi::check_backward(op, grad, boxes, images, height, width, spatial_scale, channels_last);
  check_argmax(op, argmax, grad);
  if (validate_values()) {
    roi::check_values(op, on_host(boxes), sizes);
  }
  const auto guard = device_guard(grad);
  const Tensor output = roi::new_output(grad, images, sizes.channels, height, width, channels_last);
  if (images > 0 && sizes.channels > 0) {
    dispatch_floating(op, "grad", grad.scalar_type(), [&](auto zero) {
      launch_backward<decltype(zero)>(grad, argmax, boxes, sizes, channels_last, output);
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

// RoI align on a GPU, without float atomics or host synchronization.
#include <torch/csrc/stable/library.h>

#include "../../roi_align.h"
#include "../roi/gather.cuh"
#include "backward.cuh"
#include "mean.cuh"

namespace detector::roi_align {
namespace {

using roi::Sizes;

Tensor forward(const Tensor& input, const Tensor& boxes, int64_t pooled_height, int64_t pooled_width,
               double spatial_scale, int64_t sampling_ratio, bool aligned, bool channels_last) {
  constexpr const char* op = "roi_align";
  const Sizes sizes = roi::check_forward(op, input, boxes, pooled_height, pooled_width, spatial_scale);
  const int ratio = checked_ratio(op, sampling_ratio);
  const auto guard = device_guard(input);
  const Tensor output =
      roi::new_output(input, sizes.boxes, sizes.channels, pooled_height, pooled_width, channels_last);
  if (sizes.boxes > 0 && sizes.channels > 0) {
    dispatch_floating(op, "input", input.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      using A = Accumulate<T>;
      const Mean<A> mean{A(spatial_scale), ratio, aligned};
      const roi::Output<T> to{output.mutable_data_ptr<T>(), nullptr, channels_last};
      roi::gather<T>(input, boxes, sizes, mean, to);
    });
  }
  return output;
}

Tensor backward(const Tensor& grad, const Tensor& boxes, int64_t images, int64_t height, int64_t width,
                double spatial_scale, int64_t sampling_ratio, bool aligned, bool channels_last) {
  constexpr const char* op = "roi_align_backward";
  const Sizes sizes =
      roi::check_backward(op, grad, boxes, images, height, width, spatial_scale, channels_last);
  const int ratio = checked_ratio(op, sampling_ratio);
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

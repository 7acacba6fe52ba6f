// RoI align of rotated boxes on the CPU. Forward: threads share the boxes. Backward: they share the channels
// and each walks all boxes in order, so the bits do not depend on the number of threads.
#include "../roi_align_rotated.h"

#include <torch/csrc/stable/library.h>

#include "multiversion.h"
#include "parallel.h"

namespace detector::roi_align_rotated {
namespace {

template <typename A>
DETECTOR_MULTIVERSION void add(A weight, const A* __restrict from, int64_t count, A* __restrict to) {
  for (int64_t c = 0; c < count; ++c) {
    to[c] += weight * from[c];
  }
}

// Calls body(bin, cell, weight) for each weight of each bin of a box; bins and cells are counted by rows.
template <typename A, typename Body>
void for_each_weight(const Box<A>& box, const Sizes& sizes, const Body& body) {
  for (int64_t bin = 0; bin < int64_t(sizes.pooled_height) * sizes.pooled_width; ++bin) {
    const int ph = int(bin / sizes.pooled_width), pw = int(bin % sizes.pooled_width);
    box.samples(ph, pw, sizes, [&](const Sample<A>& y, const Sample<A>& x) {
      const int64_t low = y.low * sizes.width, high = y.high * sizes.width;
      body(bin, low + x.low, y.low_weight * x.low_weight / box.count());
      body(bin, low + x.high, y.low_weight * x.high_weight / box.count());
      body(bin, high + x.low, y.high_weight * x.low_weight / box.count());
      body(bin, high + x.high, y.high_weight * x.high_weight / box.count());
    });
  }
}

Tensor forward(const Tensor& any_input, const Tensor& any_boxes, int64_t pooled_height, int64_t pooled_width,
               double spatial_scale, int64_t sampling_ratio) {
  const Sizes sizes = forward_sizes(any_input, any_boxes, pooled_height, pooled_width, spatial_scale);
  const int ratio = roi_align::checked_ratio("roi_align_rotated", sampling_ratio);
  const Tensor input = as_contiguous(any_input), boxes = as_contiguous(any_boxes);
  Tensor output = allocate(input, {sizes.boxes, pooled_height, pooled_width, sizes.channels});
  torch::stable::zero_(output);
  dispatch_float_or_double("roi_align_rotated", "input", input.scalar_type(), [&](auto zero) {
    using A = decltype(zero);
    const auto* from = input.const_data_ptr<A>();
    const auto* values = boxes.const_data_ptr<A>();
    auto* to = output.mutable_data_ptr<A>();
    check_values("roi_align_rotated", values, sizes);
    parallel_for(sizes.boxes, 1, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        const Box<A> box(values + 6 * r, A(spatial_scale), sizes, ratio);
        const A* image = from + box.image * sizes.height * sizes.width * sizes.channels;
        A* bins = to + r * pooled_height * pooled_width * sizes.channels;
        for_each_weight(box, sizes, [&](int64_t bin, int64_t cell, A weight) {
          add(weight, image + cell * sizes.channels, sizes.channels, bins + bin * sizes.channels);
        });
      }
    });
  });
  return output;
}

Tensor backward(const Tensor& any_grad, const Tensor& any_boxes, int64_t images, int64_t height,
                int64_t width, double spatial_scale, int64_t sampling_ratio) {
  const Sizes sizes = backward_sizes(any_grad, any_boxes, images, height, width, spatial_scale);
  const int ratio = roi_align::checked_ratio("roi_align_rotated_backward", sampling_ratio);
  const Tensor grad = as_contiguous(any_grad), boxes = as_contiguous(any_boxes);
  Tensor output = allocate(grad, {images, height, width, sizes.channels});
  torch::stable::zero_(output);
  dispatch_float_or_double("roi_align_rotated_backward", "grad", grad.scalar_type(), [&](auto zero) {
    using A = decltype(zero);
    const auto* from = grad.const_data_ptr<A>();
    const auto* values = boxes.const_data_ptr<A>();
    auto* to = output.mutable_data_ptr<A>();
    check_values("roi_align_rotated_backward", values, sizes);
    const int64_t bins = int64_t(sizes.pooled_height) * sizes.pooled_width;
    parallel_for(sizes.channels, 16, [&](int64_t first, int64_t last) {
      for (int64_t r = 0; r < sizes.boxes; ++r) {
        const Box<A> box(values + 6 * r, A(spatial_scale), sizes, ratio);
        A* image = to + box.image * height * width * sizes.channels + first;
        for_each_weight(box, sizes, [&](int64_t bin, int64_t cell, A weight) {
          add(weight, from + (r * bins + bin) * sizes.channels + first, last - first,
              image + cell * sizes.channels);
        });
      }
    });
  });
  return output;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) {
  m.impl("roi_align_rotated_forward", TORCH_BOX(&forward));
  m.impl("roi_align_rotated_backward", TORCH_BOX(&backward));
}

}  // namespace detector::roi_align_rotated

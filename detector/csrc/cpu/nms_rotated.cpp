// Non-maximum suppression of rotated boxes on the CPU: each box that is kept is compared with all later
// ones.
#include "../nms_rotated.h"

#include <torch/csrc/stable/library.h>

#include <vector>

#include "parallel.h"

namespace detector::nms_rotated {
namespace {

constexpr int64_t kGrain = 4096;  // pairs of boxes: with fewer, a second thread does not pay

template <typename A>
void suppress(const Matrix<A>& view, int64_t size, const int64_t* groups, A threshold, bool* kept) {
  std::vector<RotatedBox<A>> boxes(size);
  for (int64_t i = 0; i < size; ++i) {
    boxes[i] = rotated_box_at(view, i);
    kept[i] = true;
  }
  for (int64_t i = 0; i < size; ++i) {
    if (!kept[i]) {
      continue;
    }
    parallel_for(size - i - 1, kGrain, [&](int64_t first, int64_t last) {
      for (int64_t j = i + 1 + first; j < i + 1 + last; ++j) {
        const bool same_group = groups == nullptr || groups[i] == groups[j];
        kept[j] = kept[j] && !(same_group && suppresses(boxes[i], boxes[j], threshold));
      }
    });
  }
}

Tensor nms_rotated(const Tensor& boxes, const std::optional<Tensor>& idxs, double iou_threshold) {
  check_arguments(boxes, idxs, iou_threshold);
  const int64_t size = boxes.size(0);
  const Tensor mask = allocate(boxes, {size}, ScalarType::Bool);
  const std::optional<Tensor> groups = idxs ? std::optional(as_contiguous(*idxs)) : std::nullopt;
  dispatch_float_or_double("nms_rotated", "boxes", boxes.scalar_type(), [&](auto zero) {
    using A = decltype(zero);
    suppress(matrix_view<A>(boxes), size, groups ? groups->const_data_ptr<int64_t>() : nullptr,
             A(iou_threshold), mask.mutable_data_ptr<bool>());
  });
  return mask;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) { m.impl("nms_rotated", TORCH_BOX(&nms_rotated)); }

}  // namespace detector::nms_rotated

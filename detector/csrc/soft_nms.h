// Soft non-maximum suppression (Bodla et al. 2017, arXiv 1704.04503), for both devices. Of the boxes of a
// group that are left the one with the highest score, the lowest index among equal ones, is taken until that
// score is below min_score. The others' scores are multiplied by
//
//   linear:   1 - IoU where IoU > threshold, else 1          gaussian: exp(-IoU^2 / sigma)
//
// No factor is above 1, so boxes are taken in descending order of the score that they are taken with.
#pragma once

#include <cmath>

#include "nms.h"

namespace detector::soft_nms {

template <typename A>
struct Decay {
  bool gaussian;
  A parameter;  // the threshold, or sigma

  C10_HOST_DEVICE A operator()(A iou) const {
    if (gaussian) {
      return iou > 0 ? std::exp(-iou * iou / parameter) : A(1);  // the IoU of empty boxes may be NaN
    }
    return iou > parameter ? A(1) - iou : A(1);
  }
};

// starts: (G + 1,), where each group starts, and N.
inline void check_arguments(const Tensor& boxes, const Tensor& scores, const Tensor& starts) {
  constexpr const char* op = "soft_nms";
  check_rows(op, "boxes", boxes, 4);
  dispatch_float_or_double(op, "boxes", boxes.scalar_type(), [](auto) {});
  check_argument(op, "scores", scores, {boxes.size(0)}, boxes.scalar_type(), "boxes", boxes);
  check_rank(op, "starts", starts, 1);
  check_dtype(op, "starts", starts, ScalarType::Long);
  check_device(op, "starts", starts, "boxes", boxes);
  if (validates_values(boxes)) {
    nms::check_boxes(op, on_host(boxes), /*sorted=*/true);
  }
}

}  // namespace detector::soft_nms

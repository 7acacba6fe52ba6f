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
      return iou > 0 ? std::exp(-iou * iou / parameter) : A(1);  // the IoU of NaN boxes is NaN
    }
    return iou > parameter ? A(1) - iou : A(1);
  }
};

// Whether starts[i] can follow the numbers before it: `starts` (G + 1,) are 0, where each further group
// starts and, last, `size`, the number of boxes.
C10_HOST_DEVICE inline bool in_order(const int64_t* starts, int64_t groups, int64_t size, int64_t i) {
  const int64_t least = i == 0 ? 0 : i == groups ? size : starts[i - 1], most = i == 0 ? 0 : size;
  return least <= starts[i] && starts[i] <= most;
}

// starts: (G + 1,), contiguous and on the CPU.
inline void check_starts(const Tensor& starts, int64_t size) {
  const auto* start = starts.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < starts.size(0); ++i) {
    if (!in_order(start, starts.size(0) - 1, size, i)) {
      fail("soft_nms: starts[", i, "] is ", start[i], ", expected ",
           i == 0                    ? "0"
           : i == starts.size(0) - 1 ? joined(size, ", the number of boxes")
                                     : joined("from ", start[i - 1], ", the number before it, to ", size));
    }
  }
}

inline void check_arguments(const Tensor& boxes, const Tensor& scores, const Tensor& starts) {
  constexpr const char* op = "soft_nms";
  check_rows(op, "boxes", boxes, 4);
  dispatch_float_or_double(op, "boxes", boxes.scalar_type(), [](auto) {});
  check_argument(op, "scores", scores, {boxes.size(0)}, boxes.scalar_type(), "boxes", boxes);
  check_rank(op, "starts", starts, 1);
  check_dtype(op, "starts", starts, ScalarType::Long);
  check_device(op, "starts", starts, "boxes", boxes);
  if (starts.size(0) < (boxes.size(0) > 0 ? 2 : 1)) {
    fail(op, ": starts has shape ", shape_text(starts), ", expected (G + 1,) for G groups of ", boxes.size(0),
         " boxes");
  }
  if (validates_values(boxes)) {
    check_starts(as_contiguous(on_host(starts)), boxes.size(0));
    nms::check_boxes(op, on_host(boxes), /*sorted=*/true);
  }
}

}  // namespace detector::soft_nms

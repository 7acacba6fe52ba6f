// Greedy non-maximum suppression, for both devices: in descending order of score, equal scores by ascending
// index, a box is kept unless a box that is kept suppresses it:
//
//   intersection / (area + area - intersection) > threshold, of boxes of one group
//
// The arithmetic is torchvision's on the CPU, operation for operation, so that the indices are too. What
// follows from it, in floating point as in real numbers, is used by both kernels: the intersection is
// positive only if both boxes have a positive width and height; then the union is at least the intersection,
// and positive. All else (empty, inverted and NaN boxes) suppresses nothing and is suppressed by nothing.
#pragma once

#include <cmath>
#include <limits>
#include <optional>

#include "boxes.h"
#include "memory.h"

namespace detector::nms {

// iou() > threshold, a fifth faster on the CPU: of two empty boxes 0 / 0 is not greater than anything either.
template <typename A>
C10_HOST_DEVICE bool suppresses(const Box<A>& a, A area_a, const Box<A>& b, A area_b, A threshold) {
  const A shared = intersection(a, b);
  return shared / (area_a + area_b - shared) > threshold;
}

// The largest A that is not above the threshold: the same numbers are greater than it.
template <typename A>
A round_down(double threshold) {
  const A rounded = static_cast<A>(threshold);
  return rounded > threshold ? std::nextafter(rounded, -std::numeric_limits<A>::infinity()) : rounded;
}

// Scores as unsigned integers in the same order: -0 as 0, every NaN above infinity.
template <typename A>
C10_HOST_DEVICE auto order_key(A score) {
  using Bits = std::conditional_t<sizeof(A) == 4, uint32_t, uint64_t>;
  constexpr Bits sign = Bits(1) << (8 * sizeof(A) - 1);
  union {
    A value;
    Bits bits;
  } number{score + A(0)};
  return score != score ? ~Bits(0) : number.bits & sign ? ~number.bits : number.bits | sign;
}

// Refuse NaN, in boxes (N, any number) and in scores. Tensors on the CPU; defined in cpu/nms.cpp. The caller
// of a `sorted` op has other numbers for the rows.
void check_boxes(const char* op, const Tensor& boxes, bool sorted = false);
void check_scores(const char* op, const Tensor& scores);

inline void check_groups(const char* op, const Tensor& boxes, const std::optional<Tensor>& idxs,
                         double iou_threshold) {
  if (idxs) {
    check_argument(op, "idxs", *idxs, {boxes.size(0)}, ScalarType::Long, "boxes", boxes);
  }
  if (!(0 <= iou_threshold && iou_threshold <= 1)) {
    fail(op, ": iou_threshold is ", iou_threshold, ", expected a number from 0 to 1");
  }
}

// Shapes, dtypes, devices and the threshold; costs nothing, so it is done on every call.
inline void check_arguments(const char* op, const Tensor& boxes, const Tensor& scores,
                            const std::optional<Tensor>& idxs, double iou_threshold) {
  check_rows(op, "boxes", boxes, 4);
  dispatch_floating(op, "boxes", boxes.scalar_type(), [](auto) {});  // before scores are compared with it
  check_argument(op, "scores", scores, {boxes.size(0)}, boxes.scalar_type(), "boxes", boxes);
  check_groups(op, boxes, idxs, iou_threshold);
  if (validates_values(boxes)) {
    check_boxes(op, on_host(boxes));
    check_scores(op, on_host(scores));
  }
}

}  // namespace detector::nms

// Greedy non-maximum suppression of rotated boxes, for both devices. The boxes come in descending order of
// score; one is kept unless one that is kept, of the same group, has an IoU with it above the threshold.
#pragma once

#include <algorithm>
#include <optional>

#include "nms.h"
#include "rotated.h"

namespace detector::nms_rotated {

// The corners of b in the axes of a are clipped by the four sides of a (Sutherland and Hodgman 1974). Each
// side cuts off one corner of a convex polygon and adds two, so there are at most eight.
template <typename A>
C10_HOST_DEVICE A intersection(const RotatedBox<A>& a, const RotatedBox<A>& b) {
  constexpr int kMost = 8;
  const Point<A> center = a.in_box(b.x, b.y);
  RotatedBox<A> relative = b;
  relative.x = center.x, relative.y = center.y;
  relative.cos = a.cos * b.cos + a.sin * b.sin;
  relative.sin = a.cos * b.sin - a.sin * b.cos;
  Point<A> corners[kMost];
  int count = 4;
  for (int i = 0; i < count; ++i) {
    corners[i] =
        relative.in_image(i % 3 == 0 ? b.width / 2 : -b.width / 2, i < 2 ? b.height / 2 : -b.height / 2);
  }
  for (int side = 0; side < 4; ++side) {
    const A half = (side < 2 ? a.width : a.height) / 2;
    const auto depth = [&](const Point<A>& p) {  // how far inside, negative outside
      const A at = side < 2 ? p.x : p.y;
      return side % 2 == 0 ? half - at : half + at;
    };
    Point<A> clipped[kMost];
    int kept = 0;
    for (int i = 0; i < count; ++i) {
      const Point<A> p = corners[i], q = corners[(i + 1) % count];
      const A of_p = depth(p), of_q = depth(q);
      if (of_p >= 0 && kept < kMost) {
        clipped[kept++] = p;
      }
      if ((of_p >= 0) != (of_q >= 0) && kept < kMost) {
        const A share = of_p / (of_p - of_q);
        clipped[kept++] = {p.x + share * (q.x - p.x), p.y + share * (q.y - p.y)};
      }
    }
    for (count = 0; count < kept; ++count) {
      corners[count] = clipped[count];
    }
  }
  A doubled = 0;
  for (int i = 0; i < count; ++i) {
    const Point<A> p = corners[i], q = corners[(i + 1) % count];
    doubled += p.x * q.y - p.y * q.x;
  }
  return std::abs(doubled) / 2;
}

// Whether the IoU may be above the threshold: an upper bound of the intersection tells most boxes apart for a
// tenth of the work. It is that of a and the upright rectangle, in the axes of a, around b. Boxes that are
// empty, inverted or NaN suppress nothing and are suppressed by nothing.
template <typename A>
C10_HOST_DEVICE bool may_suppress(const RotatedBox<A>& a, const RotatedBox<A>& b, A threshold) {
  const A dx = a.x - b.x, dy = a.y - b.y;
  const A sides = a.width * a.width + a.height * a.height + b.width * b.width + b.height * b.height;
  if (!(2 * (dx * dx + dy * dy) < sides)) {  // the circles around them do not meet
    return false;
  }
  constexpr A rounding = A(1.001);  // far more than rounding can take away
  const Point<A> center = a.in_box(b.x, b.y);
  const A cos = std::abs(a.cos * b.cos + a.sin * b.sin), sin = std::abs(a.cos * b.sin - a.sin * b.cos);
  const A width = cos * b.width + sin * b.height, height = sin * b.width + cos * b.height;
  const A common_width = (a.width + width) * (rounding / 2) - std::abs(center.x);
  const A common_height = (a.height + height) * (rounding / 2) - std::abs(center.y);
  if (!(a.width > 0 && a.height > 0 && b.width > 0 && b.height > 0 && common_width > 0 &&
        common_height > 0)) {
    return false;
  }
  const A area_a = a.width * a.height, area_b = b.width * b.height;
  const A most = rounding * std::min(std::min(common_width, a.width) * std::min(common_height, a.height),
                                     std::min(area_a, area_b));
  return most * (1 + threshold) > threshold * (area_a + area_b);
}

// Whether the IoU is above the threshold.
template <typename A>
C10_HOST_DEVICE bool suppresses(const RotatedBox<A>& a, const RotatedBox<A>& b, A threshold) {
  if (!may_suppress(a, b, threshold)) {
    return false;
  }
  const A common = intersection(a, b);
  return common / (a.width * a.height + b.width * b.height - common) > threshold;
}

template <typename A>
C10_HOST_DEVICE RotatedBox<A> rotated_box_at(const Matrix<A>& boxes, int64_t i) {
  return {boxes(i, 0), boxes(i, 1), boxes(i, 2), boxes(i, 3), boxes(i, 4)};
}

inline void check_arguments(const Tensor& boxes, const std::optional<Tensor>& idxs, double iou_threshold) {
  constexpr const char* op = "nms_rotated";
  check_rows(op, "boxes", boxes, 5);
  dispatch_float_or_double(op, "boxes", boxes.scalar_type(), [](auto) {});
  nms::check_groups(op, boxes, idxs, iou_threshold);
  if (validates_values(boxes)) {
    nms::check_boxes(op, on_host(boxes), /*sorted=*/true);
  }
}

}  // namespace detector::nms_rotated

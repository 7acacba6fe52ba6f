// Rotated boxes (center x, center y, width, height, angle in degrees). A positive angle turns a box
// counter-clockwise as it is seen in an image, whose y axis points down; detectron2 has the same convention.
#pragma once

#include <cmath>

#include "tensor.h"

namespace detector {

template <typename A>
struct Point {
  A x, y;
};

template <typename A>
struct RotatedBox {
  A x, y, width, height, cos, sin;

  RotatedBox() = default;
  C10_HOST_DEVICE RotatedBox(A center_x, A center_y, A box_width, A box_height, A degrees)
      : x(center_x), y(center_y), width(box_width), height(box_height) {
    const A radians = degrees * A(0.017453292519943295);
    cos = std::cos(radians);
    sin = std::sin(radians);
  }

  // The point that is u along the width and v along the height from the center.
  C10_HOST_DEVICE Point<A> in_image(A u, A v) const { return {x + u * cos + v * sin, y - u * sin + v * cos}; }

  // The u and v of a point.
  C10_HOST_DEVICE Point<A> in_box(A at_x, A at_y) const {
    const A dx = at_x - x, dy = at_y - y;
    return {dx * cos - dy * sin, dx * sin + dy * cos};
  }
};

}  // namespace detector

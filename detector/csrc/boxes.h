// Boxes, and their arithmetic where the CPU and the GPU must agree to the bit.
#pragma once

#include "tensor.h"

namespace detector {

template <typename B>
struct alignas(4 * sizeof(B)) Box {  // a GPU reads it at once
  B x1, y1, x2, y2;
};

template <typename B>
C10_HOST_DEVICE Box<B> box_at(const Matrix<B>& boxes, int64_t row) {
  return {boxes(row, 0), boxes(row, 1), boxes(row, 2), boxes(row, 3)};
}

// A product is rounded before it is added to something: no fused multiply-add, which has other bits. On the
// CPU the files that use it are compiled with fp-contract=off.
C10_HOST_DEVICE inline float product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

C10_HOST_DEVICE inline double product(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

template <typename B>
C10_HOST_DEVICE B area(const Box<B>& box) {
  return product(box.x2 - box.x1, box.y2 - box.y1);
}

template <typename B>
C10_HOST_DEVICE B intersection(const Box<B>& a, const Box<B>& b) {
  const B width = (a.x2 < b.x2 ? a.x2 : b.x2) - (a.x1 > b.x1 ? a.x1 : b.x1);
  const B height = (a.y2 < b.y2 ? a.y2 : b.y2) - (a.y1 > b.y1 ? a.y1 : b.y1);
  return product(width > 0 ? width : B(0), height > 0 ? height : B(0));
}

// 0 where the union is empty: there the intersection is 0. Symmetric to the bit.
template <typename B>
C10_HOST_DEVICE B iou(const Box<B>& a, B area_a, const Box<B>& b, B area_b) {
  const B shared = intersection(a, b);
  const B both = area_a + area_b - shared;
  return shared / (both + B(both == 0));  // no branch, so that compilers take many boxes at a time
}

}  // namespace detector

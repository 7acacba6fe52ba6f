// Trilinear interpolation between the 8 corners of a cell, for both devices. With u = (p + 1) / 2 on each
// axis,
//
//   out[n, f] = sum over corners c = 4x + 2y + z of  X_x Y_y Z_z feats[n, c, f],   X_0 = 1 - u_x, X_1 = u_x,
//   ...
//
// It is linear in each coordinate, so the slope along x is that of X alone: -1/2 for X_0, 1/2 for X_1.
#pragma once

#include <optional>
#include <vector>

#include "memory.h"

namespace detector::trilinear_interpolate {

constexpr int kCorners = 8;

// feats (N, 8, F) in any strides.
template <typename T>
struct Features {
  const T* data;
  int64_t point_stride, corner_stride, channel_stride;
  C10_HOST_DEVICE const T* corner(int64_t n, int c) const {
    return data + n * point_stride + c * corner_stride;
  }
};

template <typename T>
Features<T> features_view(const Tensor& feats) {
  return {feats.const_data_ptr<T>(), feats.stride(0), feats.stride(1), feats.stride(2)};
}

// The factors of a point's weights.
template <typename A>
struct Point {
  A x[2], y[2], z[2];

  template <typename P>
  C10_HOST_DEVICE Point(const Matrix<P>& points, int64_t n) {
    const A u = (A(points(n, 0)) + 1) / 2, v = (A(points(n, 1)) + 1) / 2, w = (A(points(n, 2)) + 1) / 2;
    x[0] = 1 - u, x[1] = u;
    y[0] = 1 - v, y[1] = v;
    z[0] = 1 - w, z[1] = w;
  }

  C10_HOST_DEVICE A weight(int c) const {  // without an index, which would take x, y and z to memory
    return (c & 4 ? x[1] : x[0]) * (c & 2 ? y[1] : y[0]) * (c & 1 ? z[1] : z[0]);
  }

  // The gradient of the point from sums[c] = sum over f of grad[n, f] feats[n, c, f].
  C10_HOST_DEVICE void gradient(const A (&sums)[kCorners], A (&along)[3]) const {
    along[0] = along[1] = along[2] = 0;
    for (int a = 0; a < 2; ++a) {
      for (int b = 0; b < 2; ++b) {
        along[0] += y[a] * z[b] * (sums[4 + 2 * a + b] - sums[2 * a + b]);
        along[1] += x[a] * z[b] * (sums[4 * a + 2 + b] - sums[4 * a + b]);
        along[2] += x[a] * y[b] * (sums[4 * a + 2 * b + 1] - sums[4 * a + 2 * b]);
      }
    }
    for (A& slope : along) {
      slope /= 2;
    }
  }
};

inline void check_arguments(const char* op, const Tensor& feats, const Tensor& points) {
  if (feats.dim() != 3 || feats.size(1) != kCorners) {
    fail(op, ": feats has shape ", shape_text(feats), ", expected (N, 8, F)");
  }
  check_shape(op, "points", points, {feats.size(0), 3});
  dispatch_floating(op, "feats", feats.scalar_type(), [](auto) {});
  if (points.scalar_type() != feats.scalar_type()) {
    check_dtype(op, "points", points, accumulate_type(feats.scalar_type()));
  }
  check_device(op, "points", points, "feats", feats);
}

inline void check_backward_arguments(const Tensor& grad, const Tensor& points,
                                     const std::optional<Tensor>& feats) {
  constexpr const char* op = "trilinear_interpolate_backward";
  check_rank(op, "grad", grad, 2);
  dispatch_floating(op, "grad", grad.scalar_type(), [](auto) {});
  const int64_t num_points = grad.size(0);
  check_argument(op, "points", points, {num_points, 3}, accumulate_type(grad.scalar_type()), "grad", grad);
  if (feats) {
    check_argument(op, "feats", *feats, {num_points, kCorners, grad.size(1)}, grad.scalar_type(), "grad",
                   grad);
  }
}

struct Gradients {
  Tensor feats, points;
};

// The gradient of feats where it is needed, and of points where feats are given to compute it; else (0,).
inline Gradients new_gradients(const Tensor& grad, const Tensor& points, const std::optional<Tensor>& feats,
                               bool needs_feats) {
  using Shape = std::vector<int64_t>;
  const Shape none{0}, feats_shape{grad.size(0), kCorners, grad.size(1)}, points_shape{points.size(0), 3};
  return {allocate(grad, needs_feats ? feats_shape : none), allocate(points, feats ? points_shape : none)};
}

}  // namespace detector::trilinear_interpolate

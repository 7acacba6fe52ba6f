// Trilinear interpolation on the CPU: points are shared out over the threads, channels are the inner loop.
#include "../trilinear_interpolate.h"

#include <torch/csrc/stable/library.h>

#include <algorithm>

#include "multiversion.h"
#include "parallel.h"

namespace detector::trilinear_interpolate {
namespace {

constexpr int64_t kGrain = 16384;  // elements of feats; fewer are done before a second thread wakes
constexpr int kLanes = 16;         // sums that run side by side, in one order for every vector width

int64_t points_of_grain(int64_t num_channels) { return 1 + kGrain / (kCorners * (num_channels + 1)); }

// Channels of one point lie side by side (kStride = 1) or `stride` apart (kStride = 0).
template <int kStride, typename T, typename A = Accumulate<T>>
DETECTOR_MULTIVERSION void forward_points(const Features<T>& feats, const Matrix<A>& points,
                                          int64_t num_channels, int64_t begin, int64_t end, T* output) {
  const int64_t stride = kStride ? kStride : feats.channel_stride;
  for (int64_t n = begin; n < end; ++n) {
    const Point<A> point(points, n);
    A weights[kCorners];
    const T* corners[kCorners];
    for (int c = 0; c < kCorners; ++c) {
      weights[c] = point.weight(c);
      corners[c] = feats.corner(n, c);
    }
    T* __restrict row = output + n * num_channels;
    for (int64_t f = 0; f < num_channels; ++f) {
      A sum = 0;
      for (int c = 0; c < kCorners; ++c) {
        sum += weights[c] * A(corners[c][f * stride]);
      }
      row[f] = T(sum);
    }
  }
}

template <int kStride, typename T, typename A = Accumulate<T>>
DETECTOR_MULTIVERSION void backward_feats(const Matrix<T>& grad, const Matrix<A>& points,
                                          int64_t num_channels, int64_t begin, int64_t end, T* grad_feats) {
  const int64_t stride = kStride ? kStride : grad.column_stride;
  for (int64_t n = begin; n < end; ++n) {
    const Point<A> point(points, n);
    A weights[kCorners];
    for (int c = 0; c < kCorners; ++c) {
      weights[c] = point.weight(c);
    }
    const T* arriving = grad.data + n * grad.row_stride;
    T* __restrict rows = grad_feats + n * kCorners * num_channels;
    if (num_channels < kCorners) {  // too short for an inner loop
      for (int64_t f = 0; f < num_channels; ++f) {
        for (int c = 0; c < kCorners; ++c) {
          rows[c * num_channels + f] = T(weights[c] * A(arriving[f * stride]));
        }
      }
      continue;
    }
    for (int c = 0; c < kCorners; ++c) {
      for (int64_t f = 0; f < num_channels; ++f) {
        rows[c * num_channels + f] = T(weights[c] * A(arriving[f * stride]));
      }
    }
  }
}

template <int kStride, typename T, typename A = Accumulate<T>>
DETECTOR_MULTIVERSION void backward_points(const Matrix<T>& grad, const Features<T>& feats,
                                           const Matrix<A>& points, int64_t num_channels, int64_t begin,
                                           int64_t end, A* grad_points) {
  const int64_t grad_stride = kStride ? kStride : grad.column_stride;
  const int64_t feats_stride = kStride ? kStride : feats.channel_stride;
  const int64_t tail = num_channels / kLanes * kLanes;
  for (int64_t n = begin; n < end; ++n) {
    const T* arriving = grad.data + n * grad.row_stride;
    A sums[kCorners];
    for (int c = 0; c < kCorners; ++c) {
      const T* corner = feats.corner(n, c);
      sums[c] = 0;
      for (int64_t f = tail; f < num_channels; ++f) {
        sums[c] += A(arriving[f * grad_stride]) * A(corner[f * feats_stride]);
      }
      if (tail == 0) {
        continue;
      }
      A lanes[kLanes] = {};
      for (int64_t f = 0; f < tail; f += kLanes) {
        for (int i = 0; i < kLanes; ++i) {
          lanes[i] += A(arriving[(f + i) * grad_stride]) * A(corner[(f + i) * feats_stride]);
        }
      }
      for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) {
          lanes[i] += lanes[i + half];
        }
      }
      sums[c] += lanes[0];
    }
    A along[3];
    Point<A>(points, n).gradient(sums, along);
    std::copy(along, along + 3, grad_points + n * 3);
  }
}

Tensor forward(const Tensor& feats, const Tensor& any_points) {
  check_arguments("trilinear_interpolate", feats, any_points);
  const Tensor points = as_type(any_points, accumulate_type(feats.scalar_type()));
  const int64_t num_points = feats.size(0), num_channels = feats.size(2);
  const Tensor output = allocate(feats, {num_points, num_channels});
  dispatch_floating("trilinear_interpolate", "feats", feats.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const auto view = features_view<T>(feats);
    const auto run = view.channel_stride == 1 ? forward_points<1, T> : forward_points<0, T>;
    auto* data = output.mutable_data_ptr<T>();
    parallel_for(num_points, points_of_grain(num_channels), [&](int64_t begin, int64_t end) {
      run(view, matrix_view<Accumulate<T>>(points), num_channels, begin, end, data);
    });
  });
  return output;
}

std::tuple<Tensor, Tensor> backward(const Tensor& grad, const Tensor& points,
                                    const std::optional<Tensor>& feats, bool needs_feats) {
  check_backward_arguments(grad, points, feats);
  const Gradients gradients = new_gradients(grad, points, feats, needs_feats);
  const int64_t num_points = grad.size(0), num_channels = grad.size(1);
  dispatch_floating("trilinear_interpolate_backward", "grad", grad.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulate<T>;
    const auto arriving = matrix_view<T>(grad);
    const auto coordinates = matrix_view<A>(points);
    const auto view = feats ? features_view<T>(*feats) : Features<T>{};
    const bool dense = arriving.column_stride == 1;
    const auto to_feats = dense ? backward_feats<1, T> : backward_feats<0, T>;
    const auto to_points = dense && view.channel_stride == 1 ? backward_points<1, T> : backward_points<0, T>;
    auto* grad_feats = gradients.feats.mutable_data_ptr<T>();
    auto* grad_points = gradients.points.mutable_data_ptr<A>();
    parallel_for(num_points, points_of_grain(num_channels), [&](int64_t begin, int64_t end) {
      if (needs_feats) {
        to_feats(arriving, coordinates, num_channels, begin, end, grad_feats);
      }
      if (feats) {
        to_points(arriving, view, coordinates, num_channels, begin, end, grad_points);
      }
    });
  });
  return {gradients.feats, gradients.points};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) {
  m.impl("trilinear_interpolate_forward", TORCH_BOX(&forward));
  m.impl("trilinear_interpolate_backward", TORCH_BOX(&backward));
}

}  // namespace detector::trilinear_interpolate

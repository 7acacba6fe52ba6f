// The kernels. Their threads walk rows of channels, a pack at a time, but for one.
#pragma once

#include "../../trilinear_interpolate.h"
#include "../launch.cuh"
#include "../pack.cuh"
#include "../reduce.cuh"

namespace detector::trilinear_interpolate {

constexpr int kThreads = 256;

// How the threads of a grid share out rows of channels: `group` threads (a power of two) walk a row, and
// where one pack each is not enough, `chunks` groups.
struct Shape {
  int64_t num_rows, num_channels;
  int group_bits;
  unsigned chunks;

  __device__ int group() const { return 1 << group_bits; }
  __device__ int lane() const { return threadIdx.x & (group() - 1); }
  __device__ int64_t row() const {
    return (int64_t(blockIdx.x / chunks) * kThreads + threadIdx.x) >> group_bits;
  }
  // The first channel of this thread.
  __device__ int64_t channel(int pack) const {
    return (int64_t(blockIdx.x % chunks) * group() + lane()) * pack;
  }
  // The lanes of the warp that are in this thread's group, which is no larger than the warp.
  __device__ unsigned lanes_of_group() const {
    return 0xffffffffu >> (kWarp - group()) << (lane_of_thread() & ~(group() - 1));
  }
};

template <int V, typename T>
__device__ void load_corners(const Features<T>& feats, int64_t n, int64_t f,
                             Pack<T, V> (&corners)[kCorners]) {
#pragma unroll
  for (int c = 0; c < kCorners; ++c) {
    corners[c] = load_once<V>(feats.corner(n, c) + f * feats.channel_stride);
  }
}

// No loop: all loads start before the first is waited for.
template <int V, typename T, typename P, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Features<T> feats, Matrix<P> points, Shape shape, T* output) {
  const int64_t n = shape.row(), f = shape.channel(V);
  if (n >= shape.num_rows || f >= shape.num_channels) {
    return;
  }
  Pack<T, V> corners[kCorners];
  load_corners(feats, n, f, corners);
  const Point<A> point(points, n);
  Pack<T, V> result;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    A sum = 0;
#pragma unroll
    for (int c = 0; c < kCorners; ++c) {
      sum += point.weight(c) * A(corners[c].values[i]);
    }
    result.values[i] = T(sum);
  }
  store_once(output + n * shape.num_channels + f, result);
}

template <int V, typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads)
    backward_feats_kernel(Matrix<T> grad, Matrix<A> points, Shape shape, T* grad_feats) {
  const int64_t n = shape.row(), f = shape.channel(V);
  if (n >= shape.num_rows || f >= shape.num_channels) {
    return;
  }
  const auto arriving = load_once<V>(grad.data + n * grad.row_stride + f * grad.column_stride);
  const Point<A> point(points, n);
  T* to = grad_feats + n * kCorners * shape.num_channels + f;
#pragma unroll
  for (int c = 0; c < kCorners; ++c) {
    Pack<T, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      result.values[i] = T(point.weight(c) * A(arriving.values[i]));
    }
    store_once(to + c * shape.num_channels, result);
  }
}

// The same for few channels, where threads that walk rows would write a little of the same lines of memory
// over and over: a thread has sixteen bytes of a point's eight corners, whichever those are, by V channels of
// a corner. Threads x have a point, threads y several.
template <int V, typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads)
    backward_feats_few_kernel(Matrix<T> grad, Matrix<A> points, int64_t num_points, int num_channels,
                              float inverse_of_channels, T* grad_feats) {
  const int64_t n = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (n >= num_points) {
    return;
  }
  const int first = threadIdx.x * kPackSize<T>;
  int c = (first + 0.5f) * inverse_of_channels, f = first - c * num_channels;  // c: first / num_channels
  const Point<A> point(points, n);
  Pack<T, kPackSize<T>> result;
#pragma unroll
  for (int at = 0; at < kPackSize<T>; at += V) {
    const auto arriving = load_once<V>(&grad(n, f));
    const A weight = point.weight(c);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      result.values[at + i] = T(weight * A(arriving.values[i]));
    }
    f += V;
    if (f == num_channels) {
      f = 0, ++c;
    }
  }
  store_once(grad_feats + n * kCorners * num_channels + first, result);
}

// A sum over channels: over those of a lane, then over the lanes of the group, in a fixed order.
template <int V, typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads)
    backward_points_kernel(Matrix<T> grad, Features<T> feats, Matrix<A> points, Shape shape, A* grad_points) {
  const int64_t n = shape.row();
  if (n >= shape.num_rows) {
    return;
  }
  A sums[kCorners] = {};
#pragma unroll(V == 1 ? 4 : 2)
  for (int64_t f = shape.lane() * V; f < shape.num_channels; f += shape.group() * V) {
    const auto arriving = load_once<V>(grad.data + n * grad.row_stride + f * grad.column_stride);
    Pack<T, V> corners[kCorners];
    load_corners(feats, n, f, corners);
#pragma unroll
    for (int c = 0; c < kCorners; ++c) {
#pragma unroll
      for (int i = 0; i < V; ++i) {
        sums[c] += A(arriving.values[i]) * A(corners[c].values[i]);
      }
    }
  }
  A along[3];
  Point<A>(points, n).gradient(sums, along);
  for (int offset = shape.group() / 2; offset > 0; offset /= 2) {
    for (A& slope : along) {
      slope += __shfl_xor_sync(shape.lanes_of_group(), slope, offset);
    }
  }
  if (shape.lane() == 0) {
    for (int k = 0; k < 3; ++k) {
      grad_points[n * 3 + k] = along[k];
    }
  }
}

}  // namespace detector::trilinear_interpolate

// Trilinear interpolation on a GPU. Moving feats is all that costs: (8 + 1) N F elements each way for 16 N F
// operations, so the floor is those bytes over the copy bandwidth: the output, the gradient of feats (of few
// channels by a kernel of its own) and the gradient of the points.
// benchmarks/cases/trilinear_interpolate.py says what else was tried.
#include <torch/csrc/stable/library.h>

#include "../../trilinear_interpolate_plan.h"
#include "../launch.cuh"
#include "../pack.cuh"
#include "../reduce.cuh"

namespace detector::trilinear_interpolate {
namespace {

// ---- the kernels, whose threads walk rows of channels, a pack at a time, but for one ----

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
    trilinear_forward_kernel(Features<T> feats, Matrix<P> points, Shape shape, T* output) {
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
    trilinear_grad_feats_rows_kernel(Matrix<T> grad, Matrix<A> points, Shape shape, T* grad_feats) {
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
    trilinear_grad_feats_few_kernel(Matrix<T> grad, Matrix<A> points, int64_t num_points, int num_channels,
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
    trilinear_grad_points_kernel(Matrix<T> grad, Features<T> feats, Matrix<A> points, Shape shape,
                                 A* grad_points) {
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

// ---- the host ----

// Without chunks a group walks all channels of its row.
Shape shape_of(int64_t num_rows, int64_t num_channels, int pack, int largest_group, bool in_chunks) {
  Shape shape{num_rows, num_channels, 0, 1};
  const int64_t packs = ceil_div(num_channels, pack);
  while (1 << shape.group_bits < std::min<int64_t>(packs, largest_group)) {
    ++shape.group_bits;
  }
  if (in_chunks) {
    shape.chunks = ceil_div(packs, 1 << shape.group_bits);
  }
  return shape;
}

unsigned blocks_of(const Shape& shape) {
  return ceil_div(shape.num_rows << shape.group_bits, kThreads) * shape.chunks;
}

// Elements of a pack at most, where a thread holds eight corners: 16 bytes of float and double. Of half types
// 4: with 8, the registers leave too few threads. Forward 8 bytes of float too.
template <typename T>
constexpr int kPack = sizeof(T) == 2 ? 4 : 16 / sizeof(T);
template <typename T>
constexpr int kForwardPack = sizeof(T) == 4 ? 2 : kPack<T>;

// Whether rows of this tensor, walked along its last dimension, can be read in packs of so many bytes.
bool takes_packs(const Tensor& tensor, int64_t bytes) {
  const int64_t last = tensor.dim() - 1, size = tensor.element_size();
  bool takes = tensor.stride(last) == 1 && tensor.size(last) * size % bytes == 0 &&
               is_aligned(tensor.const_data_ptr(), bytes);
  for (int64_t d = 0; d < last; ++d) {
    takes = takes && tensor.stride(d) * size % bytes == 0;
  }
  return takes;
}

// Calls body(V), a constant: the elements of the largest packs that both take.
template <typename T, int kMost, typename Body>
void with_packs(const Tensor& a, const Tensor& b, const Body& body) {
  if constexpr (kMost > 1) {
    if (!takes_packs(a, kMost * sizeof(T)) || !takes_packs(b, kMost * sizeof(T))) {
      return with_packs<T, kMost / 2>(a, b, body);
    }
  }
  body(std::integral_constant<int, kMost>());
}

template <typename T, typename P>
void launch_forward(const Tensor& feats, const Tensor& points, const Tensor& output) {
  with_packs<T, kForwardPack<T>>(feats, feats, [&](auto V) {
    const Shape shape = shape_of(output.size(0), output.size(1), V, kThreads, true);
    launch_kernel(trilinear_forward_kernel<V, T, P>, blocks_of(shape), kThreads, 0, current_stream(feats),
                  features_view<T>(feats), matrix_view<P>(points), shape, output.mutable_data_ptr<T>());
  });
}

template <typename T>
void launch_backward_feats(const Tensor& grad, const Tensor& points, const Tensor& grad_feats) {
  const int64_t num_points = grad.size(0), num_channels = grad.size(1);
  const auto grad_view = matrix_view<T>(grad);
  const auto point_view = matrix_view<Accumulate<T>>(points);
  auto* to = grad_feats.mutable_data_ptr<T>();
  const Request request{num_points, num_channels, sizeof(T)};
  const auto kernel = FeatsKernel(plan("trilinear_interpolate", kFeatsTable, request));
  with_packs<T, kPackSize<T>>(grad, grad, [&](auto V) {
    if (kernel == FeatsKernel::kFew) {
      const Launch launch = few_launch(request);
      const int corners = kCorners * num_channels / kPackSize<T>;
      const dim3 threads(corners, launch.threads / corners);
      launch_kernel(trilinear_grad_feats_few_kernel<V, T>, unsigned(launch.x), threads, 0,
                    current_stream(grad), grad_view, point_view, num_points, int(num_channels),
                    1.f / num_channels, to);
    } else {
      const Shape shape = shape_of(num_points, num_channels, V, kThreads, true);
      launch_kernel(trilinear_grad_feats_rows_kernel<V, T>, blocks_of(shape), kThreads, 0,
                    current_stream(grad), grad_view, point_view, shape, to);
    }
  });
}

template <typename T>
void launch_backward_points(const Tensor& grad, const Tensor& points, const Tensor& feats,
                            const Tensor& grad_points) {
  using A = Accumulate<T>;
  with_packs<T, kPack<T>>(grad, feats, [&](auto V) {
    const Shape shape = shape_of(grad.size(0), grad.size(1), V, kWarp, false);
    launch_kernel(trilinear_grad_points_kernel<V, T>, blocks_of(shape), kThreads, 0, current_stream(grad),
                  matrix_view<T>(grad), features_view<T>(feats), matrix_view<A>(points), shape,
                  grad_points.mutable_data_ptr<A>());
  });
}

Tensor forward(const Tensor& feats, const Tensor& points) {
  check_arguments("trilinear_interpolate", feats, points);
  const auto guard = device_guard(feats);
  const Tensor output = allocate(feats, {feats.size(0), feats.size(2)});
  if (output.numel() > 0) {
    dispatch_floating("trilinear_interpolate", "feats", feats.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      const bool same_type = points.scalar_type() == feats.scalar_type();
      const auto launch = same_type ? launch_forward<T, T> : launch_forward<T, Accumulate<T>>;
      launch(feats, points, output);
    });
  }
  return output;
}

std::tuple<Tensor, Tensor> backward(const Tensor& grad, const Tensor& points,
                                    const std::optional<Tensor>& feats, bool needs_feats) {
  check_backward_arguments(grad, points, feats);
  const auto guard = device_guard(grad);
  const Gradients gradients = new_gradients(grad, points, feats, needs_feats);
  dispatch_floating("trilinear_interpolate_backward", "grad", grad.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    if (needs_feats && grad.numel() > 0) {
      launch_backward_feats<T>(grad, points, gradients.feats);
    }
    if (feats && points.numel() > 0) {
      launch_backward_points<T>(grad, points, *feats, gradients.points);
    }
  });
  return {gradients.feats, gradients.points};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("trilinear_interpolate_forward", TORCH_BOX(&forward));
  m.impl("trilinear_interpolate_backward", TORCH_BOX(&backward));
}

}  // namespace detector::trilinear_interpolate

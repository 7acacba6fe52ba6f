// Trilinear interpolation on a GPU. Moving feats is all that costs: (8 + 1) N F elements each way for 16 N F
// operations, so the floor is those bytes over the copy bandwidth. Four kernels: the output, the gradient of
// feats of many channels and of few, the gradient of the points. benchmarks/cases/trilinear_interpolate.py
// says what else was tried.
#include <torch/csrc/stable/library.h>

#include "../trilinear_interpolate.h"
#include "launch.cuh"
#include "pack.cuh"
#include "reduce.cuh"

namespace detector::trilinear_interpolate {
namespace {

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

// ---- few channels ----
//
// Then threads for rows of channels would read and write a little of the same lines of memory over and over.

// All that the points of a block have of feats, F channels: read side by side, then each thread has a point.
template <typename T, int F>
struct Corners {
  static constexpr int kWords = kCorners * F / kPackSize<T>;  // of sixteen bytes, of a point
  uint4 words[kThreads * kWords];

  // Where the words that neighbours read at once lie in different banks.
  static __device__ int place(int point, int word) {
    constexpr bool kTurned = (kWords & (kWords - 1)) == 0;
    return point * kWords + (kTurned ? word ^ point * kWords / 8 % kWords : word);
  }

  __device__ void load(const T* feats, int64_t first_point, int64_t num_points) {
    const int64_t count = (num_points - first_point) * kWords;
    const auto* from = reinterpret_cast<const uint4*>(feats) + first_point * kWords;
    uint4 loaded[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int at = i * kThreads + int(threadIdx.x);
      if (at < count) {
        loaded[i] = __ldg(from + at);
      }
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int at = i * kThreads + int(threadIdx.x);
      words[place(at / kWords, at % kWords)] = loaded[i];
    }
    __syncthreads();
  }

  // Calls body(corner, channel, value) for the thread's point.
  template <typename Body>
  __device__ void for_each(const Body& body) const {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      Pack<T, kPackSize<T>> pack;
      memcpy(&pack, &words[place(threadIdx.x, w)], sizeof(pack));
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) {
        const int element = w * kPackSize<T> + i;
        body(element / F, element % F, Accumulate<T>(pack.values[i]));
      }
    }
  }
};

template <int F, typename T, typename P, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads)
    forward_few_kernel(const T* feats, Matrix<P> points, int64_t num_points, T* output) {
  __shared__ Corners<T, F> corners;
  const int64_t first = int64_t(blockIdx.x) * kThreads, n = first + threadIdx.x;
  corners.load(feats, first, num_points);
  if (n >= num_points) {
    return;
  }
  const Point<A> point(points, n);
  A sums[F] = {};
  corners.for_each([&](int c, int f, A value) { sums[f] += point.weight(c) * value; });
  constexpr int V = F & (F - 1) ? 1 : F;  // packs have a power of two
#pragma unroll
  for (int f = 0; f < F; f += V) {
    Pack<T, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      result.values[i] = T(sums[f + i]);
    }
    store_once(output + n * F + f, result);
  }
}

template <int F, typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads)
    backward_points_few_kernel(Matrix<T> grad, const T* feats, Matrix<A> points, int64_t num_points,
                               A* grad_points) {
  __shared__ Corners<T, F> corners;
  const int64_t first = int64_t(blockIdx.x) * kThreads, n = first + threadIdx.x;
  corners.load(feats, first, num_points);
  if (n >= num_points) {
    return;
  }
  A arriving[F];
#pragma unroll
  for (int f = 0; f < F; ++f) {
    arriving[f] = A(grad(n, f));
  }
  A sums[kCorners] = {}, along[3];
  corners.for_each([&](int c, int f, A value) { sums[c] += arriving[f] * value; });
  Point<A>(points, n).gradient(sums, along);
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    grad_points[n * 3 + k] = along[k];
  }
}

// A thread has sixteen bytes of a point's eight corners, whichever those are, by V channels
// of a corner: threads x have a point, threads y several.
template <int V, typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads)
    backward_few_feats_kernel(Matrix<T> grad, Matrix<A> points, int64_t num_points, int num_channels,
                              float inverse_of_channels, T* grad_feats) {
  const int64_t n = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (n >= num_points) {
    return;
  }
  const int first = threadIdx.x * kPackSize<T>;
  int c = (first + 0.5f) * inverse_of_channels, f = first - c * num_channels;
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

// Of channels, up to which they are few: for the gradient of feats, and where feats are read.
constexpr int64_t kFewBytes = 64, kFewBytesRead = 16;

// Whether rows of this tensor, walked along its last dimension, can be read in packs of so many bytes.
bool takes_packs(const Tensor& tensor, int64_t bytes) {
  const int64_t last = tensor.dim() - 1, size = tensor.element_size();
  bool takes = tensor.stride(last) == 1 && tensor.size(last) * size % bytes == 0 &&
               reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % bytes == 0;
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

// Whether the kernels that read feats of few channels can.
bool are_few(const Tensor& feats) {
  return feats.size(2) * feats.element_size() <= kFewBytesRead && feats.is_contiguous() &&
         fits_packs(feats.const_data_ptr());
}

// Calls body(F), a constant: the channels, which are few.
template <typename T, int F = kFewBytesRead / sizeof(T), typename Body>
void with_channels(int64_t channels, const Body& body) {
  if constexpr (F > 1) {
    if (channels < F) {
      return with_channels<T, F - 1>(channels, body);
    }
  }
  body(std::integral_constant<int, F>());
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

template <int V, typename T, typename P>
void launch_forward(const Tensor& feats, const Tensor& points, const Tensor& output) {
  const Shape shape = shape_of(output.size(0), output.size(1), V, kThreads, true);
  forward_kernel<V><<<blocks_of(shape), kThreads, 0, current_stream(feats)>>>(
      features_view<T>(feats), matrix_view<P>(points), shape, static_cast<T*>(output.mutable_data_ptr()));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

template <int V, typename T>
void launch_backward_feats(const Tensor& grad, const Tensor& points, const Tensor& grad_feats) {
  const Shape shape = shape_of(grad.size(0), grad.size(1), V, kThreads, true);
  backward_feats_kernel<V><<<blocks_of(shape), kThreads, 0, current_stream(grad)>>>(
      matrix_view<T>(grad), matrix_view<Accumulate<T>>(points), shape,
      static_cast<T*>(grad_feats.mutable_data_ptr()));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

template <int V, typename T>
void launch_backward_few_feats(const Tensor& grad, const Tensor& points, const Tensor& grad_feats) {
  const int num_channels = grad.size(1), packs = kCorners * num_channels / kPackSize<T>;
  const dim3 threads(packs, kThreads / packs);
  backward_few_feats_kernel<V><<<ceil_div(grad.size(0), threads.y), threads, 0, current_stream(grad)>>>(
      matrix_view<T>(grad), matrix_view<Accumulate<T>>(points), grad.size(0), num_channels,
      1.f / num_channels, static_cast<T*>(grad_feats.mutable_data_ptr()));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

template <int V, typename T>
void launch_backward_points(const Tensor& grad, const Tensor& points, const Tensor& feats,
                            const Tensor& grad_points) {
  using A = Accumulate<T>;
  const Shape shape = shape_of(grad.size(0), grad.size(1), V, kWarp, false);
  backward_points_kernel<V><<<blocks_of(shape), kThreads, 0, current_stream(grad)>>>(
      matrix_view<T>(grad), features_view<T>(feats), matrix_view<A>(points), shape,
      static_cast<A*>(grad_points.mutable_data_ptr()));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename T, typename P>
void run_forward(const Tensor& feats, const Tensor& points, const Tensor& output) {
  if (are_few(feats)) {
    with_channels<T>(feats.size(2), [&](auto F) {
      forward_few_kernel<F><<<ceil_div(feats.size(0), kThreads), kThreads, 0, current_stream(feats)>>>(
          static_cast<const T*>(feats.const_data_ptr()), matrix_view<P>(points), feats.size(0),
          static_cast<T*>(output.mutable_data_ptr()));
    });
  } else {
    with_packs<T, kForwardPack<T>>(feats, feats,
                                   [&](auto V) { launch_forward<V, T, P>(feats, points, output); });
  }
}

template <typename T>
void run_backward_points(const Tensor& grad, const Tensor& points, const Tensor& feats,
                         const Tensor& grad_points) {
  using A = Accumulate<T>;
  if (grad.numel() > 0 && are_few(feats)) {
    with_channels<T>(feats.size(2), [&](auto F) {
      backward_points_few_kernel<F>
          <<<ceil_div(feats.size(0), kThreads), kThreads, 0, current_stream(feats)>>>(
              matrix_view<T>(grad), static_cast<const T*>(feats.const_data_ptr()), matrix_view<A>(points),
              feats.size(0), static_cast<A*>(grad_points.mutable_data_ptr()));
    });
  } else {  // a point without channels still has a gradient, zero
    with_packs<T, kPack<T>>(grad, feats,
                            [&](auto V) { launch_backward_points<V, T>(grad, points, feats, grad_points); });
  }
}

Tensor forward(const Tensor& feats, const Tensor& points) {
  check_arguments("trilinear_interpolate", feats, points);
  const auto guard = device_guard(feats);
  const Tensor output = allocate(feats, {feats.size(0), feats.size(2)});
  if (output.numel() > 0) {
    dispatch_floating("trilinear_interpolate", "feats", feats.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      const auto run =
          points.scalar_type() == feats.scalar_type() ? run_forward<T, T> : run_forward<T, Accumulate<T>>;
      run(feats, points, output);
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
      const bool few = grad.size(1) * int64_t(sizeof(T)) <= kFewBytes;
      with_packs<T, kPackSize<T>>(grad, grad, [&](auto V) {
        const auto launch = few ? launch_backward_few_feats<V, T> : launch_backward_feats<V, T>;
        launch(grad, points, gradients.feats);
      });
    }
    if (feats && points.numel() > 0) {
      run_backward_points<T>(grad, points, *feats, gradients.points);
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

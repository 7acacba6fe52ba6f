// Trilinear interpolation on a GPU. Moving feats is all that costs: (8 + 1) N F elements each way for 16 N F
// operations, so the floor is those bytes over the copy bandwidth.
//
// A group of 2^k threads walks the channels of a point, 16 bytes at a time where they are aligned: eight
// independent loads (or stores) a thread. benchmarks/cases/trilinear_interpolate.py says what else was tried.
#include <torch/csrc/stable/library.h>

#include "../trilinear_interpolate.h"
#include "launch.cuh"
#include "pack.cuh"
#include "reduce.cuh"

namespace detector::trilinear_interpolate {
namespace {

constexpr int kThreads = 256;

struct Shape {
  int64_t num_points, num_channels;
  int group_bits;  // log2 of the threads of a group

  __device__ int64_t first_point() const {
    return (int64_t(blockIdx.x) * kThreads + threadIdx.x) >> group_bits;
  }
  __device__ int64_t point_step() const { return int64_t(gridDim.x) * kThreads >> group_bits; }
  __device__ int group() const { return 1 << group_bits; }
  __device__ int lane() const { return threadIdx.x & (group() - 1); }
  // The lanes of the warp that are in this thread's group, which is no larger than the warp.
  __device__ unsigned lanes_of_group() const {
    return 0xffffffffu >> (kWarp - group()) << (lane_of_thread() & ~(group() - 1));
  }
};

template <int V, typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Features<T> feats, Matrix<A> points, Shape shape, T* output) {
  for (int64_t n = shape.first_point(); n < shape.num_points; n += shape.point_step()) {
    const Point<A> point(points, n);
    for (int64_t f = shape.lane() * V; f < shape.num_channels; f += shape.group() * V) {
      Pack<T, V> corners[kCorners];
#pragma unroll
      for (int c = 0; c < kCorners; ++c) {
        corners[c] = load_once<V>(feats.corner(n, c) + f * feats.channel_stride);
      }
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
  }
}

// Writes the gradients that are asked for. The sums of a point run over the lanes of its group in a fixed
// order.
template <int V, bool kFeats, bool kPoints, typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(Matrix<T> grad, Features<T> feats, Matrix<A> points, Shape shape, T* grad_feats,
                    A* grad_points) {
  for (int64_t n = shape.first_point(); n < shape.num_points; n += shape.point_step()) {
    const Point<A> point(points, n);
    A sums[kCorners] = {};  // over the channels of this lane
    for (int64_t f = shape.lane() * V; f < shape.num_channels; f += shape.group() * V) {
      const Pack<T, V> arriving = load_once<V>(grad.data + n * grad.row_stride + f * grad.column_stride);
      Pack<T, V> corners[kCorners];
      if constexpr (kPoints) {
#pragma unroll
        for (int c = 0; c < kCorners; ++c) {
          corners[c] = load_once<V>(feats.corner(n, c) + f * feats.channel_stride);
        }
      }
#pragma unroll
      for (int c = 0; c < kCorners; ++c) {
        Pack<T, V> result;
#pragma unroll
        for (int i = 0; i < V; ++i) {
          result.values[i] = T(point.weight(c) * A(arriving.values[i]));
          if constexpr (kPoints) {
            sums[c] += A(arriving.values[i]) * A(corners[c].values[i]);
          }
        }
        if constexpr (kFeats) {
          store_once(grad_feats + (n * kCorners + c) * shape.num_channels + f, result);
        }
      }
    }
    if constexpr (kPoints) {
      A along[3];
      point.gradient(sums, along);
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
  }
}

Shape shape_of(const Tensor& output, int elements_of_pack, int64_t largest_group) {
  Shape shape{output.size(0), output.size(1), 0};
  const int64_t packs = ceil_div(shape.num_channels, elements_of_pack);
  while (1 << shape.group_bits < std::min(packs, largest_group)) {
    ++shape.group_bits;
  }
  return shape;
}

unsigned blocks_of(const Shape& shape) { return blocks_for(shape.num_points << shape.group_bits, kThreads); }

// Whether rows of this tensor, walked along its last dimension, can be read 16 bytes at a time.
bool is_aligned(const Tensor& tensor) {
  const int64_t last = tensor.dim() - 1, size = tensor.element_size();
  bool aligned = tensor.stride(last) == 1 && tensor.size(last) * size % 16 == 0 &&
                 reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
  for (int64_t d = 0; d < last; ++d) {
    aligned = aligned && tensor.stride(d) * size % 16 == 0;
  }
  return aligned;
}

template <int V, typename T>
void launch_forward(const Tensor& feats, const Tensor& points, const Tensor& output) {
  const Shape shape = shape_of(output, V, kThreads);
  forward_kernel<V><<<blocks_of(shape), kThreads, 0, current_stream(feats)>>>(
      features_view<T>(feats), matrix_view<Accumulate<T>>(points), shape,
      static_cast<T*>(output.mutable_data_ptr()));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

template <int V, bool kFeats, bool kPoints, typename T>
void launch_backward(const Tensor& grad, const Tensor& points, const std::optional<Tensor>& feats,
                     const Gradients& gradients) {
  using A = Accumulate<T>;
  const Shape shape = shape_of(grad, V, kPoints ? kWarp : kThreads);
  backward_kernel<V, kFeats, kPoints><<<blocks_of(shape), kThreads, 0, current_stream(grad)>>>(
      matrix_view<T>(grad), feats ? features_view<T>(*feats) : Features<T>{}, matrix_view<A>(points), shape,
      static_cast<T*>(gradients.feats.mutable_data_ptr()),
      static_cast<A*>(gradients.points.mutable_data_ptr()));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

template <int V, typename T>
void launch_needed(const Tensor& grad, const Tensor& points, const std::optional<Tensor>& feats,
                   bool needs_feats, const Gradients& gradients) {
  if (needs_feats && feats) {
    launch_backward<V, true, true, T>(grad, points, feats, gradients);
  } else if (needs_feats) {
    launch_backward<V, true, false, T>(grad, points, feats, gradients);
  } else if (feats) {
    launch_backward<V, false, true, T>(grad, points, feats, gradients);
  }
}

Tensor forward(const Tensor& feats, const Tensor& points) {
  check_arguments("trilinear_interpolate", feats, points);
  const auto guard = device_guard(feats);
  const Tensor output = torch::stable::new_empty(feats, {feats.size(0), feats.size(2)});
  if (output.numel() > 0) {
    dispatch_floating("trilinear_interpolate", "feats", feats.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      const auto launch = is_aligned(feats) ? launch_forward<16 / sizeof(T), T> : launch_forward<1, T>;
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
  if (grad.size(0) > 0) {  // a point without channels still has a gradient, zero
    dispatch_floating("trilinear_interpolate_backward", "grad", grad.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      const bool aligned = is_aligned(grad) && (!feats || is_aligned(*feats));
      const auto launch = aligned ? launch_needed<16 / sizeof(T), T> : launch_needed<1, T>;
      launch(grad, points, feats, needs_feats, gradients);
    });
  }
  return {gradients.feats, gradients.points};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("trilinear_interpolate_forward", TORCH_BOX(&forward));
  m.impl("trilinear_interpolate_backward", TORCH_BOX(&backward));
}

}  // namespace detector::trilinear_interpolate

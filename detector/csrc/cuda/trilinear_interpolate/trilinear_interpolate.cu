// Trilinear interpolation on a GPU. Moving feats is all that costs: (8 + 1) N F elements each way for 16 N F
// operations, so the floor is those bytes over the copy bandwidth: the output, the gradient of feats (of few
// channels by a kernel of its own) and the gradient of the points.
// benchmarks/cases/trilinear_interpolate.py says what else was tried.
#include <torch/csrc/stable/library.h>

#include "kernels.cuh"

namespace detector::trilinear_interpolate {
namespace {

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

// Of channels, up to which they are few.
constexpr int64_t kFewBytes = 64;

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
    launch_kernel(forward_kernel<V, T, P>, blocks_of(shape), kThreads, 0, current_stream(feats),
                  features_view<T>(feats), matrix_view<P>(points), shape, output.mutable_data_ptr<T>());
  });
}

template <typename T>
void launch_backward_feats(const Tensor& grad, const Tensor& points, const Tensor& grad_feats) {
  const int64_t num_points = grad.size(0), num_channels = grad.size(1);
  const auto grad_view = matrix_view<T>(grad);
  const auto point_view = matrix_view<Accumulate<T>>(points);
  auto* to = grad_feats.mutable_data_ptr<T>();
  with_packs<T, kPackSize<T>>(grad, grad, [&](auto V) {
    if (num_channels * int64_t(sizeof(T)) <= kFewBytes) {
      const int packs = kCorners * num_channels / kPackSize<T>;
      const dim3 threads(packs, kThreads / packs);
      launch_kernel(backward_feats_few_kernel<V, T>, ceil_div(num_points, threads.y), threads, 0,
                    current_stream(grad), grad_view, point_view, num_points, int(num_channels),
                    1.f / num_channels, to);
    } else {
      const Shape shape = shape_of(num_points, num_channels, V, kThreads, true);
      launch_kernel(backward_feats_kernel<V, T>, blocks_of(shape), kThreads, 0, current_stream(grad),
                    grad_view, point_view, shape, to);
    }
  });
}

template <typename T>
void launch_backward_points(const Tensor& grad, const Tensor& points, const Tensor& feats,
                            const Tensor& grad_points) {
  using A = Accumulate<T>;
  with_packs<T, kPack<T>>(grad, feats, [&](auto V) {
    const Shape shape = shape_of(grad.size(0), grad.size(1), V, kWarp, false);
    launch_kernel(backward_points_kernel<V, T>, blocks_of(shape), kThreads, 0, current_stream(grad),
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

// Bilinear resizing on a GPU: one launch each way. The backward gathers, so that nothing is added in an order
// that the hardware picks.
#include <torch/csrc/stable/library.h>

#include "launch.cuh"
#include "upsample_bilinear2d/nchw.cuh"
#include "upsample_bilinear2d/nhwc.cuh"

namespace detector::upsample_bilinear2d {
namespace {

constexpr int kFewTaps = 4;  // enough up to a factor of 2
constexpr int kManyTaps = 8;

template <typename T>
const T* data_of(const Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

// The pack of `length` neighbours that can be loaded from both: kPackSize or 1.
template <typename T>
bool takes_packs(int64_t length, const T* from, const T* to) {
  return length % kPackSize<T> == 0 && fits_packs(from) && fits_packs(to);
}

// Both tensors are small enough for int indices.
bool is_small(const Tensor& a, const Tensor& b) {
  return std::max(a.numel(), b.numel()) <= std::numeric_limits<int>::max() - kThreads;
}

template <typename T>
void launch_forward(const Tensor& input, const Resizing& sizes, const Tensor& output) {
  using A = Accumulate<T>;
  const cudaStream_t stream = current_stream(input);
  const auto vertical = sizes.vertical<A>(), horizontal = sizes.horizontal<A>();
  const T* from = data_of<T>(input);
  T* to = static_cast<T*>(output.mutable_data_ptr());
  const bool small = is_small(input, output);
  const int64_t images = input.size(0), channels = input.size(1);
  if (is_channels_last(input)) {
    const int strips = ceil_div(horizontal.out, kStrip);
    const bool packed = small && takes_packs(channels, from, to);
    const int64_t pixels = images * strips * vertical.out;
    const unsigned blocks = blocks_for(pixels * (packed ? channels / kPackSize<T> : channels), kThreads);
    const auto launch = [&](auto kernel, auto index) {
      using Index = decltype(index);
      kernel<<<blocks, kThreads, 0, stream>>>(from, vertical, horizontal, Index(images), Index(channels),
                                              strips, to);
    };
    if (packed) {
      launch(forward_channels<kPackSize<T>, int, T>, int());
    } else if (small) {
      launch(forward_channels<1, int, T>, int());
    } else {
      launch(forward_channels<1, int64_t, T>, int64_t());
    }
  } else {
    const int strips = ceil_div(vertical.out, kStrip);
    const bool packed = small && takes_packs(horizontal.out, to, to);
    const int64_t planes = images * channels;
    const unsigned blocks =
        blocks_for(planes * strips * (packed ? horizontal.out / kPackSize<T> : horizontal.out), kThreads);
    const auto launch = [&](auto kernel, auto index) {
      kernel<<<blocks, kThreads, 0, stream>>>(from, vertical, horizontal, decltype(index)(planes), strips,
                                              to);
    };
    if (packed) {
      launch(forward_planes<kPackSize<T>, int, T>, int());
    } else if (small) {
      launch(forward_planes<1, int, T>, int());
    } else {
      launch(forward_planes<1, int64_t, T>, int64_t());
    }
  }
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename T>
void launch_backward(const Tensor& grad, const Resizing& sizes, const Tensor& grad_input) {
  using A = Accumulate<T>;
  const cudaStream_t stream = current_stream(grad);
  const auto vertical = sizes.vertical<A>(), horizontal = sizes.horizontal<A>();
  const T* from = data_of<T>(grad);
  T* to = static_cast<T*>(grad_input.mutable_data_ptr());
  const bool small = is_small(grad, grad_input);
  const int64_t images = grad.size(0), channels = grad.size(1);
  if (is_channels_last(grad)) {
    const int strips = ceil_div(horizontal.in, kStrip);
    const bool packed = small && takes_packs(channels, from, to);
    const int64_t pixels = images * strips * vertical.in;
    const unsigned blocks = blocks_for(pixels * (packed ? channels / kPackSize<T> : channels), kThreads);
    const auto launch = [&](auto kernel, auto index) {
      using Index = decltype(index);
      kernel<<<blocks, kThreads, 0, stream>>>(from, vertical, horizontal, Index(images), Index(channels),
                                              strips, to);
    };
    if (packed) {
      launch(backward_channels<kPackSize<T>, kFewTaps, int, T>, int());
    } else if (small) {
      launch(backward_channels<1, kFewTaps, int, T>, int());
    } else {
      launch(backward_channels<1, kFewTaps, int64_t, T>, int64_t());
    }
  } else {
    const int strips = ceil_div(vertical.in, kStrip);
    const int64_t planes = images * channels;
    const unsigned blocks = blocks_for(planes * strips * horizontal.in, kThreads);
    const auto launch = [&](auto kernel, auto index) {
      kernel<<<blocks, kThreads, 0, stream>>>(from, vertical, horizontal, decltype(index)(planes), strips,
                                              to);
    };
    if (!small) {
      launch(backward_planes<kFewTaps, int64_t, T>, int64_t());
    } else if (2 * horizontal.in >= horizontal.out) {
      launch(backward_planes<kFewTaps, int, T>, int());
    } else {
      launch(backward_planes<kManyTaps, int, T>, int());
    }
  }
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor forward(const Tensor& any_input, int64_t height, int64_t width, int64_t mode, double scale_height,
               double scale_width) {
  constexpr const char* op = "upsample_bilinear2d";
  check_arguments(op, "input", any_input, "size", height, width, mode);
  const auto guard = device_guard(any_input);
  const Tensor input = in_known_layout(any_input);
  const Tensor output = empty_in_layout(input, height, width);
  const Resizing sizes{input.size(2),        input.size(3), height,     width,
                       CoordinateMode(mode), scale_height,  scale_width};
  dispatch_floating(op, "input", input.scalar_type(), [&](auto zero) {
    if (output.numel() > 0) {
      launch_forward<decltype(zero)>(input, sizes, output);
    }
  });
  return output;
}

Tensor backward(const Tensor& any_grad, int64_t height, int64_t width, int64_t mode, double scale_height,
                double scale_width) {
  constexpr const char* op = "upsample_bilinear2d_backward";
  check_arguments(op, "grad", any_grad, "input size", height, width, mode);
  const auto guard = device_guard(any_grad);
  const Tensor grad = in_known_layout(any_grad);
  const Tensor grad_input = empty_in_layout(grad, height, width);
  const Resizing sizes{height,       width,      grad.size(2), grad.size(3), CoordinateMode(mode),
                       scale_height, scale_width};
  dispatch_floating(op, "grad", grad.scalar_type(), [&](auto zero) {
    if (grad_input.numel() > 0) {
      launch_backward<decltype(zero)>(grad, sizes, grad_input);
    }
  });
  return grad_input;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("upsample_bilinear2d_forward", TORCH_BOX(&forward));
  m.impl("upsample_bilinear2d_backward", TORCH_BOX(&backward));
}

}  // namespace detector::upsample_bilinear2d

// Bilinear resizing on a GPU: one launch each way. The backward gathers, so that nothing is added in an order
// that the hardware picks.
#include <torch/csrc/stable/library.h>

#include "launch.cuh"
#include "upsample_bilinear2d/nchw.cuh"
#include "upsample_bilinear2d/nhwc.cuh"
#include "upsample_bilinear2d/tiles.cuh"

namespace detector::upsample_bilinear2d {
namespace {

// What both passes launch a kernel with. `from` is the input or, backward, the gradient that arrives.
template <typename T, typename A = Accumulate<T>>
struct Launch {
  const T* from;
  T* to;
  Axis<A> vertical, horizontal;
  int64_t images, channels;
  bool small;  // int indices do
  cudaStream_t stream;

  Launch(const Tensor& from_tensor, const Resizing& sizes, const Tensor& to_tensor)
      : from(static_cast<const T*>(from_tensor.const_data_ptr())),
        to(static_cast<T*>(to_tensor.mutable_data_ptr())),
        vertical(sizes.vertical<A>()),
        horizontal(sizes.horizontal<A>()),
        images(to_tensor.size(0)),
        channels(to_tensor.size(1)),
        small(std::max(from_tensor.numel(), to_tensor.numel()) <= std::numeric_limits<int>::max() - kThreads),
        stream(current_stream(from_tensor)) {}

  bool takes_packs(int64_t length) const {
    return small && length % kPackSize<T> == 0 && fits_packs(from) && fits_packs(to);
  }

  // A thread for `pack` channels of a row and a strip of its `width` pixels.
  template <typename Index, typename... Arguments>
  void over_pixels(void (*kernel)(Arguments...), Index, int pack, int rows, int width) const {
    const int strips = ceil_div(width, kStrip);
    const unsigned blocks = blocks_for(images * strips * rows * (channels / pack), kThreads);
    kernel<<<blocks, kThreads, 0, stream>>>(from, vertical, horizontal, Index(images), Index(channels),
                                            strips, to);
  }

  // A thread for `pack` columns of `width` and a strip of `rows` rows of a plane.
  template <typename Index, typename... Arguments>
  void over_planes(void (*kernel)(Arguments...), Index, int pack, int width, int rows) const {
    const int strips = ceil_div(rows, kStrip);
    const unsigned blocks = blocks_for(images * channels * strips * (width / pack), kThreads);
    kernel<<<blocks, kThreads, 0, stream>>>(from, vertical, horizontal, Index(images * channels), strips, to);
  }

  // A warp for `width` input columns and a strip of input rows of a plane.
  template <typename... Arguments>
  void over_tiles(void (*kernel)(Arguments...), int width) const {
    const int strips = ceil_div(vertical.in, kStrip), tiles = ceil_div(horizontal.in, width);
    const unsigned blocks = blocks_for(images * channels * strips * tiles, kWarps);
    kernel<<<blocks, kThreads, 0, stream>>>(from, vertical, horizontal, int(images * channels), strips, tiles,
                                            width, to);
  }
};

template <typename T>
void forward_kernel(const Launch<T>& launch, bool channels_last) {
  constexpr int pack = kPackSize<T>;
  const int rows = launch.vertical.out, width = launch.horizontal.out;
  if (channels_last && launch.takes_packs(launch.channels)) {
    launch.over_pixels(forward_channels<pack, int, T>, int(), pack, rows, width);
  } else if (channels_last && launch.small) {
    launch.over_pixels(forward_channels<1, int, T>, int(), 1, rows, width);
  } else if (channels_last) {
    launch.over_pixels(forward_channels<1, int64_t, T>, int64_t(), 1, rows, width);
  } else if (launch.takes_packs(width)) {
    launch.over_planes(forward_planes<pack, int, T>, int(), pack, width, rows);
  } else if (launch.small) {
    launch.over_planes(forward_planes<1, int, T>, int(), 1, width, rows);
  } else {
    launch.over_planes(forward_planes<1, int64_t, T>, int64_t(), 1, width, rows);
  }
}

template <typename T>
void backward_kernel(const Launch<T>& launch, bool channels_last) {
  constexpr int pack = kPackSize<T>;
  const int rows = launch.vertical.in, width = launch.horizontal.in;
  if (channels_last && launch.takes_packs(launch.channels)) {
    launch.over_pixels(backward_channels<pack, int, T>, int(), pack, rows, width);
  } else if (channels_last && launch.small) {
    launch.over_pixels(backward_channels<1, int, T>, int(), 1, rows, width);
  } else if (channels_last) {
    launch.over_pixels(backward_channels<1, int64_t, T>, int64_t(), 1, rows, width);
  } else {
    const bool packed = launch.takes_packs(launch.horizontal.out);
    const int tile = launch.small ? tile_width(launch.horizontal, packed ? pack : 1) : 0;
    if (tile == 0) {
      launch.over_planes(backward_planes<int64_t, T>, int64_t(), 1, width, rows);
    } else if (packed) {
      launch.over_tiles(backward_tiles<pack, T>, tile);
    } else {
      launch.over_tiles(backward_tiles<1, T>, tile);
    }
  }
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
      using T = decltype(zero);
      forward_kernel(Launch<T>(input, sizes, output), is_channels_last(input));
      STD_CUDA_KERNEL_LAUNCH_CHECK();
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
      using T = decltype(zero);
      backward_kernel(Launch<T>(grad, sizes, grad_input), is_channels_last(grad));
      STD_CUDA_KERNEL_LAUNCH_CHECK();
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

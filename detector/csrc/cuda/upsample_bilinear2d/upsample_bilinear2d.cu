// Bilinear resizing on a GPU: one launch each way. The backward gathers, so that nothing is added in an order
// that the hardware picks.
//
// Floor: input and output moved once, 1.34 GB for 16x256x128x128 float32 times 2, 0.32 ms on an H200.
// Measured there, as a share of the copy bandwidth in float32 and float16:
// - Backward of planes at a factor of 2: 99 and 94 % by backward_doubled. For other factors a thread gathers
//   all taps of a column from global memory; timed at that factor it reaches 54 and 27 %.
// - Forward of planes: packs of 8 bytes reach 78 and 63 %, packs of 16 bytes 88 and 77 %.
// - Backward of channels: strips of 16, 32, 64 and 128 columns reach 94, 93, 83 and 72 % in float32, and
//   68, 72, 74 and 69 % in float16, where packs travel as words (0.197 ms instead of 0.230).
#include <torch/csrc/stable/library.h>

#include "../launch.cuh"
#include "doubled.cuh"
#include "nchw.cuh"
#include "nhwc.cuh"

namespace detector::upsample_bilinear2d {
namespace {

constexpr int kStrip = 16;                 // lines of a walk: few where there is little to do
constexpr int kLongStrip = 64;             // fewer strips are fewer beginnings, which half types feel most
constexpr int64_t kEnough = 1 << 19;       // threads that fill a GPU
constexpr int64_t kEnoughPacks = 1 << 17;  // the same where each has several packs of half types on their way

// Lines of a walk, where `others` threads walk side by side.
int strip_of(int64_t others, int lines, int most, int64_t enough = kEnough) {
  return others * ceil_div(lines, most) >= enough ? most : kStrip;
}

// What both passes launch a kernel with. `from` is the input or, backward, the gradient that arrives.
template <typename T, typename A = Accumulate<T>>
struct Launch {
  static constexpr int kMost = sizeof(T) == 2 ? kLongStrip : kStrip;
  const T* from;
  T* to;
  Axis<A> vertical, horizontal;
  int64_t images, channels;
  bool small;  // int indices do
  cudaStream_t stream;

  Launch(const Tensor& from_tensor, const Resizing& sizes, const Tensor& to_tensor)
      : from(from_tensor.const_data_ptr<T>()),
        to(to_tensor.mutable_data_ptr<T>()),
        vertical(sizes.vertical<A>()),
        horizontal(sizes.horizontal<A>()),
        images(to_tensor.size(0)),
        channels(to_tensor.size(1)),
        small(std::max(from_tensor.numel(), to_tensor.numel()) <= std::numeric_limits<int>::max() - kThreads),
        stream(current_stream(from_tensor)) {}

  bool takes_packs(int64_t length) const {
    return small && length % kPackSize<T> == 0 && is_aligned(from) && is_aligned(to);
  }

  // A thread for `pack` channels of a row and a strip of its `width` pixels.
  template <typename Index, typename... Arguments>
  void over_pixels(void (*kernel)(Arguments...), Index, int pack, int rows, int width,
                   int64_t enough = kEnough) const {
    const int64_t others = images * rows * (channels / pack);
    const int strip = strip_of(others, width, kMost, enough), strips = ceil_div(width, strip);
    const unsigned blocks = blocks_for(others * strips, kThreads);
    launch_kernel(kernel, blocks, kThreads, 0, stream, from, vertical, horizontal, Index(images),
                  Index(channels), strips, strip, to);
  }

  // A thread for `pack` columns of `width` and a strip of `rows` rows of a plane.
  template <typename Index, typename... Arguments>
  void over_planes(void (*kernel)(Arguments...), Index, int pack, int width, int rows) const {
    const int64_t others = images * channels * (width / pack);
    const int strip = strip_of(others, rows, kMost), strips = ceil_div(rows, strip);
    const unsigned blocks = blocks_for(others * strips, kThreads);
    launch_kernel(kernel, blocks, kThreads, 0, stream, from, vertical, horizontal, Index(images * channels),
                  strips, strip, to);
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
    launch.over_pixels(backward_channels<pack, int, T>, int(), pack, rows, width, kEnoughPacks);
  } else if (channels_last && launch.small) {
    launch.over_pixels(backward_channels<1, int, T>, int(), 1, rows, width);
  } else if (channels_last) {
    launch.over_pixels(backward_channels<1, int64_t, T>, int64_t(), 1, rows, width);
  } else if (launch.takes_packs(launch.horizontal.out) && is_doubled(launch.horizontal)) {
    launch.over_planes(backward_doubled<T>, int(), pack / 2, width, rows);
  } else if (launch.small) {
    launch.over_planes(backward_planes<int, T>, int(), 1, width, rows);
  } else {
    launch.over_planes(backward_planes<int64_t, T>, int64_t(), 1, width, rows);
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

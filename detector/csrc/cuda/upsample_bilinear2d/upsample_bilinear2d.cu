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
#include "nchw.cuh"
#include "nhwc.cuh"

namespace detector::upsample_bilinear2d {
namespace {

constexpr int kStrip = 16;                 // lines of a walk: few where there is little to do
constexpr int kLongStrip = 64;             // fewer strips are fewer beginnings, which half types feel most
constexpr int64_t kEnough = 1 << 19;       // threads that fill a GPU
constexpr int64_t kEnoughPacks = 1 << 17;  // the same where each has several packs of half types on their way

// Lines of a walk, where `others` threads walk side by side.
int strip_of(int64_t others, int lines, int most, int64_t enough) {
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

  // Calls body(the size of a pack, an index), both for `length` elements that lie side by side.
  template <typename Body>
  void with_packs(int64_t length, const Body& body) const {
    if (takes_packs(length)) {
      body(std::integral_constant<int, kPackSize<T>>(), int());
    } else if (small) {
      body(std::integral_constant<int, 1>(), int());
    } else {
      body(std::integral_constant<int, 1>(), int64_t());
    }
  }

  // A thread for a strip of `lines` lines, of which `others` lie side by side. The kernel takes `counts`.
  template <typename... Arguments, typename... Counts>
  void operator()(void (*kernel)(Arguments...), int64_t others, int lines, int64_t enough,
                  Counts... counts) const {
    const int strip = strip_of(others, lines, kMost, enough), strips = ceil_div(lines, strip);
    launch_kernel(kernel, blocks_for(others * strips, kThreads), kThreads, 0, stream, from, vertical,
                  horizontal, counts..., strips, strip, to);
  }
};

struct Cuda {
  template <typename T>
  static void forward(const Tensor& input, const Resizing& sizes, bool channels_last, const Tensor& output) {
    const Launch<T> launch(input, sizes, output);
    const int64_t images = launch.images, channels = launch.channels;
    const int rows = launch.vertical.out, width = launch.horizontal.out;
    launch.with_packs(channels_last ? channels : width, [&](auto pack, auto index) {
      using Index = decltype(index);
      if (channels_last) {
        launch(forward_channels<pack, Index, T>, images * rows * (channels / pack), width, kEnough,
               Index(images), Index(channels));
      } else {
        launch(forward_planes<pack, Index, T>, images * channels * (width / pack), rows, kEnough,
               Index(images * channels));
      }
    });
  }

  template <typename T>
  static void backward(const Tensor& grad, const Resizing& sizes, bool channels_last,
                       const Tensor& grad_input) {
    const Launch<T> launch(grad, sizes, grad_input);
    const int64_t images = launch.images, channels = launch.channels;
    const int rows = launch.vertical.in, width = launch.horizontal.in;
    if (!channels_last && launch.takes_packs(launch.horizontal.out) && is_doubled(launch.horizontal)) {
      launch(backward_doubled<T>, images * channels * (width / (kPackSize<T> / 2)), rows, kEnough,
             int(images * channels));
      return;
    }
    launch.with_packs(channels_last ? channels : 1, [&](auto pack, auto index) {
      using Index = decltype(index);
      if (channels_last) {
        launch(backward_channels<pack, Index, T>, images * rows * (channels / pack), width,
               pack > 1 ? kEnoughPacks : kEnough, Index(images), Index(channels));
      } else {
        launch(backward_planes<Index, T>, images * channels * width, rows, kEnough, Index(images * channels));
      }
    });
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("upsample_bilinear2d_forward", TORCH_BOX(&forward<Cuda>));
  m.impl("upsample_bilinear2d_backward", TORCH_BOX(&backward<Cuda>));
}

}  // namespace detector::upsample_bilinear2d

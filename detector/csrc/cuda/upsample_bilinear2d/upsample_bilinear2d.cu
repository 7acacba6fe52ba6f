// Bilinear resizing on a GPU: one launch each way. The backward gathers, so that nothing is added in an order
// that the hardware picks.
//
// Floor: input and output moved once, 1.34 GB for 16x256x128x128 float32 times 2, 0.32 ms on an H200.
// Measured there, as a share of the copy bandwidth in float32 and float16:
// - Backward of planes at a factor of 2: 99 and 94 % by upsample_backward_doubled_kernel. For other factors a
// thread gathers
//   all taps of a column from global memory; timed at that factor it reaches 54 and 27 %.
// - Forward of planes: packs of 8 bytes reach 78 and 63 %, packs of 16 bytes 88 and 77 %.
// - Backward of channels: strips of 16, 32, 64 and 128 columns reach 94, 93, 83 and 72 % in float32, and
//   68, 72, 74 and 69 % in float16, where packs travel as words (0.197 ms instead of 0.230).
#include <torch/csrc/stable/library.h>

#include <array>

#include "../../upsample_bilinear2d_plan.h"
#include "../launch.cuh"
#include "nchw.cuh"
#include "nhwc.cuh"

namespace detector::upsample_bilinear2d {
namespace {

// What both passes launch a kernel with. `from` is the input or, backward, the gradient that arrives.
template <typename T, typename A = Accumulate<T>>
struct Walk {
  const T* from;
  T* to;
  Axis<A> vertical, horizontal;
  Request request;
  cudaStream_t stream;

  Walk(const Tensor& from_tensor, const Resizing& sizes, bool channels_last, const Tensor& to_tensor)
      : from(from_tensor.const_data_ptr<T>()),
        to(to_tensor.mutable_data_ptr<T>()),
        vertical(sizes.vertical<A>()),
        horizontal(sizes.horizontal<A>()),
        request{sizes,         to_tensor.size(0), to_tensor.size(1),
                channels_last, sizeof(T),         is_aligned(from) && is_aligned(to)},
        stream(current_stream(from_tensor)) {}

  // The kernel takes `counts`.
  template <typename... Arguments, typename... Counts>
  void operator()(void (*kernel)(Arguments...), const Strips& strips, Counts... counts) const {
    launch_kernel(kernel, strips.launch, stream, from, vertical, horizontal, counts..., strips.number,
                  strips.lines, to);
  }
};

struct Cuda {
  template <typename T>
  static void forward(const Tensor& input, const Resizing& sizes, bool channels_last, const Tensor& output) {
    const Walk<T> walk(input, sizes, channels_last, output);
    const Request& r = walk.request;
    constexpr int pack = kPackSize<T>;
    const int64_t images = r.images, channels = r.channels, planes = images * channels;
    switch (forward_kernel(r)) {
      case Forward::kChannelPacks:
        return walk(upsample_forward_channels_kernel<pack, int, T>, forward_channels_strips<true>(r),
                    int(images), int(channels));
      case Forward::kChannels:
        return walk(upsample_forward_channels_kernel<1, int64_t, T>, forward_channels_strips<false>(r),
                    images, channels);
      case Forward::kPlanePacks:
        return walk(upsample_forward_planes_kernel<pack, int, T>, forward_planes_strips<true>(r),
                    int(planes));
      case Forward::kPlanes:
        return walk(upsample_forward_planes_kernel<1, int, T>, forward_planes_strips<false>(r), int(planes));
      case Forward::kPlanes64:
        return walk(upsample_forward_planes_kernel<1, int64_t, T>, forward_planes_strips<false>(r), planes);
    }
  }

  template <typename T>
  static void backward(const Tensor& grad, const Resizing& sizes, bool channels_last,
                       const Tensor& grad_input) {
    const Walk<T> walk(grad, sizes, channels_last, grad_input);
    const Request& r = walk.request;
    constexpr int pack = kPackSize<T>;
    const int64_t images = r.images, channels = r.channels, planes = images * channels;
    switch (backward_kernel(r)) {
      case Backward::kSum: {
        const std::array<int64_t, 2> pixels{2, 3};
        Tensor sum = grad_input;
        torch::stable::sum_out(sum, grad, pixels, /*keepdim=*/true);
        return;
      }
      case Backward::kDoubled:
        return walk(upsample_backward_doubled_kernel<T>, doubled_strips(r), int(planes));
      case Backward::kChannelPacks:
        return walk(upsample_backward_channels_kernel<pack, int, T>, backward_channels_strips<true>(r),
                    int(images), int(channels));
      case Backward::kChannels:
        return walk(upsample_backward_channels_kernel<1, int64_t, T>, backward_channels_strips<false>(r),
                    images, channels);
      case Backward::kPlanes:
        return walk(upsample_backward_planes_kernel<T>, backward_planes_strips(r), planes);
    }
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("upsample_bilinear2d_forward", TORCH_BOX(&forward<Cuda>));
  m.impl("upsample_bilinear2d_backward", TORCH_BOX(&backward<Cuda>));
}

}  // namespace detector::upsample_bilinear2d

// The fast kernels for channels-last tensors. Each returns false where it has none for a problem: they are
// for one filter a channel, and channels in whole vectors of 16 bytes. The fastest are for square kernels of
// 3, 5 and 7 with stride 1, and of 3 with stride 2, and no dilation.
#include "channels_last/any_kernel.cuh"
#include "channels_last/forward.cuh"
#include "channels_last/grad_weight.cuh"
#include "kernels.cuh"

namespace detector::depthwise_conv2d {
namespace channels_last {

// Calls body(kernel, stride), both std::integral_constant, where there are faster kernels than those of
// any_kernel.cuh; false elsewhere.
template <typename Body>
bool dispatch(const Problem& p, const Body& body) {
  constexpr std::integral_constant<int, 1> one;
  constexpr std::integral_constant<int, 2> two;
  if (p.kernel_h != p.kernel_w || p.stride_h != p.stride_w || p.dilation_h * p.dilation_w != 1) {
    return false;
  }
  if (p.stride_h == 2 && p.kernel_h == 3) {
    return body(std::integral_constant<int, 3>{}, two);
  }
  return p.stride_h == 1 && with_kernel(p.kernel_h, [&](auto kernel) { return body(kernel, one); });
}

}  // namespace channels_last

template <typename T>
bool forward_channels_last(const Problem& p, const T* input, const T* weight, const T* bias, T* output,
                           cudaStream_t stream) {
  using namespace channels_last;
  if (!has_stencil<T>(p, input, output) || !is_aligned(bias)) {
    return false;
  }
  const bool done = dispatch(p, [&](auto kernel, auto stride) {
    launch_forward<kernel, stride>(walk_output(p), p.batch, input, weight, bias, false, output, stream);
    return true;
  });
  if (!done) {
    launch_stencil(p, false, input, weight, bias, output, stream);
  }
  return true;
}

template <typename T>
bool grad_input_channels_last(const Problem& p, const T* grad, const T* weight, T* grad_input,
                              cudaStream_t stream) {
  using namespace channels_last;
  if (!has_stencil<T>(p, grad, grad_input)) {
    return false;
  }
  const T* no_bias = nullptr;
  const bool done =
      p.stride_h == 1 && dispatch(p, [&](auto kernel, auto) {
        Walk walk = walk_input(p);  // a forward pass with the kernel turned around
        walk.pad_h = kernel - 1 - walk.pad_h;
        walk.pad_w = kernel - 1 - walk.pad_w;
        launch_forward<kernel, 1>(walk, p.batch, grad, weight, no_bias, true, grad_input, stream);
        return true;
      });
  if (!done) {
    launch_stencil(p, true, grad, weight, no_bias, grad_input, stream);
  }
  return true;
}

template <typename T>
bool grad_weight_channels_last(const Problem& p, const T* input, const T* grad, T* grad_weight,
                               const Allocate& allocate, cudaStream_t stream) {
  using namespace channels_last;
  if (!has_stencil<T>(p, input, grad)) {
    return false;
  }
  const bool done = dispatch(p, [&](auto kernel, auto stride) {
    launch_grad_weight<kernel, stride>(walk_output(p), p.batch, input, grad, grad_weight, allocate, stream);
    return true;
  });
  if (!done) {
    launch_stencil_grad_weight(p, input, grad, grad_weight, allocate, stream);
  }
  return true;
}

#define INSTANTIATE(T)                                                                                 \
  template bool forward_channels_last(const Problem&, const T*, const T*, const T*, T*, cudaStream_t); \
  template bool grad_input_channels_last(const Problem&, const T*, const T*, T*, cudaStream_t);        \
  template bool grad_weight_channels_last(const Problem&, const T*, const T*, T*, const Allocate&,     \
                                          cudaStream_t);

INSTANTIATE(float)
INSTANTIATE(Half)
INSTANTIATE(BFloat16)

}  // namespace detector::depthwise_conv2d

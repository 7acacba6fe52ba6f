// The fast kernels for channels-last tensors: by rows and, for what those do not take, the stencil.
#include "channels_last/any_kernel.cuh"
#include "channels_last/forward.cuh"
#include "channels_last/grad_weight.cuh"
#include "kernels.cuh"

namespace detector::depthwise_conv2d {
namespace channels_last {

// Calls body(kernel, stride), both std::integral_constant, for a problem that the kernels by rows take.
template <typename Body>
void dispatch(const Problem& p, const Body& body) {
  if (p.stride_h == 2) {
    return body(std::integral_constant<int, 3>{}, std::integral_constant<int, 2>{});
  }
  with_kernel(p.kernel_h, [&](auto kernel) { body(kernel, std::integral_constant<int, 1>{}); });
}

}  // namespace channels_last

template <typename T>
void forward_channels_last(const Problem& p, bool rows, const T* input, const T* weight, const T* bias,
                           T* output, cudaStream_t stream) {
  using namespace channels_last;
  if (!rows) {
    return launch_stencil(p, false, input, weight, bias, output, stream);
  }
  dispatch(p, [&](auto kernel, auto stride) {
    launch_forward<kernel, stride>(walk_output(p), p.batch, input, weight, bias, false, output, stream);
  });
}

template <typename T>
void grad_input_channels_last(const Problem& p, bool rows, const T* grad, const T* weight, T* grad_input,
                              cudaStream_t stream) {
  using namespace channels_last;
  const T* no_bias = nullptr;
  if (!rows) {
    return launch_stencil(p, true, grad, weight, no_bias, grad_input, stream);
  }
  with_kernel(p.kernel_h, [&](auto kernel) {
    Walk walk = walk_input(p);  // a forward pass with the kernel turned around
    walk.pad_h = kernel - 1 - walk.pad_h;
    walk.pad_w = kernel - 1 - walk.pad_w;
    launch_forward<kernel, 1>(walk, p.batch, grad, weight, no_bias, true, grad_input, stream);
  });
}

template <typename T>
void grad_weight_channels_last(const Problem& p, bool rows, const T* input, const T* grad, T* grad_weight,
                               const Allocate& allocate, cudaStream_t stream) {
  using namespace channels_last;
  if (!rows) {
    return launch_stencil_grad_weight(p, input, grad, grad_weight, allocate, stream);
  }
  dispatch(p, [&](auto kernel, auto stride) {
    launch_grad_weight<kernel, stride>(walk_output(p), p.batch, input, grad, grad_weight, allocate, stream);
  });
}

#define INSTANTIATE(T)                                                                                       \
  template void forward_channels_last(const Problem&, bool, const T*, const T*, const T*, T*, cudaStream_t); \
  template void grad_input_channels_last(const Problem&, bool, const T*, const T*, T*, cudaStream_t);        \
  template void grad_weight_channels_last(const Problem&, bool, const T*, const T*, T*, const Allocate&,     \
                                          cudaStream_t);

INSTANTIATE(float)
INSTANTIATE(Half)
INSTANTIATE(BFloat16)

}  // namespace detector::depthwise_conv2d

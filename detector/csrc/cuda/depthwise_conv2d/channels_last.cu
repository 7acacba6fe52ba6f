// The fast kernels for channels-last tensors. Each returns false where it has none for a problem: they are
// for one filter a channel, and channels in whole vectors of 16 bytes. The fastest are for square kernels of
// 3, 5 and 7 with stride 1, and of 3 with stride 2, and no dilation.
#include "channels_last/any_kernel.cuh"
#include "channels_last/forward.cuh"
#include "channels_last/grad_weight.cuh"
#include "channels_last/tiles.cuh"
#include "kernels.cuh"

namespace detector::depthwise_conv2d {
namespace channels_last {

// Of those for which any_kernel.cuh has kernels, what there are faster ones for.
inline bool has_kernel(const Problem& p) {
  const bool square =
      p.kernel_h == p.kernel_w && p.stride_h == p.stride_w && p.dilation_h * p.dilation_w == 1;
  return square && (p.stride_h == 1 ? p.kernel_h == 3 || p.kernel_h == 5 || p.kernel_h == 7
                                    : p.stride_h == 2 && p.kernel_h == 3);
}

}  // namespace channels_last

template <typename T>
bool forward_channels_last(const Problem& p, const T* input, const T* weight, const T* bias, T* output,
                           cudaStream_t stream) {
  using namespace channels_last;
  if (!has_stencil<T>(p, input, output) || !is_aligned(bias)) {
    return false;
  }
  if (!has_kernel(p)) {
    launch_stencil(p, false, input, weight, bias, output, stream);
    return true;
  }
  if (p.stride_h == 2) {
    launch_forward<T, 3, 2, HalvedTile<T>>(walk_output(p), p.batch, input, weight, bias, false, output,
                                           stream);
    return true;
  }
  return with_kernel(p.kernel_h, [&](auto k) {
    constexpr int K = decltype(k)::value;
    launch_forward<T, K, 1, ForwardTile<T, K>>(walk_output(p), p.batch, input, weight, bias, false, output,
                                               stream);
    return true;
  });
}

template <typename T>
bool grad_input_channels_last(const Problem& p, const T* grad, const T* weight, T* grad_input,
                              cudaStream_t stream) {
  using namespace channels_last;
  if (!has_stencil<T>(p, grad, grad_input)) {
    return false;
  }
  const T* no_bias = nullptr;
  if (p.stride_h == 2 || !has_kernel(p)) {
    launch_stencil(p, true, grad, weight, no_bias, grad_input, stream);
    return true;
  }
  return with_kernel(p.kernel_h, [&](auto k) {  // a forward pass with the kernel turned around
    constexpr int K = decltype(k)::value;
    Walk walk = walk_input(p);
    walk.pad_h = K - 1 - walk.pad_h;
    walk.pad_w = K - 1 - walk.pad_w;
    launch_forward<T, K, 1, ForwardTile<T, K>>(walk, p.batch, grad, weight, no_bias, true, grad_input,
                                               stream);
    return true;
  });
}

template <typename T>
bool grad_weight_channels_last(const Problem& p, const T* input, const T* grad, T* grad_weight,
                               const Allocate& allocate, cudaStream_t stream) {
  using namespace channels_last;
  if (!has_stencil<T>(p, input, grad)) {
    return false;
  }
  if (!has_kernel(p)) {
    launch_stencil_grad_weight(p, input, grad, grad_weight, allocate, stream);
    return true;
  }
  if (p.stride_h == 2) {
    launch_grad_weight<T, 3, 2, HalvedGradWeightTile<T>>(walk_output(p), p.batch, input, grad, grad_weight,
                                                         allocate, stream);
    return true;
  }
  return with_kernel(p.kernel_h, [&](auto k) {
    constexpr int K = decltype(k)::value;
    launch_grad_weight<T, K, 1, GradWeightTile<T, K>>(walk_output(p), p.batch, input, grad, grad_weight,
                                                      allocate, stream);
    return true;
  });
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

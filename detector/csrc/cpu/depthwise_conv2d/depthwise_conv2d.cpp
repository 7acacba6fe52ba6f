// Depthwise convolution on the CPU, by planes or by pixels: ../../depthwise_conv2d_plan.h.
#include <torch/csrc/stable/library.h>

#include "../../depthwise_conv2d_plan.h"
#include "kernels.h"

namespace detector::depthwise_conv2d {
namespace {

struct CpuKernels {
  explicit CpuKernels(const Tensor&) {}

  // Of contiguous tensors; each pass and dtype has the same kernels.
  static bool needs_channels_last(const Problem& p) {
    return cpu_kernel({Pass::kForward, p, sizeof(float), false, true, {}}) == kPixels;
  }

  template <typename T>
  void forward(const Problem& p, bool channels_last, const T* input, const T* weight, const T* bias,
               T* output) const {
    channels_last ? forward_pixels(p, input, weight, bias, output)
                  : forward_planes(p, input, weight, bias, output);
  }

  template <typename T>
  void grad_input(const Problem& p, bool channels_last, const T* grad, const T* weight, T* result) const {
    channels_last ? grad_input_pixels(p, grad, weight, result) : grad_input_planes(p, grad, weight, result);
  }

  template <typename T>
  void grad_weight(const Problem& p, bool channels_last, const T* input, const T* grad, T* result) const {
    channels_last ? grad_weight_pixels(p, input, grad, result) : grad_weight_planes(p, input, grad, result);
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) {
  m.impl("depthwise_conv2d_forward", TORCH_BOX(&forward<CpuKernels>));
  m.impl("depthwise_conv2d_grad_input", TORCH_BOX(&grad_input<CpuKernels>));
  m.impl("depthwise_conv2d_grad_weight", TORCH_BOX(&grad_weight<CpuKernels>));
}

}  // namespace detector::depthwise_conv2d

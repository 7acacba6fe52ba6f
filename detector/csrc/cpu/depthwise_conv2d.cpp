// Depthwise convolution on the CPU: by planes where those are contiguous, by pixels where the channels are
// last.
#include "../depthwise_conv2d.h"

#include <torch/csrc/stable/library.h>

#include "depthwise_conv2d/pixels.h"
#include "depthwise_conv2d/planes.h"

namespace detector::depthwise_conv2d {
namespace {

struct CpuKernels {
  explicit CpuKernels(const Tensor&) {}

  template <typename T>
  void forward(const Problem& p, bool channels_last, const T* input, const T* weight, const T* bias,
               T* output) const {
    if (!channels_last) {
      forward_planes(p, input, weight, bias, output);
    } else if (p.multiplier == 1) {
      forward_pixels<Channels::same>(p, input, weight, bias, output);
    } else {
      forward_pixels<Channels::divided>(p, input, weight, bias, output);
    }
  }

  template <typename T>
  void grad_input(const Problem& p, bool channels_last, const T* grad, const T* weight, T* result) const {
    if (!channels_last) {
      grad_input_planes(p, grad, weight, result);
    } else if (p.multiplier == 1) {
      grad_input_pixels<Channels::same>(p, grad, weight, result);
    } else {
      grad_input_pixels<Channels::multiplied>(p, grad, weight, result);
    }
  }

  template <typename T>
  void grad_weight(const Problem& p, bool channels_last, const T* input, const T* grad, T* result) const {
    if (!channels_last) {
      grad_weight_planes(p, input, grad, result);
    } else if (p.multiplier == 1) {
      grad_weight_pixels<Channels::same>(p, input, grad, result);
    } else {
      grad_weight_pixels<Channels::divided>(p, input, grad, result);
    }
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) {
  m.impl("depthwise_conv2d_forward", TORCH_BOX(&forward<CpuKernels>));
  m.impl("depthwise_conv2d_grad_input", TORCH_BOX(&grad_input<CpuKernels>));
  m.impl("depthwise_conv2d_grad_weight", TORCH_BOX(&grad_weight<CpuKernels>));
}

}  // namespace detector::depthwise_conv2d

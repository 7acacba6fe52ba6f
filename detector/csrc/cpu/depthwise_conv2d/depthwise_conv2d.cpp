// Depthwise convolution on the CPU: by planes where those are contiguous, by pixels where the channels are
// last or the planes would be nearly all zeros.
#include "../../depthwise_conv2d.h"

#include <torch/csrc/stable/library.h>

#include "kernels.h"

namespace detector::depthwise_conv2d {
namespace {

// The kernels for planes copy each of them with its padding, and the gradient of the input takes a list of
// taps for each phase of the stride. Strides, paddings or dilations that are large beside the image make that
// gigabytes for a few outputs; the kernels for pixels take no more than the tensors do. In double, which no
// product overflows.
bool is_sparse(const Problem& p) {
  const double inside = double(p.height) * double(p.width) + double(p.out_height) * double(p.out_width);
  const double padded =
      (double(p.height) + 2.0 * double(p.pad_h)) * (double(p.width) + 2.0 * double(p.pad_w));
  const double phases = double(p.stride_h) * double(p.stride_w) * double(p.taps()) * double(p.multiplier);
  return padded > 16 * inside + (1 << 16) || phases > 16 * inside + (1 << 22);
}

struct CpuKernels {
  explicit CpuKernels(const Tensor&) {}

  static bool needs_channels_last(const Problem& p) { return is_sparse(p); }

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

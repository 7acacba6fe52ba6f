// Depthwise convolution on the CPU: by planes where those are contiguous, by pixels where the channels are
// last or the planes would be nearly all zeros.
#include "../../depthwise_conv2d.h"

#include <torch/csrc/stable/library.h>

#include <vector>

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

// (images, channels, cells) as (images, cells, channels), or back with both numbers exchanged
template <typename T>
void swap_channels(const T* from, int64_t images, int64_t channels, int64_t cells, T* to) {
  for (int64_t n = 0; n < images; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t i = 0; i < cells; ++i) {
        to[(n * cells + i) * channels + c] = from[(n * channels + c) * cells + i];
      }
    }
  }
}

template <typename T>
struct ChannelsLast {  // memory for both tensors of a problem
  std::vector<T> input, output;

  explicit ChannelsLast(const Problem& p)
      : input(p.batch * p.channels * p.height * p.width),
        output(p.batch * p.out_channels() * p.out_height * p.out_width) {}
};

struct CpuKernels {
  explicit CpuKernels(const Tensor&) {}

  template <typename T>
  void forward(const Problem& p, bool channels_last, const T* input, const T* weight, const T* bias,
               T* output) const {
    if (channels_last) {
      forward_pixels(p, input, weight, bias, output);
    } else if (is_sparse(p)) {
      ChannelsLast<T> copy(p);
      swap_channels(input, p.batch, p.channels, p.height * p.width, copy.input.data());
      forward_pixels(p, copy.input.data(), weight, bias, copy.output.data());
      swap_channels(copy.output.data(), p.batch, p.out_height * p.out_width, p.out_channels(), output);
    } else {
      forward_planes(p, input, weight, bias, output);
    }
  }

  template <typename T>
  void grad_input(const Problem& p, bool channels_last, const T* grad, const T* weight, T* result) const {
    if (channels_last) {
      grad_input_pixels(p, grad, weight, result);
    } else if (is_sparse(p)) {
      ChannelsLast<T> copy(p);
      swap_channels(grad, p.batch, p.out_channels(), p.out_height * p.out_width, copy.output.data());
      grad_input_pixels(p, copy.output.data(), weight, copy.input.data());
      swap_channels(copy.input.data(), p.batch, p.height * p.width, p.channels, result);
    } else {
      grad_input_planes(p, grad, weight, result);
    }
  }

  template <typename T>
  void grad_weight(const Problem& p, bool channels_last, const T* input, const T* grad, T* result) const {
    if (channels_last) {
      grad_weight_pixels(p, input, grad, result);
    } else if (is_sparse(p)) {
      ChannelsLast<T> copy(p);
      swap_channels(input, p.batch, p.channels, p.height * p.width, copy.input.data());
      swap_channels(grad, p.batch, p.out_channels(), p.out_height * p.out_width, copy.output.data());
      grad_weight_pixels(p, copy.input.data(), copy.output.data(), result);
    } else {
      grad_weight_planes(p, input, grad, result);
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

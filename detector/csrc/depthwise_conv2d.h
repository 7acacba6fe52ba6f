// Depthwise 2-D convolution, for both devices: output channel c * multiplier + k reads input channel c alone,
//
//   output[n, c m + k, y, x] = bias[c m + k]
//     + sum over i, j of weight[c m + k, 0, i, j] input[n, c, y stride_h - pad_h + i dilation_h, ...]
//
// with zeros around the input. It is linear in the input and in the weight: grad_input is its transpose in
// the one, grad_weight in the other. Here are the sizes, the checks and the memory formats; a device adds
// kernels.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "layout.h"

namespace detector::depthwise_conv2d {

struct Problem {
  int64_t batch, channels /* of the input */, multiplier, height, width;
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int64_t out_height, out_width;

  C10_HOST_DEVICE int64_t out_channels() const { return channels * multiplier; }
  C10_HOST_DEVICE int64_t taps() const { return kernel_h * kernel_w; }
  std::array<int64_t, 4> out_sizes() const { return {batch, out_channels(), out_height, out_width}; }
};

using Sizes = std::vector<int64_t>;  // (height, width) of something

inline void check_pair(const char* op, const char* name, const Sizes& pair, int64_t least) {
  const auto fits = [least](int64_t n) { return least <= n && n < (int64_t(1) << 31); };
  if (pair.size() != 2 || !fits(pair[0]) || !fits(pair[1])) {
    fail(op, ": ", name, " is ", tuple_text(pair), ", expected two numbers from ", least, " to 2^31 - 1");
  }
}

// All sizes from those of the input (N, C, H, W), the channels of the output and the kernel.
inline Problem make_problem(const char* op, const Sizes& input, int64_t out_channels, const Sizes& kernel,
                            const Sizes& stride, const Sizes& padding, const Sizes& dilation) {
  check_pair(op, "kernel", kernel, 1);
  check_pair(op, "stride", stride, 1);
  check_pair(op, "padding", padding, 0);
  check_pair(op, "dilation", dilation, 1);
  int64_t out[2], step[2];
  for (int i = 0; i < 2; ++i) {
    const int64_t padded = input[2 + i] + 2 * padding[i], reach = (kernel[i] - 1) * dilation[i] + 1;
    if (reach > padded) {
      fail(op, ": the kernel spans ", reach, (i ? " columns" : " rows"), ", expected at most the ", padded,
           " of the padded input");
    }
    step[i] = std::min(stride[i], padded);  // any larger one has a single output too, but more phases
    out[i] = (padded - reach) / step[i] + 1;
  }
  const int64_t multiplier = input[1] > 0 ? out_channels / input[1] : 1;
  return {input[0], input[1],   multiplier, input[2],    input[3],    kernel[0], kernel[1], step[0],
          step[1],  padding[0], padding[1], dilation[0], dilation[1], out[0],    out[1]};
}

// `other` must be like `first`, the argument that chose the kernel.
inline void check_like(const char* op, const char* name, const Tensor& other, const char* first_name,
                       const Tensor& first) {
  check_device(op, name, other, first_name, first);
  check_dtype(op, name, other, first.scalar_type());
}

inline void check_weight(const char* op, const Tensor& weight) {
  check_rank(op, "weight", weight, 4);
  if (weight.size(1) != 1 || weight.size(2) < 1 || weight.size(3) < 1) {
    fail(op, ": weight has shape ", shape_text(weight), ", expected (C * multiplier, 1, kh, kw)");
  }
}

inline void check_out_channels(const char* op, const char* name, const Tensor& tensor, int64_t out_channels,
                               int64_t channels) {
  const bool fits = channels > 0 ? out_channels > 0 && out_channels % channels == 0 : out_channels == 0;
  if (!fits) {
    fail(op, ": ", name, " has shape ", shape_text(tensor), ", expected a multiple of the ", channels,
         " channels of the input, but found ", out_channels);
  }
}

// ---- the three passes, each in the memory format of its first tensor: checks and tensors here, the kernels
// in Kernels, which a device provides. Where these need channels last, the tensors are copied. ----

template <typename Kernels>
Tensor forward(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
               const Sizes& stride, const Sizes& padding, const Sizes& dilation) {
  constexpr const char* op = "depthwise_conv2d";
  dispatch_floating(op, "input", input.scalar_type(), [](auto) {});  // before weight is compared with it
  check_rank(op, "input", input, 4);
  check_weight(op, weight);
  check_like(op, "weight", weight, "input", input);
  check_out_channels(op, "weight", weight, weight.size(0), input.size(1));
  const Sizes kernel{weight.size(2), weight.size(3)};
  const Sizes input_sizes{input.size(0), input.size(1), input.size(2), input.size(3)};
  const Problem p = make_problem(op, input_sizes, weight.size(0), kernel, stride, padding, dilation);
  if (bias) {
    check_argument(op, "bias", *bias, {p.out_channels()}, input.scalar_type(), "input", input);
  }
  const bool last = is_channels_last(input), channels_last = last || Kernels::needs_channels_last(p);
  const Tensor output = allocate_images(input, p.out_sizes(), channels_last);
  dispatch_floating(op, "input", input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    if (output.numel() == 0) {
      return;
    }
    const Tensor dense_input = in_layout(input, channels_last), dense_weight = as_contiguous(weight);
    const auto dense_bias = bias ? std::make_optional(as_contiguous(*bias)) : std::nullopt;
    Kernels(input).forward(
        p, channels_last, dense_input.const_data_ptr<T>(), dense_weight.const_data_ptr<T>(),
        dense_bias ? dense_bias->const_data_ptr<T>() : nullptr, output.mutable_data_ptr<T>());
  });
  return last == channels_last ? output : as_contiguous(output);
}

// grad (N, C m, OH, OW), weight (C m, 1, kh, kw) -> (N, C, H, W) in the format of grad; channels is C, size
// (H, W)
template <typename Kernels>
Tensor grad_input(const Tensor& grad, const Tensor& weight, int64_t channels, const Sizes& size,
                  const Sizes& stride, const Sizes& padding, const Sizes& dilation) {
  constexpr const char* op = "depthwise_conv2d_grad_input";
  check_rank(op, "grad", grad, 4);
  check_weight(op, weight);
  check_like(op, "weight", weight, "grad", grad);
  check_pair(op, "size", size, 0);
  check_out_channels(op, "weight", weight, weight.size(0), channels);
  const Sizes input_sizes{grad.size(0), channels, size[0], size[1]};
  const Sizes kernel{weight.size(2), weight.size(3)};
  const Problem p = make_problem(op, input_sizes, weight.size(0), kernel, stride, padding, dilation);
  check_shape(op, "grad", grad, p.out_sizes());
  const bool last = is_channels_last(grad), channels_last = last || Kernels::needs_channels_last(p);
  const Tensor result = allocate_images(grad, {p.batch, p.channels, p.height, p.width}, channels_last);
  dispatch_floating(op, "grad", grad.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    if (result.numel() == 0) {
      return;
    }
    const Tensor dense_grad = in_layout(grad, channels_last), dense_weight = as_contiguous(weight);
    Kernels(grad).grad_input(p, channels_last, dense_grad.const_data_ptr<T>(),
                             dense_weight.const_data_ptr<T>(), result.mutable_data_ptr<T>());
  });
  return last == channels_last ? result : as_contiguous(result);
}

// input (N, C, H, W), grad (N, C m, OH, OW) -> (C m, 1, kh, kw); kernel is (kh, kw)
template <typename Kernels>
Tensor grad_weight(const Tensor& input, const Tensor& grad, const Sizes& kernel, const Sizes& stride,
                   const Sizes& padding, const Sizes& dilation) {
  constexpr const char* op = "depthwise_conv2d_grad_weight";
  check_rank(op, "input", input, 4);
  check_rank(op, "grad", grad, 4);
  check_like(op, "grad", grad, "input", input);
  check_out_channels(op, "grad", grad, grad.size(1), input.size(1));
  const Sizes input_sizes{input.size(0), input.size(1), input.size(2), input.size(3)};
  const Problem p = make_problem(op, input_sizes, grad.size(1), kernel, stride, padding, dilation);
  check_shape(op, "grad", grad, p.out_sizes());
  const bool channels_last = is_channels_last(input) || Kernels::needs_channels_last(p);
  Tensor result = allocate(input, {p.out_channels(), 1, p.kernel_h, p.kernel_w});
  dispatch_floating(op, "input", input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    if (input.numel() == 0) {
      torch::stable::zero_(result);
      return;
    }
    const Tensor dense_input = in_layout(input, channels_last), dense_grad = in_layout(grad, channels_last);
    Kernels(input).grad_weight(p, channels_last, dense_input.const_data_ptr<T>(),
                               dense_grad.const_data_ptr<T>(), result.mutable_data_ptr<T>());
  });
  return result;
}

}  // namespace detector::depthwise_conv2d

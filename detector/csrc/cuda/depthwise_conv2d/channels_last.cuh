// The fast kernels for channels-last tensors. Each returns false where it has none for a problem: they are
// for square kernels of 3, 5 and 7 with stride 1 or 2, no dilation, one filter a channel, and channels in
// whole vectors of 16 bytes.
#pragma once

#include "channels_last/forward.cuh"
#include "channels_last/grad_weight.cuh"
#include "channels_last/grad_weight_planes.cuh"
#include "channels_last/tiles.cuh"
#include "channels_last/toeplitz.cuh"
#include "channels_last/transposed.cuh"

namespace detector::depthwise_conv2d {
namespace channels_last {

inline bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

template <typename T>
bool has_kernel(const Problem& p, const void* a, const void* b) {
  const bool square =
      p.kernel_h == p.kernel_w && p.stride_h == p.stride_w && p.dilation_h * p.dilation_w == 1;
  const bool known = (p.kernel_h == 3 || p.kernel_h == 5 || p.kernel_h == 7) && p.stride_h <= 2;
  const bool vectors =
      p.multiplier == 1 && p.channels % (16 / sizeof(T)) == 0 && is_aligned(a) && is_aligned(b);
  const int64_t height = p.height + 2 * p.pad_h, width = p.width + 2 * p.pad_w, limit = int64_t(1) << 30;
  const bool small =
      height < limit && width * p.channels < limit &&
      p.batch * ceil_div(p.channels, kWarp) * width < limit;  // int offsets in a row, and the grid
  return square && known && vectors && small && attribute_of_device(cudaDevAttrComputeCapabilityMajor) >= 8;
}

// Whether the matrix units do a stride of 1, for an image of so many columns: for the kernels that take
// longer than the memory by fused multiply-adds, where half of a block's columns are there.
template <typename T, int K, int S>
bool suits_matrix_units(int64_t width) {
  return sizeof(T) == 2 && K >= 5 && S == 1 && 2 * width >= ceil_div(width, Chunk::columns) * Chunk::columns;
}

// A forward pass, or with stride 1 the gradient of the input as a forward pass with the kernel turned around.
template <typename T, int K, int S>
bool convolve(const Walk& walk, int64_t batch, const T* input, const T* weight, const T* bias, bool flipped,
              T* output, cudaStream_t stream) {
  if constexpr (sizeof(T) == 2 && K >= 5 && S == 1) {
    if (suits_matrix_units<T, K, S>(walk.width) &&
        launch_toeplitz<T, K>(walk, batch, input, weight, bias, flipped, output, stream)) {
      return true;
    }
  }
  return launch_forward<T, K, S, ForwardTile<T, K>>(walk, batch, input, weight, bias, flipped, output,
                                                    stream);
}

template <typename T, int K, int S>
bool grad_input(const Problem& p, const T* grad, const T* weight, T* result, cudaStream_t stream) {
  Walk walk{.channels = int(p.channels),
            .source_height = int(p.out_height),
            .source_width = int(p.out_width),
            .height = int(p.height),
            .width = int(p.width),
            .pad_h = int(p.pad_h),
            .pad_w = int(p.pad_w)};
  if constexpr (S == 1) {
    walk.pad_h = K - 1 - walk.pad_h;
    walk.pad_w = K - 1 - walk.pad_w;
    const T* no_bias = nullptr;
    return convolve<T, K, S>(walk, p.batch, grad, weight, no_bias, true, result, stream);
  } else {
    walk.height += walk.pad_h;
    walk.width += walk.pad_w;
    return launch_transposed<T, K, S, TransposedTile<T, K>>(walk, p.batch, grad, weight, result, stream);
  }
}

template <typename T, int K, int S, typename Allocate>
bool grad_weight(const Walk& walk, int64_t batch, const T* input, const T* grad, T* result,
                 const Allocate& allocate, cudaStream_t stream) {
  if constexpr (sizeof(T) == 2 && K >= 5 && S == 1) {
    if (suits_matrix_units<T, K, S>(walk.width) &&
        launch_pairs<T, K>(walk, batch, input, grad, result, allocate, stream)) {
      return true;
    }
  }
  return launch_grad_weight<T, K, S, GradWeightTile<T, K, S>>(walk, batch, input, grad, result, allocate,
                                                              stream);
}

// Calls body with the kernel size and the stride as constants.
template <typename Body>
bool with_sizes(const Problem& p, const Body& body) {
  const auto with_kernel = [&](auto stride) {
    switch (p.kernel_h) {
      case 3:
        return body(std::integral_constant<int, 3>{}, stride);
      case 5:
        return body(std::integral_constant<int, 5>{}, stride);
      default:
        return body(std::integral_constant<int, 7>{}, stride);
    }
  };
  if (p.stride_h == 1) {
    return with_kernel(std::integral_constant<int, 1>{});
  }
  return with_kernel(std::integral_constant<int, 2>{});
}

// From the input to the output, or over both for the gradient of the weight.
inline Walk walk_output(const Problem& p) {
  return {.channels = int(p.channels),
          .source_height = int(p.height),
          .source_width = int(p.width),
          .height = int(p.out_height),
          .width = int(p.out_width),
          .pad_h = int(p.pad_h),
          .pad_w = int(p.pad_w)};
}

}  // namespace channels_last

template <typename T>
bool forward_channels_last(const Problem& p, const T* input, const T* weight, const T* bias, T* output,
                           cudaStream_t stream) {
  if constexpr (std::is_same_v<T, double>) {
    return false;
  } else {
    const bool aligned = channels_last::is_aligned(bias);  // so is null
    return aligned && channels_last::has_kernel<T>(p, input, output) &&
           channels_last::with_sizes(p, [&](auto k, auto s) {
             return channels_last::convolve<T, decltype(k)::value, decltype(s)::value>(
                 channels_last::walk_output(p), p.batch, input, weight, bias, false, output, stream);
           });
  }
}

template <typename T>
bool grad_input_channels_last(const Problem& p, const T* grad, const T* weight, T* grad_input,
                              cudaStream_t stream) {
  if constexpr (std::is_same_v<T, double>) {
    return false;
  } else {
    return channels_last::has_kernel<T>(p, grad, grad_input) &&
           channels_last::with_sizes(p, [&](auto k, auto s) {
             return channels_last::grad_input<T, decltype(k)::value, decltype(s)::value>(p, grad, weight,
                                                                                         grad_input, stream);
           });
  }
}

// allocate(count) gives scratch for `count` partial sums, which lives until the kernels are done.
template <typename T, typename Allocate>
bool grad_weight_channels_last(const Problem& p, const T* input, const T* grad, T* grad_weight,
                               const Allocate& allocate, cudaStream_t stream) {
  if constexpr (std::is_same_v<T, double>) {
    return false;
  } else {
    return channels_last::has_kernel<T>(p, input, grad) && channels_last::with_sizes(p, [&](auto k, auto s) {
             return channels_last::grad_weight<T, decltype(k)::value, decltype(s)::value>(
                 channels_last::walk_output(p), p.batch, input, grad, grad_weight, allocate, stream);
           });
  }
}

}  // namespace detector::depthwise_conv2d

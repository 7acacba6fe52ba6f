// Depthwise convolution on the CPU.
#include "../depthwise_conv2d.h"

#include <torch/csrc/stable/library.h>

#include <algorithm>

#include "parallel.h"

namespace detector::depthwise_conv2d {
namespace {

struct Strides {
  int64_t n, c, h, w;
};
Strides strides_of(bool channels_last, int64_t channels, int64_t height, int64_t width) {
  const int64_t all = channels * height * width;
  return channels_last ? Strides{all, 1, width * channels, channels} : Strides{all, height * width, width, 1};
}

struct CpuKernels {
  explicit CpuKernels(const Tensor&) {}

  template <typename T>
  void forward(const Problem& p, bool channels_last, const T* input, const T* weight, const T* bias,
               T* output) const {
    using A = Accumulate<T>;
    const Strides in = strides_of(channels_last, p.channels, p.height, p.width);
    const Strides out = strides_of(channels_last, p.out_channels(), p.out_height, p.out_width);
    parallel_for(p.batch * p.out_channels(), 1, [&](int64_t first, int64_t last) {
      for (int64_t plane = first; plane < last; ++plane) {
        const int64_t n = plane / p.out_channels(), k = plane % p.out_channels();
        for (int64_t y = 0; y < p.out_height; ++y) {
          for (int64_t x = 0; x < p.out_width; ++x) {
            A sum = bias ? A(bias[k]) : A(0);
            for (int64_t i = 0; i < p.kernel_h; ++i) {
              for (int64_t j = 0; j < p.kernel_w; ++j) {
                const int64_t h = y * p.stride_h - p.pad_h + i * p.dilation_h;
                const int64_t w = x * p.stride_w - p.pad_w + j * p.dilation_w;
                if (0 <= h && h < p.height && 0 <= w && w < p.width) {
                  sum += A(weight[(k * p.kernel_h + i) * p.kernel_w + j]) *
                         A(input[n * in.n + k / p.multiplier * in.c + h * in.h + w * in.w]);
                }
              }
            }
            output[n * out.n + k * out.c + y * out.h + x * out.w] = T(sum);
          }
        }
      }
    });
  }

  template <typename T>
  void grad_input(const Problem& p, bool channels_last, const T* grad, const T* weight, T* result) const {
    using A = Accumulate<T>;
    const Strides in = strides_of(channels_last, p.channels, p.height, p.width);
    const Strides out = strides_of(channels_last, p.out_channels(), p.out_height, p.out_width);
    parallel_for(p.batch * p.channels, 1, [&](int64_t first, int64_t last) {
      for (int64_t plane = first; plane < last; ++plane) {
        const int64_t n = plane / p.channels, c = plane % p.channels;
        for (int64_t h = 0; h < p.height; ++h) {
          for (int64_t w = 0; w < p.width; ++w) {
            A sum = 0;
            for (int64_t k = c * p.multiplier; k < (c + 1) * p.multiplier; ++k) {
              for (int64_t i = 0; i < p.kernel_h; ++i) {
                for (int64_t j = 0; j < p.kernel_w; ++j) {
                  const int64_t y = h + p.pad_h - i * p.dilation_h, x = w + p.pad_w - j * p.dilation_w;
                  if (y >= 0 && x >= 0 && y % p.stride_h == 0 && x % p.stride_w == 0 &&
                      y / p.stride_h < p.out_height && x / p.stride_w < p.out_width) {
                    sum += A(weight[(k * p.kernel_h + i) * p.kernel_w + j]) *
                           A(grad[n * out.n + k * out.c + y / p.stride_h * out.h + x / p.stride_w * out.w]);
                  }
                }
              }
            }
            result[n * in.n + c * in.c + h * in.h + w * in.w] = T(sum);
          }
        }
      }
    });
  }

  template <typename T>
  void grad_weight(const Problem& p, bool channels_last, const T* input, const T* grad, T* result) const {
    using A = Accumulate<T>;
    const Strides in = strides_of(channels_last, p.channels, p.height, p.width);
    const Strides out = strides_of(channels_last, p.out_channels(), p.out_height, p.out_width);
    parallel_for(p.out_channels() * p.taps(), 1, [&](int64_t first, int64_t last) {
      for (int64_t tap = first; tap < last; ++tap) {
        const int64_t k = tap / p.taps(), i = tap % p.taps() / p.kernel_w, j = tap % p.kernel_w;
        A sum = 0;
        for (int64_t n = 0; n < p.batch; ++n) {
          for (int64_t y = 0; y < p.out_height; ++y) {
            for (int64_t x = 0; x < p.out_width; ++x) {
              const int64_t h = y * p.stride_h - p.pad_h + i * p.dilation_h;
              const int64_t w = x * p.stride_w - p.pad_w + j * p.dilation_w;
              if (0 <= h && h < p.height && 0 <= w && w < p.width) {
                sum += A(input[n * in.n + k / p.multiplier * in.c + h * in.h + w * in.w]) *
                       A(grad[n * out.n + k * out.c + y * out.h + x * out.w]);
              }
            }
          }
        }
        result[tap] = T(sum);
      }
    });
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) {
  m.impl("depthwise_conv2d_forward", TORCH_BOX(&forward<CpuKernels>));
  m.impl("depthwise_conv2d_grad_input", TORCH_BOX(&grad_input<CpuKernels>));
  m.impl("depthwise_conv2d_grad_weight", TORCH_BOX(&grad_weight<CpuKernels>));
}

}  // namespace detector::depthwise_conv2d

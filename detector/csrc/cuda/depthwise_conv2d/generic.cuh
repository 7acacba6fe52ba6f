// Depthwise convolution of any kernel, stride, dilation and multiplier in either memory format: one thread an
// element of the output. The fast kernels leave to these what they were not made for.
#pragma once

#include "../../depthwise_conv2d.h"
#include "../launch.cuh"
#include "../reduce.cuh"

namespace detector::depthwise_conv2d {

constexpr int kGenericThreads = 256;

// Where an element of a dense tensor (N, channels, height, width) of either format is. Index is int where all
// offsets fit, because a division of 64-bit numbers takes a hundred instructions.
template <typename Index>
struct Layout {
  Index channels, height, width;
  bool channels_last;

  struct Position {
    Index n, c, h, w;
  };

  __device__ Position position(Index element) const {
    const Index inner = channels_last ? channels : width, middle = channels_last ? width : height;
    const Index a = element % inner, rest = element / inner, b = rest % middle, upper = rest / middle;
    const Index outer = channels_last ? height : channels, c = upper % outer, n = upper / outer;
    return channels_last ? Position{n, a, c, b} : Position{n, c, b, a};
  }

  __device__ Index offset(Index n, Index c, Index h, Index w) const {
    return channels_last ? ((n * height + h) * width + w) * channels + c
                         : ((n * channels + c) * height + h) * width + w;
  }
};

template <typename Index>
struct GenericProblem {
  Layout<Index> in, out;
  Index batch, multiplier, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;

  GenericProblem(const Problem& p, bool channels_last)
      : in{Index(p.channels), Index(p.height), Index(p.width), channels_last},
        out{Index(p.out_channels()), Index(p.out_height), Index(p.out_width), channels_last},
        batch(p.batch),
        multiplier(p.multiplier),
        kernel_h(p.kernel_h),
        kernel_w(p.kernel_w),
        stride_h(p.stride_h),
        stride_w(p.stride_w),
        pad_h(p.pad_h),
        pad_w(p.pad_w),
        dilation_h(p.dilation_h),
        dilation_w(p.dilation_w) {}

  __device__ bool inside(Index h, Index w) const { return 0 <= h && h < in.height && 0 <= w && w < in.width; }
};

template <typename T, typename Index>
__global__ void __launch_bounds__(kGenericThreads)
    depthwise_generic_forward_kernel(GenericProblem<Index> p, int64_t elements, const T* __restrict__ input,
                                     const T* __restrict__ weight, const T* __restrict__ bias,
                                     T* __restrict__ output) {
  using A = Accumulate<T>;
  const int64_t step = int64_t(gridDim.x) * kGenericThreads;
  for (int64_t e = int64_t(blockIdx.x) * kGenericThreads + threadIdx.x; e < elements; e += step) {
    const auto at = p.out.position(Index(e));
    const T* tap = weight + at.c * p.kernel_h * p.kernel_w;
    A sum = bias != nullptr ? A(bias[at.c]) : A(0);
    for (Index i = 0; i < p.kernel_h; ++i) {
      const Index h = at.h * p.stride_h - p.pad_h + i * p.dilation_h;
      for (Index j = 0; j < p.kernel_w; ++j, ++tap) {
        const Index w = at.w * p.stride_w - p.pad_w + j * p.dilation_w;
        if (p.inside(h, w)) {
          sum += A(*tap) * A(input[p.in.offset(at.n, at.c / p.multiplier, h, w)]);
        }
      }
    }
    output[e] = T(sum);
  }
}

template <typename T, typename Index>
__global__ void __launch_bounds__(kGenericThreads)
    depthwise_generic_grad_input_kernel(GenericProblem<Index> p, int64_t elements, const T* __restrict__ grad,
                                        const T* __restrict__ weight, T* __restrict__ result) {
  using A = Accumulate<T>;
  const int64_t step = int64_t(gridDim.x) * kGenericThreads;
  for (int64_t e = int64_t(blockIdx.x) * kGenericThreads + threadIdx.x; e < elements; e += step) {
    const auto at = p.in.position(Index(e));
    const T* tap = weight + at.c * p.multiplier * p.kernel_h * p.kernel_w;
    A sum = 0;
    for (Index k = at.c * p.multiplier; k < (at.c + 1) * p.multiplier; ++k) {
      for (Index i = 0; i < p.kernel_h; ++i) {
        const Index h = at.h + p.pad_h - i * p.dilation_h, y = h / p.stride_h;
        for (Index j = 0; j < p.kernel_w; ++j, ++tap) {
          const Index w = at.w + p.pad_w - j * p.dilation_w, x = w / p.stride_w;
          const bool touches = h >= 0 && w >= 0 && y * p.stride_h == h && x * p.stride_w == w;
          if (touches && y < p.out.height && x < p.out.width) {
            sum += A(*tap) * A(grad[p.out.offset(at.n, k, y, x)]);
          }
        }
      }
    }
    result[e] = T(sum);
  }
}

// One block a weight: its threads go through the outputs in strides, and are summed in a fixed order.
template <typename T, typename Index>
__global__ void __launch_bounds__(kWarp* kWarp)
    depthwise_generic_grad_weight_kernel(GenericProblem<Index> p, int64_t weights,
                                         const T* __restrict__ input, const T* __restrict__ grad,
                                         T* __restrict__ result) {
  using A = Accumulate<T>;
  const int64_t positions = int64_t(p.batch) * p.out.height * p.out.width;
  for (int64_t tap = blockIdx.x; tap < weights; tap += gridDim.x) {
    const Index j = Index(tap % p.kernel_w), i = Index(tap / p.kernel_w % p.kernel_h);
    const Index k = Index(tap / p.kernel_w / p.kernel_h);
    A sum = 0;
    for (int64_t e = threadIdx.x; e < positions; e += kWarp * kWarp) {
      const Index x = Index(e) % p.out.width, rest = Index(e) / p.out.width;
      const Index y = rest % p.out.height, n = rest / p.out.height;
      const Index h = y * p.stride_h - p.pad_h + i * p.dilation_h;
      const Index w = x * p.stride_w - p.pad_w + j * p.dilation_w;
      if (p.inside(h, w)) {
        sum += A(input[p.in.offset(n, k / p.multiplier, h, w)]) * A(grad[p.out.offset(n, k, y, x)]);
      }
    }
    sum = block_reduce(sum, Sum{});
    if (threadIdx.x == 0) {
      result[tap] = T(sum);
    }
  }
}

// Calls body(GenericProblem) with 32-bit offsets where every offset and coordinate fits.
template <typename Body>
void dispatch_index(const Problem& p, bool channels_last, const Body& body) {
  const int64_t limit = int64_t(1) << 30;
  const int64_t inputs = p.batch * p.channels * p.height * p.width;
  const int64_t outputs = p.batch * p.out_channels() * p.out_height * p.out_width;
  const int64_t rows = p.height + p.pad_h + p.kernel_h * p.dilation_h + p.stride_h;
  const int64_t columns = p.width + p.pad_w + p.kernel_w * p.dilation_w + p.stride_w;
  if (inputs < limit && outputs < limit && rows < limit && columns < limit &&
      p.out_channels() * p.taps() < limit) {
    body(GenericProblem<int>(p, channels_last));
  } else {
    body(GenericProblem<int64_t>(p, channels_last));
  }
}

template <typename T>
void forward_generic(const Problem& p, bool channels_last, const T* input, const T* weight, const T* bias,
                     T* output, cudaStream_t stream) {
  const int64_t elements = p.batch * p.out_channels() * p.out_height * p.out_width;
  dispatch_index(p, channels_last, [&]<typename Index>(const GenericProblem<Index>& problem) {
    launch_kernel(depthwise_generic_forward_kernel<T, Index>, blocks_for(elements, kGenericThreads),
                  kGenericThreads, 0, stream, problem, elements, input, weight, bias, output);
  });
}

template <typename T>
void grad_input_generic(const Problem& p, bool channels_last, const T* grad, const T* weight, T* result,
                        cudaStream_t stream) {
  const int64_t elements = p.batch * p.channels * p.height * p.width;
  dispatch_index(p, channels_last, [&]<typename Index>(const GenericProblem<Index>& problem) {
    launch_kernel(depthwise_generic_grad_input_kernel<T, Index>, blocks_for(elements, kGenericThreads),
                  kGenericThreads, 0, stream, problem, elements, grad, weight, result);
  });
}

template <typename T>
void grad_weight_generic(const Problem& p, bool channels_last, const T* input, const T* grad, T* result,
                         cudaStream_t stream) {
  const int64_t weights = p.out_channels() * p.taps();
  dispatch_index(p, channels_last, [&]<typename Index>(const GenericProblem<Index>& problem) {
    launch_kernel(depthwise_generic_grad_weight_kernel<T, Index>, blocks_for(weights, 1), kWarp * kWarp, 0,
                  stream, problem, weights, input, grad, result);
  });
}

}  // namespace detector::depthwise_conv2d

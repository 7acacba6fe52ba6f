// Quick GELU on a GPU: one pass over memory, in its order, with nothing to wait for but memory.
// benchmarks/cases/quick_gelu.py says what else was tried.
#include <torch/csrc/stable/library.h>

#include "../quick_gelu.h"
#include "../quick_gelu_plan.h"
#include "launch.cuh"
#include "pack.cuh"

namespace detector::quick_gelu {
namespace {

struct Sigmoid {
  __device__ double operator()(double z) const { return 1 / (1 + exp(-z)); }
  // 2 ulp; past a denominator of 2^126 it is 0 where the exact value is below 1.2e-38
  __device__ float operator()(float z) const { return __fdividef(1.0f, 1.0f + expf(-z)); }
};

template <bool kBackward, typename T>
__device__ T element(T grad, T input) {
  using A = Accumulate<T>;
  if constexpr (kBackward) {
    return T(A(grad) * slope(A(input), Sigmoid{}));
  } else {
    return T(value(A(input), Sigmoid{}));
  }
}

// output = value(input) or, backward, grad * slope(input). A block takes kThreads * packs_of_thread packs;
// the last elements, fewer than a pack, go to the last block.
template <bool kBackward, int kSize, typename T>
__global__ void __launch_bounds__(kThreads)
    quick_gelu_map_kernel(const T* __restrict__ grad, const T* __restrict__ input, int64_t numel,
                          T* __restrict__ output) {
  constexpr int kPacks = packs_of_thread(kBackward);
  const int64_t packs = numel / kSize;
  const int64_t first = int64_t(blockIdx.x) * (kThreads * kPacks) + threadIdx.x;
  Pack<T, kSize> x[kPacks], g[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int64_t i = first + k * kThreads;
    if (i < packs) {
      x[k] = load_pack<kSize>(input + i * kSize);
      if constexpr (kBackward) {
        g[k] = load_pack<kSize>(grad + i * kSize);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int64_t i = first + k * kThreads;
    if (i < packs) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        x[k].values[j] = element<kBackward>(g[k].values[j], x[k].values[j]);
      }
      store_pack(output + i * kSize, x[k]);
    }
  }
  const int64_t rest = packs * kSize + threadIdx.x;
  if (blockIdx.x == gridDim.x - 1 && rest < numel) {
    output[rest] = element<kBackward>(kBackward ? grad[rest] : T(0), input[rest]);
  }
}

template <bool kBackward, typename T>
void launch(const T* grad, const T* input, int64_t numel, T* output, cudaStream_t stream) {
  const Request request{numel, sizeof(T), is_aligned(input) && is_aligned(grad), kBackward};
  if (Kernel(plan("quick_gelu", kTable, request)) == Kernel::kPacks) {
    launch_kernel(quick_gelu_map_kernel<kBackward, kPackSize<T>, T>, packs_launch(request), stream, grad,
                  input, numel, output);
  } else {
    launch_kernel(quick_gelu_map_kernel<kBackward, 1, T>, single_launch(request), stream, grad, input, numel,
                  output);
  }
}

Tensor forward(const Tensor& any_input) {
  const auto guard = device_guard(any_input);
  const Tensor input = dense(any_input);
  const Tensor output = allocate_like(input);
  dispatch_floating("quick_gelu", "input", input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    if (input.numel() > 0) {
      launch<false>(static_cast<const T*>(nullptr), input.const_data_ptr<T>(), input.numel(),
                    output.mutable_data_ptr<T>(), current_stream(input));
    }
  });
  return output;
}

Tensor backward(const Tensor& any_grad, const Tensor& any_input) {
  check_backward_arguments(any_grad, any_input);
  const auto guard = device_guard(any_input);
  const Tensor input = dense(any_input), grad = laid_out_as(input, any_grad);
  const Tensor grad_input = allocate_like(input);
  dispatch_floating("quick_gelu_backward", "input", input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    if (input.numel() > 0) {
      launch<true>(grad.const_data_ptr<T>(), input.const_data_ptr<T>(), input.numel(),
                   grad_input.mutable_data_ptr<T>(), current_stream(input));
    }
  });
  return grad_input;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("quick_gelu_forward", TORCH_BOX(&forward));
  m.impl("quick_gelu_backward", TORCH_BOX(&backward));
}

}  // namespace detector::quick_gelu

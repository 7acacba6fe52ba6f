// Quick GELU on the CPU: one pass over memory, in its order.
#include "../quick_gelu.h"

#include <torch/csrc/stable/library.h>

#include "exp.h"
#include "multiversion.h"
#include "parallel.h"

namespace detector::quick_gelu {
namespace {

constexpr int64_t kGrain = 32768;  // elements; fewer are done before a second thread wakes

struct Sigmoid {
  template <typename A>
  __attribute__((always_inline)) A operator()(A z) const {
    return A(1) / (A(1) + exp_of(-z));
  }
};

template <typename T, typename A = Accumulate<T>>
DETECTOR_MULTIVERSION_WIDE void forward_stretch(const T* __restrict input, int64_t size,
                                                T* __restrict output) {
  for (int64_t i = 0; i < size; ++i) {
    output[i] = T(value(A(input[i]), Sigmoid{}));
  }
}

template <typename T, typename A = Accumulate<T>>
DETECTOR_MULTIVERSION_WIDE void backward_stretch(const T* __restrict grad, const T* __restrict input,
                                                 int64_t size, T* __restrict grad_input) {
  for (int64_t i = 0; i < size; ++i) {
    grad_input[i] = T(A(grad[i]) * slope(A(input[i]), Sigmoid{}));
  }
}

Tensor forward(const Tensor& any_input) {
  const Tensor input = dense(any_input);
  const Tensor output = allocate_like(input);
  dispatch_floating("quick_gelu", "input", input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const auto* from = input.const_data_ptr<T>();
    auto* to = output.mutable_data_ptr<T>();
    parallel_for(input.numel(), kGrain, [&](int64_t first, int64_t last) {
      forward_stretch(from + first, last - first, to + first);
    });
  });
  return output;
}

Tensor backward(const Tensor& any_grad, const Tensor& any_input) {
  check_backward_arguments(any_grad, any_input);
  const Tensor input = dense(any_input), grad = laid_out_as(input, any_grad);
  const Tensor grad_input = allocate_like(input);
  dispatch_floating("quick_gelu_backward", "input", input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const auto* arriving = grad.const_data_ptr<T>();
    const auto* from = input.const_data_ptr<T>();
    auto* to = grad_input.mutable_data_ptr<T>();
    parallel_for(input.numel(), kGrain, [&](int64_t first, int64_t last) {
      backward_stretch(arriving + first, from + first, last - first, to + first);
    });
  });
  return grad_input;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) {
  m.impl("quick_gelu_forward", TORCH_BOX(&forward));
  m.impl("quick_gelu_backward", TORCH_BOX(&backward));
}

}  // namespace detector::quick_gelu

// The LLTM cell on the CPU: torch's matrix products and one pass over memory each way.
#include "../lltm.h"

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "exp.h"
#include "multiversion.h"
#include "parallel.h"

namespace detector::lltm {
namespace {

// ---- sigmoid, tanh and elu in operations that the compiler vectorizes, unlike a call of std::exp ----

// e^x - 1 = 2^n (e^r - 1) + (2^n - 1): within 2 ulp, near 0 too. Past +-88 it stays at its value there; NaN
// stays NaN.
__attribute__((always_inline)) inline float expm1_of(float x) {
  const Exponential e = exponential_of(x, 88);
  const float power = power_of_two(e.n);  // n is -127 to 127
  return or_bits(power * e.less_one + (power - 1), e.nan);
}

struct VectorMath {
  __attribute__((always_inline)) static float sigmoid(float x) { return 1 / (2 + expm1_of(-x)); }

  __attribute__((always_inline)) static float tanh(float x) {
    const float t = expm1_of(-2 * std::fabs(x));
    return std::copysign(t / (2 + t), x);
  }

  __attribute__((always_inline)) static float elu(float x) {
    const int32_t bits = std::bit_cast<int32_t>(x), negative = bits >> 31;  // all bits or none
    return std::bit_cast<float>((std::bit_cast<int32_t>(expm1_of(x)) & negative) | (bits & ~negative));
  }

  // From elu(x): elu(x) + 1 = e^x below 0, where elu(x) is negative, and 1 above.
  __attribute__((always_inline)) static float elu_slope(float elu) {
    const int32_t bits = std::bit_cast<int32_t>(elu);
    return 1 + std::bit_cast<float>(bits & (bits >> 31));
  }

  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  static double tanh(double x) { return std::tanh(x); }
  static double elu(double x) { return x < 0 ? std::expm1(x) : x; }
  static double elu_slope(double elu) { return elu < 0 ? elu + 1 : 1; }
};

// ---- rows ----

constexpr int64_t kGrain = 4096;  // elements of the state; fewer are done before a second thread wakes

// The rows of a matrix in any strides, or of zeros where there are no data, as they lie in contiguous memory.
template <typename T>
class Rows {
 public:
  Rows(const Matrix<T>& view, int64_t columns) : view_(view), copy_(columns, T(0)) {}

  const T* operator()(int64_t n) {
    if (view_.data != nullptr && view_.column_stride == 1) {
      return view_.data + n * view_.row_stride;
    }
    if (view_.data != nullptr) {
      for (size_t s = 0; s < copy_.size(); ++s) {
        copy_[s] = view_(n, s);
      }
    }
    return copy_.data();
  }

 private:
  Matrix<T> view_;
  std::vector<T> copy_;
};

template <typename T, typename A = Accumulate<T>>
DETECTOR_MULTIVERSION void forward_row(const T* __restrict gates, const T* __restrict c, int64_t state,
                                       T* __restrict next_h, T* __restrict next_c) {
  for (int64_t s = 0; s < state; ++s) {
    const auto next = step<VectorMath>(A(gates[s]), A(gates[s + state]), A(gates[s + 2 * state]), A(c[s]));
    next_h[s] = T(next.h);
    next_c[s] = T(next.c);
  }
}

// grad_c may be where the new one is written: each element is read before.
template <typename T, typename A = Accumulate<T>>
DETECTOR_MULTIVERSION void backward_row(const T* __restrict grad_h, const T* __restrict carried_h,
                                        const T* grad_c, const T* __restrict gates,
                                        const T* __restrict next_c, int64_t state, T* __restrict grad_gates,
                                        T* new_grad_c) {
  DETECTOR_IVDEP
  for (int64_t s = 0; s < state; ++s) {
    const auto slopes = step_backward<VectorMath>(A(gates[s]), A(gates[s + state]), A(gates[s + 2 * state]),
                                                  A(next_c[s]), A(grad_h[s]) + A(carried_h[s]), A(grad_c[s]));
    grad_gates[s] = T(slopes.in);
    grad_gates[s + state] = T(slopes.out);
    grad_gates[s + 2 * state] = T(slopes.candidate);
    new_grad_c[s] = T(slopes.c);
  }
}

struct Cpu {
  static constexpr int64_t most_rows_to_add = 0;

  explicit Cpu(const Tensor&) {}

  static bool adds_bias(const Tensor&) { return true; }

  void linear(const Tensor& out, const Tensor& bias, const Tensor& a, const Tensor& b) const {
    TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(out.get(), bias.get(), a.get(), b.get(), 1, 1));
  }

  void mm(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor&) const {
    TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(out.get(), a.get(), b.get()));
  }

  template <typename T>
  void pack(const Sizes& sizes, const T* input, const Matrix<T>& h, T* xh) const {
    Rows<T> old_h(h, sizes.state);
    for (int64_t n = 0; n < sizes.steps * sizes.rows; ++n) {
      T* row = xh + n * sizes.width();
      if (n < sizes.rows) {
        std::copy_n(old_h(n), sizes.state, row);
      }
      std::copy_n(input + n * sizes.inputs, sizes.inputs, row + sizes.state);
    }
  }

  template <typename T>
  void finish(const Results<T>& at) const {
    const auto& sizes = at.sizes;
    for (int64_t n = 0; n < sizes.steps * sizes.rows; ++n) {
      const T* row = at.grad_xh + n * sizes.width();
      if (at.grad_h && n < sizes.rows) {
        std::copy_n(row, sizes.state, at.grad_h + n * sizes.state);
      }
      if (at.grad_input) {
        std::copy_n(row + sizes.state, sizes.inputs, at.grad_input + n * sizes.inputs);
      }
    }
  }

  template <typename T>
  void forward_step(const ForwardStep<T>& step) const {
    const int64_t state = step.sizes.state, width = step.sizes.width();
    parallel_for(step.sizes.rows, 1 + kGrain / (state + 1), [&](int64_t first, int64_t last) {
      Rows<T> c(step.c, state);
      for (int64_t n = first; n < last; ++n) {
        T* next_h = step.next_h + n * state;
        forward_row(step.gates + n * 3 * state, c(n), state, next_h, step.next_c + n * state);
        if (step.next_xh) {
          std::copy_n(next_h, state, step.next_xh + n * width);
        }
      }
    });
  }

  template <typename T>
  void backward_step(const BackwardStep<T>& step) const {
    const int64_t state = step.sizes.state;
    parallel_for(step.sizes.rows, 1 + kGrain / (state + 1), [&](int64_t first, int64_t last) {
      Rows<T> h(step.grad_h, state), carried(step.carried_h, state), c(step.grad_c, state);
      for (int64_t n = first; n < last; ++n) {
        backward_row(h(n), carried(n), c(n), step.gates + n * 3 * state, step.next_c + n * state, state,
                     step.grad_gates + n * 3 * state, step.new_grad_c + n * state);
      }
    });
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) {
  m.impl("lltm_forward", TORCH_BOX(&forward<Cpu>));
  m.impl("lltm_backward", TORCH_BOX(&backward<Cpu>));
}

}  // namespace detector::lltm

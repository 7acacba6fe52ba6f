// The LSTM cell without a forget gate of PyTorch's tutorial on extensions, over the steps of a sequence, for
// both devices:
//
//   in, out, candidate = the three parts of  [h, x] W^T + b
//   c' = c + elu(candidate) sigmoid(in)          h' = tanh(c') sigmoid(out)
//
// The matrix products are torch's; here is what runs them in order, and the formulas of the kernels that do
// the rest. [h, x] of all steps lie in one buffer, where each step writes h' for the next, so a step is one
// product and one kernel, and the gradient of W one product.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "memory.h"

namespace detector::lltm {

template <typename A>
struct State {
  A h, c;
};

// Math has sigmoid, tanh, elu and elu_slope, the slope of elu from its value: e^x below 0, 1 from there on.
template <typename Math, typename A>
C10_HOST_DEVICE inline __attribute__((always_inline)) State<A> step(A in, A out, A candidate, A c) {
  const A next = c + Math::elu(candidate) * Math::sigmoid(in);
  return {Math::tanh(next) * Math::sigmoid(out), next};
}

template <typename A>
struct Slopes {
  A in, out, candidate, c;
};

// From c' and the gradients of h' and c'.
template <typename Math, typename A>
C10_HOST_DEVICE inline __attribute__((always_inline)) Slopes<A> step_backward(A in, A out, A candidate,
                                                                              A next, A grad_h, A grad_c) {
  const A tanh = Math::tanh(next), gate_in = Math::sigmoid(in), gate_out = Math::sigmoid(out);
  const A elu = Math::elu(candidate);
  const A grad_next = grad_c + grad_h * gate_out * (1 - tanh * tanh);
  return {grad_next * elu * gate_in * (1 - gate_in), grad_h * tanh * gate_out * (1 - gate_out),
          grad_next * gate_in * Math::elu_slope(elu), grad_next};
}

// ---- shapes ----

// T steps (1 where there is no dimension of steps), N rows of the batch, I inputs, S state.
struct Sizes {
  int64_t steps, rows, inputs, state;
  C10_HOST_DEVICE int64_t width() const { return state + inputs; }  // columns of [h, x]
};

// Shape, dtype and device of an argument, the latter two as those of `like`.
inline void check(const char* op, const char* name, const Tensor& tensor, Lengths shape,
                  const char* like_name, const Tensor& like) {
  check_argument(op, name, tensor, shape, like.scalar_type(), like_name, like);
}

inline std::vector<int64_t> shape_like(const Tensor& tensor, int64_t columns) {
  std::vector<int64_t> shape(tensor.sizes().begin(), tensor.sizes().end());
  shape.back() = columns;
  return shape;
}

inline Sizes check_arguments(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& h,
                             const Tensor& c) {
  constexpr const char* op = "lltm";
  dispatch_floating(op, "input", input.scalar_type(), [](auto) {});
  if (input.dim() != 2 && input.dim() != 3) {
    fail(op, ": input has shape ", shape_text(input), ", expected (N, I) or (T, N, I)");
  }
  if (input.dim() == 3 && input.size(0) == 0) {
    fail(op, ": input has shape ", shape_text(input), ", expected at least one step");
  }
  check_rank(op, "h", h, 2);
  const int64_t rank = input.dim(), state = h.size(1);
  const Sizes sizes{rank == 3 ? input.size(0) : 1, input.size(rank - 2), input.size(rank - 1), state};
  check(op, "h", h, {sizes.rows, state}, "input", input);
  check(op, "c", c, {sizes.rows, state}, "input", input);
  check(op, "weight", weight, {3 * state, sizes.width()}, "input", input);
  check(op, "bias", bias, {3 * state}, "input", input);
  return sizes;
}

inline Sizes check_backward_arguments(const std::optional<Tensor>& grad_h,
                                      const std::optional<Tensor>& grad_c, const Tensor& weight,
                                      const Tensor& bias, const Tensor& cs, const Tensor& gates,
                                      const Tensor& xh) {
  constexpr const char* op = "lltm_backward";
  if (cs.dim() != 2 && cs.dim() != 3) {
    fail(op, ": cs has shape ", shape_text(cs), ", expected (N, S) or (T, N, S)");
  }
  check_rank(op, "weight", weight, 2);
  const int64_t rank = cs.dim(), state = cs.size(rank - 1);
  const Sizes sizes{rank == 3 ? cs.size(0) : 1, cs.size(rank - 2), weight.size(1) - state, state};
  check(op, "weight", weight, {3 * state, std::max(weight.size(1), state)}, "cs", cs);
  check(op, "bias", bias, {3 * state}, "cs", cs);
  check(op, "gates", gates, shape_like(cs, 3 * state), "cs", cs);
  check(op, "xh", xh, shape_like(cs, sizes.width()), "cs", cs);
  if (grad_h) {
    check(op, "grad_h", *grad_h, shape_like(cs, state), "cs", cs);
  }
  if (grad_c) {
    check(op, "grad_c", *grad_c, {sizes.rows, state}, "cs", cs);
  }
  for (const Tensor& saved : {cs, gates, xh}) {
    if (!saved.is_contiguous()) {
      fail(op, ": cs, gates and xh are expected as lltm_forward made them, contiguous");
    }
  }
  return sizes;
}

// ---- what the kernels of a step read and write; pointers are to contiguous rows, of the first row on ----

template <typename T>
struct ForwardStep {
  Sizes sizes;
  const T *gates, *bias;  // the latter null where the gates have it
  Matrix<T> c;
  T *next_h, *next_c;
  T* next_xh;  // null after the last step
};

template <typename T>
struct BackwardStep {
  Sizes sizes;
  Matrix<T> grad_h, carried_h, grad_c;  // zero where there are no data; the second is from the step after
  const T *gates, *bias, *next_c;
  T *grad_gates, *new_grad_c;  // the latter may be grad_c
  T* zeros;                    // a row of [h, x] to be set to zero, null but in the first step
};

// The end of the backward pass: the gradients of input, h and bias, null where they are not needed here.
template <typename T>
struct Results {
  Sizes sizes;
  const T *grad_xh, *grad_gates;
  T *grad_input, *grad_h, *grad_bias;
};

// ---- views for torch ----

inline Tensor matrix(const Tensor& of, int64_t offset, int64_t rows, int64_t columns) {
  return part(of, offset, {rows, columns}, {columns, 1});
}

// Rows of a contiguous tensor, all of whose dimensions but the last count rows.
inline Tensor rows_of(const Tensor& tensor, int64_t first, int64_t rows) {
  const int64_t columns = tensor.size(tensor.dim() - 1);
  if (tensor.dim() == 2 && tensor.size(0) == rows) {
    return tensor;
  }
  return matrix(tensor, first * columns, rows, columns);
}

inline Tensor transposed(const Tensor& tensor) {
  return part(tensor, 0, {tensor.size(1), tensor.size(0)}, {tensor.stride(1), tensor.stride(0)});
}

// ---- both passes ----
//
// Device has linear(out, bias, a, b), out = bias + a b, or a b unless adds_bias(out), so that the kernels do;
// mm(out, a, b, zeros), out = a b; and the kernels pack (input and h into the buffer), forward_step,
// backward_step and finish. finish adds up to most_rows_to_add rows for the bias, torch's sum does more.

// h of every step and c of the last, which are the results; for the backward pass c of every step, (0,) where
// there is no dimension of steps, the gates, and the buffer of [h, x].
template <typename Device>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> forward(const Tensor& any_input, const Tensor& weight,
                                                           const Tensor& any_bias, const Tensor& h,
                                                           const Tensor& c) {
  const Sizes sizes = check_arguments(any_input, weight, any_bias, h, c);
  const Device device(any_input);
  const Tensor input = as_contiguous(any_input), bias = as_contiguous(any_bias);
  const auto output = [&](int64_t columns) { return allocate(input, shape_like(input, columns)); };
  const int64_t rows = sizes.rows, state = sizes.state;
  const Tensor hs = output(state), cs = output(state), gates = output(3 * state), xh = output(sizes.width());
  const Tensor from_xh = transposed(weight);
  const bool added = Device::adds_bias(rows_of(gates, 0, rows));
  dispatch_floating("lltm", "input", input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const auto data = [](const Tensor& tensor) { return tensor.mutable_data_ptr<T>(); };
    device.pack(sizes, data(input), matrix_view<T>(h), data(xh));
    Matrix<T> last_c = matrix_view<T>(c);
    for (int64_t t = 0; t < sizes.steps; ++t) {
      const int64_t first = t * rows;
      device.linear(rows_of(gates, first, rows), bias, rows_of(xh, first, rows), from_xh);
      T* next_c = data(cs) + first * state;
      T* next_xh = t + 1 < sizes.steps ? data(xh) + (first + rows) * sizes.width() : nullptr;
      device.forward_step(ForwardStep<T>{sizes, data(gates) + first * 3 * state, added ? nullptr : data(bias),
                                         last_c, data(hs) + first * state, next_c, next_xh});
      last_c = {next_c, state, 1};
    }
  });
  if (input.dim() == 2) {
    return {hs, cs, allocate(input, {0}), gates, xh};
  }
  Tensor last_c = allocate(cs, {cs.size(1), cs.size(2)});  // no alias
  torch::stable::copy_(last_c, torch::stable::select(cs, 0, sizes.steps - 1));
  return {hs, last_c, cs, gates, xh};
}

// The gradients of input, weight, bias, h (each (0,) where it is not needed) and c. grad_h is that of every
// step, grad_c that of the last.
template <typename Device>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> backward(
    const std::optional<Tensor>& grad_h, const std::optional<Tensor>& grad_c, const Tensor& weight,
    const Tensor& any_bias, const Tensor& cs, const Tensor& gates, const Tensor& xh, bool needs_input,
    bool needs_weight, bool needs_bias, bool needs_h) {
  const Sizes sizes = check_backward_arguments(grad_h, grad_c, weight, any_bias, cs, gates, xh);
  const int64_t rows = sizes.rows, state = sizes.state, all = sizes.steps * rows;
  const Device device(cs);
  const Tensor bias = as_contiguous(any_bias);
  const bool added = Device::adds_bias(rows_of(gates, 0, rows));
  const auto result = [&](bool needed, std::vector<int64_t> shape) {
    return allocate(cs, needed ? shape : std::vector<int64_t>{0});
  };
  const auto padded = [](int64_t count) { return (count + 63) / 64 * 64; };  // so that all parts are aligned
  const int64_t zeros_at = padded(all * 3 * state), xh_at = zeros_at + padded(sizes.width());
  const Tensor scratch = allocate(cs, {xh_at + all * sizes.width()});
  const Tensor grad_gates = matrix(scratch, 0, all, 3 * state);
  const Tensor zeros = part(scratch, zeros_at, {sizes.width()}, {1});
  const Tensor grad_xh = matrix(scratch, xh_at, all, sizes.width());
  const bool adds_bias = needs_bias && 0 < all && all <= Device::most_rows_to_add;
  const Tensor grad_input = result(needs_input, shape_like(cs, sizes.inputs));
  const Tensor grad_first_h = result(needs_h, {rows, state}), grad_first_c = result(true, {rows, state});
  Tensor grad_bias = result(adds_bias, {3 * state});
  dispatch_floating("lltm_backward", "cs", cs.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const auto data = [](const Tensor& tensor) { return tensor.mutable_data_ptr<T>(); };
    const auto arriving_h = [&](int64_t t) {
      if (!grad_h) {
        return Matrix<T>{};
      }
      const auto step_grad = grad_h->dim() == 3 ? torch::stable::select(*grad_h, 0, t) : *grad_h;
      return matrix_view<T>(step_grad);
    };
    Matrix<T> carried_h{}, carried_c = grad_c ? matrix_view<T>(*grad_c) : Matrix<T>{};
    for (int64_t t = sizes.steps - 1; t >= 0; --t) {
      const int64_t first = t * rows;
      device.backward_step(BackwardStep<T>{sizes, arriving_h(t), carried_h, carried_c,
                                           data(gates) + first * 3 * state, added ? nullptr : data(bias),
                                           data(cs) + first * state, data(grad_gates) + first * 3 * state,
                                           data(grad_first_c), t + 1 == sizes.steps ? data(zeros) : nullptr});
      if (t > 0 || needs_input || needs_h) {
        device.mm(rows_of(grad_xh, first, rows), rows_of(grad_gates, first, rows), weight, zeros);
      }
      carried_h = {data(grad_xh) + first * sizes.width(), sizes.width(), 1};
      carried_c = {data(grad_first_c), state, 1};
    }
    if (needs_input || needs_h || adds_bias) {
      device.finish(
          Results<T>{sizes, data(grad_xh), data(grad_gates), needs_input ? data(grad_input) : nullptr,
                     needs_h ? data(grad_first_h) : nullptr, adds_bias ? data(grad_bias) : nullptr});
    }
  });
  const Tensor grad_weight = result(needs_weight, {3 * state, sizes.width()});
  if (needs_weight) {
    device.mm(grad_weight, transposed(grad_gates), rows_of(xh, 0, all), zeros);
  }
  if (needs_bias && !adds_bias) {
    const std::array<int64_t, 1> over_rows{0};
    grad_bias = torch::stable::sum(grad_gates, over_rows, false, cs.scalar_type());
  }
  return {grad_input, grad_weight, grad_bias, grad_first_h, grad_first_c};
}

}  // namespace detector::lltm

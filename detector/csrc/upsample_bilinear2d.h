// Bilinear resizing of (N, C, H, W), for both devices. Height and width are alike and independent: an Axis
// says which two input lines an output line lies between, and how far it is from the first to the second.
#pragma once

#include <algorithm>
#include <limits>

#include "layout.h"

namespace detector::upsample_bilinear2d {

// Numbered as COORDINATE_MODES in layers/upsample_bilinear2d.py.
enum class CoordinateMode : int64_t { half_pixel, align_corners, asymmetric, tf_half_pixel };
constexpr int64_t kModes = 4;

// a * b - c, rounded twice everywhere: a fused one would put a pixel elsewhere in one kernel than in another.
// On a CPU no compiler fuses what passes through memory.
template <typename A>
C10_HOST_DEVICE A times_minus(A a, A b, A c) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(A) == sizeof(float)) {
    return __fsub_rn(__fmul_rn(a, b), c);
  } else {
    return __dsub_rn(__dmul_rn(a, b), c);
  }
#else
  const volatile A product = a * b;
  return product - c;
#endif
}

// Output line o is (1 - weight) * input line lower + weight * input line upper.
template <typename A>
struct Tap {
  int lower, upper;
  A weight;
};

template <typename A>
struct Axis {
  int in, out;
  A scale, shift;  // output line o lies at (o + shift) * scale - shift, or at 0 if that is less

  C10_HOST_DEVICE Tap<A> tap(int o) const {
    const A position = times_minus(A(o) + shift, scale, shift);
    const A inside = position > 0 ? position : A(0);
    const int floor = inside < A(in) ? static_cast<int>(inside) : in - 1;
    const int lower = floor < in ? floor : in - 1;  // A(in) may be rounded up
    const A weight = inside - A(lower);
    return {lower, lower < in - 1 ? lower + 1 : lower, weight < 1 ? weight : A(1)};
  }

  // The first output line whose lower input line is `line` or past it; `out` if there is none. Exact: it asks
  // tap, which is monotonic, about the lines around the one that the inverse function names.
  C10_HOST_DEVICE int first_from(int line) const {
    if (line <= 0) {
      return 0;
    }
    if (line >= in || !(scale > 0)) {
      return out;
    }
    const A guess = (A(line) + shift) / scale - shift;
    int o = guess < A(out) ? static_cast<int>(guess) : out;
    while (o > 0 && tap(o - 1).lower >= line) {
      --o;
    }
    while (o < out && tap(o).lower < line) {
      ++o;
    }
    return o;
  }

  // How much of output line o, one of first_from(line - 1) to first_from(line + 1), is input line `line`.
  C10_HOST_DEVICE A weight_of(int line, int o) const {
    const Tap<A> tap = this->tap(o);
    return (tap.lower == line ? 1 - tap.weight : A(0)) + (tap.upper == line ? tap.weight : A(0));
  }
};

// scale_factor is 0 where the user gave a size. Only half_pixel looks at it, as torch does.
template <typename A>
Axis<A> axis_of(CoordinateMode mode, int64_t in, int64_t out, double scale_factor) {
  const A by_size = A(in) / A(out);
  switch (mode) {
    case CoordinateMode::half_pixel:
      return {int(in), int(out), scale_factor > 0 && in != out ? A(1 / scale_factor) : by_size, A(0.5)};
    case CoordinateMode::tf_half_pixel:
      return {int(in), int(out), by_size, A(0.5)};
    case CoordinateMode::asymmetric:
      return {int(in), int(out), by_size, A(0)};
    case CoordinateMode::align_corners:
      break;
  }
  return {int(in), int(out), out > 1 ? A(in - 1) / A(out - 1) : A(0), A(0)};
}

// What the forward and the backward op take beside their tensor.
struct Resizing {
  int64_t in_height, in_width, out_height, out_width;
  CoordinateMode mode;
  double scale_height, scale_width;

  template <typename A>
  Axis<A> vertical() const {
    return axis_of<A>(mode, in_height, out_height, scale_height);
  }
  template <typename A>
  Axis<A> horizontal() const {
    return axis_of<A>(mode, in_width, out_width, scale_width);
  }
};

// `name` is "input" or, backward, "grad".
inline void check_arguments(const char* op, const char* name, const Tensor& tensor, const char* other_name,
                            int64_t other_height, int64_t other_width, int64_t mode) {
  constexpr int64_t most = std::numeric_limits<int>::max();
  check_rank(op, name, tensor, 4);
  const auto fits = [](int64_t size) { return 1 <= size && size <= most; };
  if (!fits(tensor.size(2)) || !fits(tensor.size(3))) {
    fail(op, ": ", name, " has shape ", shape_text(tensor), ", expected a height and a width of 1 to ", most);
  }
  if (!fits(other_height) || !fits(other_width)) {
    fail(op, ": ", other_name, " is (", other_height, ", ", other_width,
         "), expected a height and a width of 1 to ", most);
  }
  if (mode < 0 || mode >= kModes) {
    fail(op, ": mode is ", mode, ", expected 0 to ", kModes - 1);
  }
}

// ---- both passes: checks and tensors here, the kernels in Device ----

template <typename Device>
Tensor forward(const Tensor& any_input, int64_t height, int64_t width, int64_t mode, double scale_height,
               double scale_width) {
  constexpr const char* op = "upsample_bilinear2d";
  check_arguments(op, "input", any_input, "size", height, width, mode);
  const auto guard = device_guard(any_input);
  const bool channels_last = is_channels_last(any_input);
  const Tensor input = in_layout(any_input, channels_last);
  const Tensor output = allocate_images(input, {input.size(0), input.size(1), height, width}, channels_last);
  const Resizing sizes{input.size(2),        input.size(3), height,     width,
                       CoordinateMode(mode), scale_height,  scale_width};
  dispatch_floating(op, "input", input.scalar_type(), [&](auto zero) {
    if (output.numel() > 0) {  // tables of its rows and columns could still be large
      Device::template forward<decltype(zero)>(input, sizes, channels_last, output);
    }
  });
  return output;
}

template <typename Device>
Tensor backward(const Tensor& any_grad, int64_t height, int64_t width, int64_t mode, double scale_height,
                double scale_width) {
  constexpr const char* op = "upsample_bilinear2d_backward";
  check_arguments(op, "grad", any_grad, "input size", height, width, mode);
  const auto guard = device_guard(any_grad);
  const bool channels_last = is_channels_last(any_grad);
  const Tensor grad = in_layout(any_grad, channels_last);
  const Tensor grad_input = allocate_images(grad, {grad.size(0), grad.size(1), height, width}, channels_last);
  const Resizing sizes{height,       width,      grad.size(2), grad.size(3), CoordinateMode(mode),
                       scale_height, scale_width};
  dispatch_floating(op, "grad", grad.scalar_type(), [&](auto zero) {
    if (grad_input.numel() > 0) {
      Device::template backward<decltype(zero)>(grad, sizes, channels_last, grad_input);
    }
  });
  return grad_input;
}

}  // namespace detector::upsample_bilinear2d

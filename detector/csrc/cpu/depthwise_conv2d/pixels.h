// Depthwise convolution of channels-last tensors. A pixel has its channels side by side, so the inner loops
// run over channels, and the compiler makes vectors of them.
#pragma once

#include <algorithm>
#include <vector>

#include "../multiversion.h"
#include "../parallel.h"
#include "kernels.h"

namespace detector::depthwise_conv2d {

// A tap, and the row (or column) of the other tensor that it takes a row to.
struct Met {
  int64_t tap, at;
};

// Along one axis: for each row of the output what it reads of the input, for each row of the input what
// reads it.
struct Axis {
  std::vector<std::vector<Met>> of_output, of_input;

  Axis(int64_t outputs, int64_t inputs, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation)
      : of_output(outputs), of_input(inputs) {
    for (int64_t out = 0; out < outputs; ++out) {
      const int64_t start = out * stride - pad;
      for (int64_t tap = start < 0 ? (dilation - 1 - start) / dilation : 0; tap < kernel; ++tap) {
        const int64_t in = start + tap * dilation;
        if (in >= inputs) {
          break;
        }
        of_output[out].push_back({tap, in});
        of_input[in].push_back({tap, out});
      }
    }
  }
};

struct Axes {
  Axis rows, columns;

  explicit Axes(const Problem& p)
      : rows(p.out_height, p.height, p.kernel_h, p.stride_h, p.pad_h, p.dilation_h),
        columns(p.out_width, p.width, p.kernel_w, p.stride_w, p.pad_w, p.dilation_w) {}
};

// weight (channels, taps) as (taps, channels)
template <typename T>
std::vector<Accumulate<T>> weights_by_tap(const Problem& p, const T* weight) {
  std::vector<Accumulate<T>> by_tap(p.taps() * p.out_channels());
  for (int64_t k = 0; k < p.out_channels(); ++k) {
    for (int64_t tap = 0; tap < p.taps(); ++tap) {
      by_tap[tap * p.out_channels() + k] = weight[k * p.taps() + tap];
    }
  }
  return by_tap;
}

// One row of the output or, transposed, of the gradient of the input: `columns` has what each of its pixels
// meets, `sums` a number for each channel. The output channel k belongs to the input channel k / multiplier.
template <bool kTransposed, typename T>
DETECTOR_MULTIVERSION void sum_row(const Problem& p, const std::vector<Met>& rows,
                                   const std::vector<std::vector<Met>>& columns, const T* source,
                                   const Accumulate<T>* weights, const T* bias, Accumulate<T>* sums, T* out) {
  using A = Accumulate<T>;
  const int64_t source_channels = kTransposed ? p.out_channels() : p.channels;
  const int64_t channels = kTransposed ? p.channels : p.out_channels();
  const int64_t row_stride = (kTransposed ? p.out_width : p.width) * source_channels;
  for (const std::vector<Met>& met : columns) {
    for (int64_t c = 0; c < channels; ++c) {
      sums[c] = bias ? A(bias[c]) : A(0);
    }
    for (const Met& row : rows) {
      for (const Met& column : met) {
        const T* from = source + row.at * row_stride + column.at * source_channels;
        const A* taps = weights + (row.tap * p.kernel_w + column.tap) * p.out_channels();
        if (p.multiplier == 1) {
          for (int64_t c = 0; c < channels; ++c) {
            sums[c] += taps[c] * A(from[c]);
          }
        } else {
          for (int64_t k = 0; k < p.out_channels(); ++k) {
            const int64_t c = k / p.multiplier;
            sums[kTransposed ? c : k] += taps[k] * A(from[kTransposed ? k : c]);
          }
        }
      }
    }
    out = std::copy(sums, sums + channels, out);
  }
}

template <typename T>
void forward_pixels(const Problem& p, const T* input, const T* weight, const T* bias, T* output) {
  const Axes axes(p);
  const auto weights = weights_by_tap(p, weight);
  parallel_for(p.batch * p.out_height, 1, [&](int64_t first, int64_t last) {
    std::vector<Accumulate<T>> sums(p.out_channels());
    for (int64_t row = first; row < last; ++row) {
      const T* const image = input + row / p.out_height * p.height * p.width * p.channels;
      sum_row<false>(p, axes.rows.of_output[row % p.out_height], axes.columns.of_output, image,
                     weights.data(), bias, sums.data(), output + row * p.out_width * p.out_channels());
    }
  });
}

template <typename T>
void grad_input_pixels(const Problem& p, const T* grad, const T* weight, T* result) {
  const Axes axes(p);
  const auto weights = weights_by_tap(p, weight);
  parallel_for(p.batch * p.height, 1, [&](int64_t first, int64_t last) {
    std::vector<Accumulate<T>> sums(p.channels);
    for (int64_t row = first; row < last; ++row) {
      const T* const image = grad + row / p.height * p.out_height * p.out_width * p.out_channels();
      const T* const no_bias = nullptr;
      sum_row<true>(p, axes.rows.of_input[row % p.height], axes.columns.of_input, image, weights.data(),
                    no_bias, sums.data(), result + row * p.width * p.channels);
    }
  });
}

// sums (taps, channels) of one image.
template <typename T>
DETECTOR_MULTIVERSION void sum_weights(const Problem& p, const Axes& axes, const T* input, const T* grad,
                                       Accumulate<T>* sums) {
  using A = Accumulate<T>;
  for (int64_t y = 0; y < p.out_height; ++y) {
    for (int64_t x = 0; x < p.out_width; ++x) {
      const T* arriving = grad + (y * p.out_width + x) * p.out_channels();
      for (const Met& row : axes.rows.of_output[y]) {
        for (const Met& column : axes.columns.of_output[x]) {
          const T* from = input + (row.at * p.width + column.at) * p.channels;
          A* to = sums + (row.tap * p.kernel_w + column.tap) * p.out_channels();
          if (p.multiplier == 1) {
            for (int64_t c = 0; c < p.channels; ++c) {
              to[c] += A(arriving[c]) * A(from[c]);
            }
          } else {
            for (int64_t k = 0; k < p.out_channels(); ++k) {
              to[k] += A(arriving[k]) * A(from[k / p.multiplier]);
            }
          }
        }
      }
    }
  }
}

// A sum for each image first, then over the images in order, so that it does not matter who adds which image.
template <typename T>
void grad_weight_pixels(const Problem& p, const T* input, const T* grad, T* result) {
  using A = Accumulate<T>;
  const Axes axes(p);
  const int64_t weights = p.taps() * p.out_channels();
  std::vector<A> partial(p.batch * weights);
  parallel_for(p.batch, 1, [&](int64_t first, int64_t last) {
    for (int64_t n = first; n < last; ++n) {
      sum_weights(p, axes, input + n * p.height * p.width * p.channels,
                  grad + n * p.out_height * p.out_width * p.out_channels(), &partial[n * weights]);
    }
  });
  for (int64_t k = 0; k < p.out_channels(); ++k) {
    for (int64_t tap = 0; tap < p.taps(); ++tap) {
      A sum = 0;
      for (int64_t n = 0; n < p.batch; ++n) {
        sum += partial[n * weights + tap * p.out_channels() + k];
      }
      result[k * p.taps() + tap] = T(sum);
    }
  }
}

}  // namespace detector::depthwise_conv2d

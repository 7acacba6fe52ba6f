// Bilinear resizing on the CPU, a row at a time. A row of channels_last is a row of pixels of C channels, a
// row of a plane one of single numbers. Rows are independent: the bits never depend on the number of threads.
#include "../upsample_bilinear2d.h"

#include <torch/csrc/stable/library.h>

#include <vector>

#include "multiversion.h"
#include "parallel.h"

namespace detector::upsample_bilinear2d {
namespace {

constexpr int64_t kGrain = 32768;  // numbers; fewer are done before a second thread wakes

// A tensor as rows: `planes` times `height` rows of `width` pixels of `channels` numbers.
struct Rows {
  int64_t planes, height, width, channels;
  int64_t length() const { return width * channels; }
};

Rows rows_of(const Tensor& tensor, bool channels_last) {
  if (channels_last) {
    return {tensor.size(0), tensor.size(2), tensor.size(3), tensor.size(1)};
  }
  return {tensor.size(0) * tensor.size(1), tensor.size(2), tensor.size(3), 1};
}

template <typename A>
struct Taps {
  std::vector<int> lower, upper;
  std::vector<A> weight;

  explicit Taps(const Axis<A>& axis) : lower(axis.out), upper(axis.out), weight(axis.out) {
    for (int o = 0; o < axis.out; ++o) {
      const Tap<A> tap = axis.tap(o);
      lower[o] = tap.lower;
      upper[o] = tap.upper;
      weight[o] = tap.weight;
    }
  }
};

// The outputs that each input line touches, and how much: `count` of them from `first` on.
template <typename A>
struct Windows {
  std::vector<int> first, count;
  std::vector<size_t> start;  // where the weights of a line begin
  std::vector<A> weights;

  explicit Windows(const Axis<A>& axis) : first(axis.in), count(axis.in), start(axis.in) {
    for (int i = 0; i < axis.in; ++i) {
      first[i] = axis.first_from(i - 1);
      count[i] = axis.first_from(i + 1) - first[i];
      start[i] = weights.size();
      for (int k = 0; k < count[i]; ++k) {
        weights.push_back(axis.weight_of(i, first[i] + k));
      }
    }
  }

  const A* weights_of(int i) const { return weights.data() + start[i]; }
};

// Windows as layers: layer k has the k-th output of every line. Where a line has fewer, it is output
// axis.out, which reads as 0.
template <typename A>
struct Layers {
  int count;
  std::vector<int> output;
  std::vector<A> weight;

  Layers(const Axis<A>& axis, const Windows<A>& windows)
      : count(*std::max_element(windows.count.begin(), windows.count.end())),
        output(size_t(count) * axis.in, axis.out),
        weight(size_t(count) * axis.in, A(0)) {
    for (int i = 0; i < axis.in; ++i) {
      for (int k = 0; k < windows.count[i]; ++k) {
        output[size_t(k) * axis.in + i] = windows.first[i] + k;
        weight[size_t(k) * axis.in + i] = windows.weights_of(i)[k];
      }
    }
  }
};

template <typename T, typename A>
DETECTOR_MULTIVERSION void resize_numbers(const T* __restrict input, const int* __restrict lower,
                                          const int* __restrict upper, const A* __restrict weight,
                                          int64_t width, A* __restrict row) {
  for (int64_t p = 0; p < width; ++p) {
    row[p] = (1 - weight[p]) * A(input[lower[p]]) + weight[p] * A(input[upper[p]]);
  }
}

template <typename T, typename A>
DETECTOR_MULTIVERSION void blend_rows(const A* __restrict lower, const A* __restrict upper, A weight,
                                      int64_t length, T* __restrict output) {
  for (int64_t i = 0; i < length; ++i) {
    output[i] = T((1 - weight) * lower[i] + weight * upper[i]);
  }
}

// Output rows first..last of planes, counted through all of them. Two input rows at a time are held, resized.
template <typename T, typename A>
void forward_planes(const T* input, const Rows& in, const Rows& out, const Taps<A>& vertical,
                    const Taps<A>& horizontal, int64_t first, int64_t last, T* output) {
  std::vector<A> lower(out.width), upper(out.width);
  int64_t lower_row = -1, upper_row = -1;  // what the two hold, counted through all planes
  const auto resize = [&](int64_t row, std::vector<A>& to) {
    resize_numbers(input + row * in.width, horizontal.lower.data(), horizontal.upper.data(),
                   horizontal.weight.data(), out.width, to.data());
  };
  for (int64_t r = first; r < last; ++r) {
    const int64_t plane = r / out.height, o = r % out.height;
    const int64_t wanted_lower = plane * in.height + vertical.lower[o];
    const int64_t wanted_upper = plane * in.height + vertical.upper[o];
    if (wanted_lower == upper_row) {
      std::swap(lower, upper);
      std::swap(lower_row, upper_row);
    }
    if (wanted_lower != lower_row) {
      resize(lower_row = wanted_lower, lower);
    }
    if (wanted_upper != upper_row) {
      resize(upper_row = wanted_upper, upper);
    }
    blend_rows(lower.data(), upper.data(), vertical.weight[o], out.width, output + r * out.width);
  }
}

// An output row of pixels, from the two input rows that it lies between.
template <typename T, typename A>
DETECTOR_MULTIVERSION_WIDE void blend_pixels(const T* __restrict lower, const T* __restrict upper, A weight,
                                             const int* __restrict left, const int* __restrict right,
                                             const A* __restrict right_weight, int64_t width,
                                             int64_t channels, T* __restrict output) {
  for (int64_t p = 0; p < width; ++p) {
    const int64_t a = left[p] * channels, b = right[p] * channels;
    const A right_share = right_weight[p], left_share = 1 - right_share, upper_share = weight,
            lower_share = 1 - weight;
    const A lower_left = lower_share * left_share, lower_right = lower_share * right_share,
            upper_left = upper_share * left_share, upper_right = upper_share * right_share;
    for (int64_t c = 0; c < channels; c += 64 / sizeof(T)) {
      __builtin_prefetch(output + (p + 2) * channels + c, 1);
    }
    for (int64_t c = 0; c < channels; ++c) {
      output[p * channels + c] = T(lower_left * A(lower[a + c]) + lower_right * A(lower[b + c]) +
                                   upper_left * A(upper[a + c]) + upper_right * A(upper[b + c]));
    }
  }
}

template <typename T, typename A>
void forward_pixels(const T* input, const Rows& in, const Rows& out, const Taps<A>& vertical,
                    const Taps<A>& horizontal, int64_t first, int64_t last, T* output) {
  for (int64_t r = first; r < last; ++r) {
    const int64_t plane = r / out.height, o = r % out.height;
    blend_pixels(input + (plane * in.height + vertical.lower[o]) * in.length(),
                 input + (plane * in.height + vertical.upper[o]) * in.length(), vertical.weight[o],
                 horizontal.lower.data(), horizontal.upper.data(), horizontal.weight.data(), out.width,
                 out.channels, output + r * out.length());
  }
}

// sum += the sum of kLines lines, `step` apart, each with its weight
template <int kLines, typename T, typename A>
__attribute__((always_inline)) inline void add_some(const T* __restrict lines, int64_t step,
                                                    const A* __restrict weights, int64_t length,
                                                    A* __restrict sum) {
  for (int64_t i = 0; i < length; ++i) {
    A total = sum[i];
    for (int k = 0; k < kLines; ++k) {
      total += weights[k] * A(lines[k * step + i]);
    }
    sum[i] = total;
  }
}

// The same for any number of lines, four in one pass.
template <typename T, typename A>
__attribute__((always_inline)) inline void add_window(const T* lines, int64_t step, const A* weights,
                                                      int count, int64_t length, A* sum) {
  for (; count >= 4; count -= 4, lines += 4 * step, weights += 4) {
    add_some<4>(lines, step, weights, length, sum);
  }
  switch (count) {
    case 3:
      return add_some<3>(lines, step, weights, length, sum);
    case 2:
      return add_some<2>(lines, step, weights, length, sum);
    case 1:
      return add_some<1>(lines, step, weights, length, sum);
  }
}

template <typename T, typename A>
DETECTOR_MULTIVERSION void add_rows(const T* grad, int64_t step, const A* weights, int count, int64_t length,
                                    A* row) {
  add_window(grad, step, weights, count, length, row);
}

template <typename A>
DETECTOR_MULTIVERSION void add_pixels(const A* row, const Windows<A>& windows, int64_t width,
                                      int64_t channels, A* sum) {
  for (int64_t j = 0; j < width; ++j) {
    add_window(row + windows.first[j] * channels, channels, windows.weights_of(j), windows.count[j], channels,
               sum + j * channels);
  }
}

// sum[j] += weight[j] * row[output[j]]
template <typename A>
DETECTOR_MULTIVERSION void add_numbers(const A* __restrict row, const int* __restrict output,
                                       const A* __restrict weight, int64_t width, A* __restrict sum) {
  for (int64_t j = 0; j < width; ++j) {
    sum[j] += weight[j] * row[output[j]];
  }
}

// The rows first..last of the gradient of the input: first the sum of the output rows that touch one, as long
// as they are, then the sums of its pixels.
template <typename T, typename A>
void backward_rows(const T* grad, const Rows& in, const Rows& out, const Windows<A>& vertical,
                   const Windows<A>& horizontal, const Layers<A>& layers, int64_t first, int64_t last,
                   T* grad_input) {
  std::vector<A> row(out.length() + 1), sum(in.length());  // the number after the row is 0, for the layers
  for (int64_t r = first; r < last; ++r) {
    const int64_t plane = r / in.height;
    const int i = static_cast<int>(r % in.height);
    std::fill(row.begin(), row.end(), A(0));
    add_rows(grad + (plane * out.height + vertical.first[i]) * out.length(), out.length(),
             vertical.weights_of(i), vertical.count[i], out.length(), row.data());
    std::fill(sum.begin(), sum.end(), A(0));
    if (in.channels > 1) {
      add_pixels(row.data(), horizontal, in.width, in.channels, sum.data());
    } else {
      for (int k = 0; k < layers.count; ++k) {
        add_numbers(row.data(), layers.output.data() + k * in.width, layers.weight.data() + k * in.width,
                    in.width, sum.data());
      }
    }
    std::copy(sum.begin(), sum.end(), grad_input + r * in.length());
  }
}

int64_t rows_of_grain(const Rows& rows) { return 1 + kGrain / (rows.length() + 1); }

struct Cpu {
  template <typename T, typename A = Accumulate<T>>
  static void forward(const Tensor& input, const Resizing& sizes, bool channels_last, const Tensor& output) {
    const Taps<A> vertical(sizes.vertical<A>()), horizontal(sizes.horizontal<A>());
    const Rows in = rows_of(input, channels_last), out = rows_of(output, channels_last);
    const auto* from = input.const_data_ptr<T>();
    auto* to = output.mutable_data_ptr<T>();
    parallel_for(out.planes * out.height, rows_of_grain(out), [&](int64_t first, int64_t last) {
      const auto rows = in.channels == 1 ? forward_planes<T, A> : forward_pixels<T, A>;
      rows(from, in, out, vertical, horizontal, first, last, to);
    });
  }

  template <typename T, typename A = Accumulate<T>>
  static void backward(const Tensor& grad, const Resizing& sizes, bool channels_last,
                       const Tensor& grad_input) {
    const Axis<A> axis = sizes.horizontal<A>();
    const Windows<A> vertical(sizes.vertical<A>()), horizontal(axis);
    const Layers<A> layers(axis, horizontal);
    const Rows out = rows_of(grad, channels_last), in = rows_of(grad_input, channels_last);
    const auto* from = grad.const_data_ptr<T>();
    auto* to = grad_input.mutable_data_ptr<T>();
    parallel_for(in.planes * in.height, rows_of_grain(in), [&](int64_t first, int64_t last) {
      backward_rows(from, in, out, vertical, horizontal, layers, first, last, to);
    });
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) {
  m.impl("upsample_bilinear2d_forward", TORCH_BOX(&forward<Cpu>));
  m.impl("upsample_bilinear2d_backward", TORCH_BOX(&backward<Cpu>));
}

}  // namespace detector::upsample_bilinear2d

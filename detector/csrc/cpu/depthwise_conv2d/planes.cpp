// Depthwise convolution of contiguous planes. A plane is first copied with zeros around it, in the type that
// is computed in and with the columns of each phase of the stride together; then a tap is a constant offset.
#include <algorithm>
#include <vector>

#include "../parallel.h"
#include "kernels.h"
#include "plane_sums.h"

namespace detector::depthwise_conv2d {

// `rows` rows and `columns` columns that hold a plane from row `top` and column `left` on, zeros elsewhere.
// Column stride * q + r is number q of phase r.
template <typename A>
struct PaddedPlane {
  int64_t rows, top, left, stride, phase, row;  // phase and row: elements from one to the next
  std::vector<A> data;

  PaddedPlane(int64_t rows, int64_t columns, int64_t top, int64_t left, int64_t stride, int64_t planes = 1)
      : rows(rows),
        top(top),
        left(left),
        stride(stride),
        phase((columns + stride - 1) / stride),
        row(phase * stride),
        data(planes * rows * row + 8 * Lanes<A>::count) {}  // whole vectors may be read at the end

  int64_t offset(int64_t i, int64_t j) const { return i * row + j % stride * phase + j / stride; }

  A* plane(int64_t number) { return data.data() + number * rows * row; }

  // Planes of one size only: the zeros around them are never written.
  template <typename T>
  void fill(const T* source, int64_t height, int64_t width, int64_t number = 0) {
    copy_rows(*this, source, std::min(height, rows - top), width, plane(number));
  }

 private:
  template <typename T>
  DETECTOR_MULTIVERSION static void copy_rows(const PaddedPlane& p, const T* source, int64_t height,
                                              int64_t width, A* out) {
    for (int64_t r = 0; r < p.stride; ++r) {
      // columns first <= q < last of the phase are inside
      const int64_t first = std::min((p.left - r + p.stride - 1) / p.stride, p.phase);
      const int64_t last = std::min((p.left + width - r + p.stride - 1) / p.stride, p.phase);
      for (int64_t h = 0; h < height; ++h) {
        const T* from = source + h * width + first * p.stride + r - p.left;
        A* to = out + (p.top + h) * p.row + r * p.phase + first;
        if (p.stride == 1) {
          convert(from, last - first, to);
        } else if (p.stride == 2) {
          for (int64_t q = 0; q < last - first; ++q) {
            to[q] = A(from[2 * q]);
          }
        } else {
          for (int64_t q = 0; q < last - first; ++q) {
            to[q] = A(from[p.stride * q]);
          }
        }
      }
    }
  }
};

// The taps of a convolution as offsets into a padded plane, and the numbers of their weights.
template <typename A>
struct Taps {
  std::vector<int64_t> offsets, numbers;
  std::vector<A> weights;

  void add(int64_t offset, int64_t number) {
    offsets.push_back(offset);
    numbers.push_back(number);
    weights.push_back(0);
  }

  template <typename T>
  void read_weights(const T* weight) {
    for (size_t t = 0; t < weights.size(); ++t) {
      weights[t] = A(weight[numbers[t]]);
    }
  }
};

// square: the kernel size where the taps are those of a square kernel of stride and dilation 1 in order, else
// 0
template <typename A, typename T>
void sum_taps_of_plane(const A* source, int64_t source_row, const Taps<A>& taps, int64_t square, A start,
                       int64_t rows, int64_t columns, T* out, int64_t out_row) {
  const PlaneSum<A> sum{
      source, source_row, taps.offsets.data(), taps.weights.data(), int64_t(taps.weights.size()), start,
      rows,   columns};
  if constexpr (std::is_same_v<T, float>) {  // for every type they would take minutes to compile
    const bool wide = columns >= 2 * Lanes<A>::count;
    if (wide && square == 5 && has_avx512()) {
      return sum_square_wide<5>(sum, out, out_row);
    }
    if (wide && square == 7 && has_avx512()) {
      return sum_square_wide<7>(sum, out, out_row);
    }
    switch (square) {
      case 3:
        return sum_square<3, 1>(sum, out, out_row);
      case 5:
        return wide ? sum_square<5, 2>(sum, out, out_row) : sum_square<5, 1>(sum, out, out_row);
      case 7:
        return wide ? sum_square<7, 2>(sum, out, out_row) : sum_square<7, 1>(sum, out, out_row);
    }
  }
  sum_plane(sum, out, out_row);
}

inline int64_t square_of(const Problem& p) {
  const bool plain = p.stride_h == 1 && p.stride_w == 1 && p.dilation_h == 1 && p.dilation_w == 1;
  return plain && p.kernel_h == p.kernel_w ? p.kernel_h : 0;
}

inline int64_t reach(int64_t kernel, int64_t dilation) { return (kernel - 1) * dilation + 1; }

inline int64_t planes_of_grain(const Problem& p) {
  const int64_t work = std::max(p.height * p.width, p.out_height * p.out_width) * p.taps();
  return 1 + 65536 / std::max<int64_t>(work, 1);
}

// The input with zeros, and where the taps of output (0, 0) are in it.
template <typename A>
struct PaddedInput {
  PaddedPlane<A> padded;
  Taps<A> taps;

  explicit PaddedInput(const Problem& p)
      : padded((p.out_height - 1) * p.stride_h + reach(p.kernel_h, p.dilation_h),
               (p.out_width - 1) * p.stride_w + reach(p.kernel_w, p.dilation_w), p.pad_h, p.pad_w,
               p.stride_w) {
    for (int64_t t = 0; t < p.taps(); ++t) {
      taps.add(padded.offset(t / p.kernel_w * p.dilation_h, t % p.kernel_w * p.dilation_w), t);
    }
  }
};

template <typename T>
void forward_planes(const Problem& p, const T* input, const T* weight, const T* bias, T* output) {
  using A = Accumulate<T>;
  parallel_for(p.batch * p.out_channels(), planes_of_grain(p), [&](int64_t first, int64_t last) {
    PaddedInput<A> in(p);
    for (int64_t plane = first; plane < last; ++plane) {
      const int64_t k = plane % p.out_channels();
      in.padded.fill(input + plane / p.multiplier * p.height * p.width, p.height, p.width);
      in.taps.read_weights(weight + k * p.taps());
      sum_taps_of_plane(in.padded.plane(0), p.stride_h * in.padded.row, in.taps, square_of(p),
                        bias ? A(bias[k]) : A(0), p.out_height, p.out_width,
                        output + plane * p.out_height * p.out_width, p.out_width);
    }
  });
}

// Row h + pad = stride * t + a of the gradient meets the taps i with i * dilation = a modulo the stride, at
// row t - (i * dilation - a) / stride of grad; columns alike. So each of the stride_h * stride_w phases of
// the gradient is a plain convolution of grad with some of the taps.
template <typename T>
struct GradInputPlanes {
  using A = Accumulate<T>;
  const Problem& p;
  int64_t top, left;      // zeros around grad: what the taps reach
  int64_t rows, columns;  // of a phase
  PaddedPlane<A> padded;
  std::vector<Taps<A>> taps;  // of each phase
  std::vector<A> phases;      // the sums of all phases of columns; unused where the stride is 1

  explicit GradInputPlanes(const Problem& p)
      : p(p),
        top((p.kernel_h - 1) * p.dilation_h / p.stride_h),
        left((p.kernel_w - 1) * p.dilation_w / p.stride_w),
        rows((p.height - 1 + p.pad_h) / p.stride_h + 1),
        columns((p.width - 1 + p.pad_w) / p.stride_w + 1),
        padded(top + rows, left + columns, top, left, 1, p.multiplier),
        phases(p.stride_h * p.stride_w == 1 ? 0 : p.stride_w * rows * columns) {
    for (int64_t phase = 0; phase < p.stride_h * p.stride_w; ++phase) {
      taps.push_back(taps_of_phase(phase / p.stride_w, phase % p.stride_w));
    }
  }

  Taps<A> taps_of_phase(int64_t a, int64_t b) const {
    Taps<A> met;
    for (int64_t t = p.multiplier * p.taps() - 1; t >= 0; --t) {
      const int64_t i = t / p.kernel_w % p.kernel_h * p.dilation_h - a, j = t % p.kernel_w * p.dilation_w - b;
      if (i % p.stride_h == 0 && j % p.stride_w == 0) {
        met.add((t / p.taps() * padded.rows + top - i / p.stride_h) * padded.row + left - j / p.stride_w, t);
      }
    }
    return met;
  }

  // grad and weight of the input channel's m output channels
  void run(const T* grad, const T* weight, T* result) {
    for (int64_t m = 0; m < p.multiplier; ++m) {
      padded.fill(grad + m * p.out_height * p.out_width, p.out_height, p.out_width, m);
    }
    for (Taps<A>& met : taps) {
      met.read_weights(weight);
    }
    if (phases.empty()) {
      const int64_t square = p.multiplier == 1 ? square_of(p) : 0;
      sum_taps_of_plane(padded.plane(0) + p.pad_h * padded.row + p.pad_w, padded.row, taps[0], square, A(0),
                        p.height, p.width, result, p.width);
      return;
    }
    for (int64_t a = 0; a < p.stride_h; ++a) {
      for (int64_t b = 0; b < p.stride_w; ++b) {
        sum_taps_of_plane(padded.plane(0), padded.row, taps[a * p.stride_w + b], 0, A(0), rows, columns,
                          &phases[b * rows * columns], columns);
      }
      for (int64_t t = 0; t < rows; ++t) {
        const int64_t h = t * p.stride_h + a - p.pad_h;
        if (0 <= h && h < p.height) {
          interleave(p, &phases[t * columns], rows * columns, result + h * p.width);
        }
      }
    }
  }

  // A row of the result from that of each of its phases.
  DETECTOR_MULTIVERSION static void interleave(const Problem& p, const A* phases, int64_t phase, T* row) {
    if (p.stride_w != 2) {
      for (int64_t w = 0; w < p.width; ++w) {
        row[w] = T(phases[(w + p.pad_w) % p.stride_w * phase + (w + p.pad_w) / p.stride_w]);
      }
      return;
    }
    for (int64_t w = 0; w < p.width; w += 64 / sizeof(T)) {
      __builtin_prefetch(row + 2 * p.width + w);  // the row that comes next
    }
    const A* even = phases + p.pad_w % 2 * phase + p.pad_w / 2;
    const A* odd = phases + (p.pad_w + 1) % 2 * phase + (p.pad_w + 1) / 2;
    for (int64_t q = 0; q < p.width / 2; ++q) {
      row[2 * q] = T(even[q]);
      row[2 * q + 1] = T(odd[q]);
    }
    if (p.width % 2 == 1) {
      row[p.width - 1] = T(even[p.width / 2]);
    }
  }
};

template <typename T>
void grad_input_planes(const Problem& p, const T* grad, const T* weight, T* result) {
  parallel_for(p.batch * p.channels, planes_of_grain(p), [&](int64_t first, int64_t last) {
    GradInputPlanes<T> planes(p);
    for (int64_t plane = first; plane < last; ++plane) {
      planes.run(grad + plane * p.multiplier * p.out_height * p.out_width,
                 weight + plane % p.channels * p.multiplier * p.taps(), result + plane * p.height * p.width);
    }
  });
}

// sums[t] for all taps of one plane, as many at a time as registers hold
template <typename A>
void dot_all_taps(const A* grad, int64_t grad_row, const A* source, int64_t source_row,
                  const std::vector<int64_t>& offsets, int64_t rows, int64_t columns, A* sums) {
  int64_t t = 0;
  const int64_t taps = offsets.size();
  const bool wide = std::is_same_v<A, float> && columns > Lanes<A>::count && has_avx512();
  const auto dot = [&](auto count) {
    if constexpr (std::is_same_v<A, float>) {
      for (; wide && t + count <= taps; t += count) {
        dot_planes_wide<count>(grad, grad_row, source, source_row, &offsets[t], rows, columns, sums + t);
      }
    }
    for (; t + count <= taps; t += count) {
      dot_planes<count>(grad, grad_row, source, source_row, &offsets[t], rows, columns, sums + t);
    }
  };
  dot(std::integral_constant<int, 9>{});
  dot(std::integral_constant<int, 7>{});
  dot(std::integral_constant<int, 4>{});
  dot(std::integral_constant<int, 1>{});
}

// A sum for each plane first, then over the images in order, so that it does not matter who adds which plane.
template <typename T>
void grad_weight_planes(const Problem& p, const T* input, const T* grad, T* result) {
  using A = Accumulate<T>;
  const int64_t weights = p.out_channels() * p.taps();
  std::vector<A> partial(std::max<int64_t>(p.batch, 1) * weights);
  parallel_for(p.batch * p.out_channels(), planes_of_grain(p), [&](int64_t first, int64_t last) {
    PaddedInput<A> in(p);
    PaddedPlane<A> grads(p.out_height, round_up(p.out_width, Lanes<A, kWide>::count), 0, 0, 1);
    for (int64_t plane = first; plane < last; ++plane) {
      in.padded.fill(input + plane / p.multiplier * p.height * p.width, p.height, p.width);
      grads.fill(grad + plane * p.out_height * p.out_width, p.out_height, p.out_width);
      dot_all_taps(grads.plane(0), grads.row, in.padded.plane(0), p.stride_h * in.padded.row, in.taps.offsets,
                   p.out_height, p.out_width, &partial[plane * p.taps()]);
    }
  });
  for (int64_t n = 1; n < p.batch; ++n) {
    for (int64_t w = 0; w < weights; ++w) {
      partial[w] += partial[n * weights + w];
    }
  }
  for (int64_t w = 0; w < weights; ++w) {
    result[w] = T(partial[w]);
  }
}

#define INSTANTIATE(T)                                                            \
  template void forward_planes(const Problem&, const T*, const T*, const T*, T*); \
  template void grad_input_planes(const Problem&, const T*, const T*, T*);        \
  template void grad_weight_planes(const Problem&, const T*, const T*, T*);

INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Half)
INSTANTIATE(BFloat16)

}  // namespace detector::depthwise_conv2d

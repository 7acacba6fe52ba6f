// Depthwise convolution of channels-last tensors. A row of the result falls into segments of pixels that meet
// the same taps, so the borders need no zeros around them and the inner loops have no test.
#include <utility>
#include <vector>

#include "../parallel.h"
#include "kernels.h"
#include "pixel_sums.h"

namespace detector::depthwise_conv2d {

// The taps that a coordinate of the result meets, each with the coordinate of the source it reads, in the
// order of the latter.
struct Meeting {
  std::vector<int64_t> taps, sources;
};

// Along rows or columns.
struct Axis {
  int64_t in, out, kernel, stride, pad, dilation;

  Meeting of_output(int64_t o) const {
    Meeting met;
    for (int64_t i = 0; i < kernel; ++i) {
      const int64_t source = o * stride - pad + i * dilation;
      if (0 <= source && source < in) {
        met.taps.push_back(i), met.sources.push_back(source);
      }
    }
    return met;
  }

  Meeting of_input(int64_t h) const {
    Meeting met;
    for (int64_t i = kernel - 1; i >= 0; --i) {
      const int64_t scaled = h + pad - i * dilation;
      if (scaled >= 0 && scaled % stride == 0 && scaled / stride < out) {
        met.taps.push_back(i), met.sources.push_back(scaled / stride);
      }
    }
    return met;
  }
};

inline Axis rows_of(const Problem& p) {
  return {p.height, p.out_height, p.kernel_h, p.stride_h, p.pad_h, p.dilation_h};
}

inline Axis columns_of(const Problem& p) {
  return {p.width, p.out_width, p.kernel_w, p.stride_w, p.pad_w, p.dilation_w};
}

// Columns first, first + step, ... of the result; each next one reads the source a constant further.
struct Segment {
  int64_t first, count;
  Meeting met;  // at the first
};

template <typename MeetingAt>
std::vector<Segment> make_segments(int64_t size, int64_t step, const MeetingAt& meeting_at) {
  std::vector<Segment> segments;
  for (int64_t phase = 0; phase < std::min(step, size); ++phase) {
    for (int64_t o = phase; o < size; o += step) {
      Meeting met = meeting_at(o);
      if (o != phase && segments.back().met.taps == met.taps) {
        segments.back().count += 1;
      } else {
        segments.push_back({o, 1, std::move(met)});
      }
    }
  }
  return segments;
}

// Whether rows are done as one segment, their borders by leaving out what is outside: with large kernels the
// pixels of the borders, each a segment of its own, took as long as the rest.
template <Channels kChannels, typename T>
bool whole_rows(const Axis& across, int64_t channels, int64_t width) {
  return kChannels == Channels::same && std::is_same_v<T, float> &&
         (across.kernel == 5 || across.kernel == 7) && across.stride == 1 && across.dilation == 1 &&
         channels % Lanes<float>::count == 0 && width >= 4;
}

// All taps, of which the first reads column `first`.
inline Meeting whole_meeting(const Axis& across, int64_t first, bool turned) {
  Meeting met;
  for (int64_t i = 0; i < across.kernel; ++i) {
    met.taps.push_back(turned ? across.kernel - 1 - i : i), met.sources.push_back(first + i);
  }
  return met;
}

// weight (channels, taps) as (taps, channels), each row filled up to whole vectors
template <typename T, typename A = Accumulate<T>>
std::vector<A> weights_by_tap(const T* weight, int64_t channels, int64_t taps, int64_t row) {
  std::vector<A> by_tap(taps * row);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t t = 0; t < taps; ++t) {
      by_tap[t * row + c] = A(weight[c * taps + t]);
    }
  }
  return by_tap;
}

// What the taps of a row and of a segment of its columns come to: the offsets into the source from its pixel
// (0, 0), and the rows of a table of taps that belong to them.
template <typename A>
struct TapList {
  std::vector<int64_t> offsets;
  std::vector<A*> rows;

  void fill(const Meeting& row, const Meeting& column, int64_t source_width, int64_t source_channels,
            int64_t kernel_w, A* table, int64_t table_row, int64_t multiplier) {
    offsets.clear(), rows.clear();
    for (size_t i = 0; i < row.taps.size(); ++i) {
      for (size_t j = 0; j < column.taps.size(); ++j) {
        const int64_t pixel = row.sources[i] * source_width + column.sources[j];
        for (int64_t m = 0; m < multiplier; ++m) {
          offsets.push_back(pixel * source_channels + m);
          rows.push_back(table + ((row.taps[i] * kernel_w + column.taps[j]) * multiplier + m) * table_row);
        }
      }
    }
  }
};

// Has a row that is written in leaps fetched in order, unless it is longer than a cache. With memory busy a
// stride of 2 took 18 ms without (8 x 64 x 112 x 112, float32, one thread), 8 ms with it.
template <typename T>
void fetch_to_write(const T* row, int64_t length) {
  constexpr int64_t line = 64, most = 1 << 16;  // bytes
  const int64_t bytes = length * int64_t(sizeof(T));
  for (int64_t b = 0; b < bytes && bytes <= most; b += line) {
    __builtin_prefetch(reinterpret_cast<const char*>(row) + b, 1);
  }
}

inline int64_t rows_of_grain(const Problem& p) {
  return 1 + 65536 / std::max<int64_t>(p.out_channels() * p.taps() * std::max(p.width, p.out_width), 1);
}

template <Channels kChannels, typename T>
void forward_of_channels(const Problem& p, const T* input, const T* weight, const T* bias, T* output) {
  using A = Accumulate<T>;
  const int64_t channels = p.out_channels(), row = round_up(channels, Lanes<A>::count);
  std::vector<A> table = weights_by_tap(weight, channels, p.taps(), row), start(row);
  for (int64_t c = 0; bias && c < channels; ++c) {
    start[c] = A(bias[c]);
  }
  const Axis down = rows_of(p), across = columns_of(p);
  const bool whole = whole_rows<kChannels, T>(across, channels, p.out_width);
  const auto segments = whole ? std::vector<Segment>{{0, p.out_width, whole_meeting(across, -p.pad_w, false)}}
                              : make_segments(p.out_width, 1, [&](int64_t x) { return across.of_output(x); });
  parallel_for(p.batch * p.out_height, rows_of_grain(p), [&](int64_t first, int64_t last) {
    TapList<A> taps;
    for (int64_t line = first; line < last; ++line) {
      const T* image = input + line / p.out_height * p.height * p.width * p.channels;
      const Meeting met = down.of_output(line % p.out_height);
      for (const Segment& segment : segments) {
        taps.fill(met, segment.met, p.width, p.channels, p.kernel_w, table.data(), row, 1);
        const PixelSum<A> sum{p.stride_w * p.channels,
                              channels,
                              taps.offsets.data(),
                              taps.rows.data(),
                              int64_t(taps.rows.size()),
                              start.data(),
                              segment.count,
                              channels,
                              p.multiplier,
                              whole ? segment.met.sources[0] : 0,
                              whole ? p.width : INT64_MAX};
        const int64_t run = p.dilation_w == 1 ? int64_t(segment.met.taps.size()) : 1;
        sum_pixels_of_segment<kChannels>(sum, run, p.stride_w, image,
                                         output + (line * p.out_width + segment.first) * channels);
      }
    }
  });
}

template <Channels kChannels, typename T>
void grad_input_of_channels(const Problem& p, const T* grad, const T* weight, T* result) {
  using A = Accumulate<T>;
  const int64_t channels = p.channels, row = round_up(channels, Lanes<A>::count), m = p.multiplier;
  std::vector<A> table(p.taps() * m * row), start(row);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t k = 0; k < m; ++k) {
      for (int64_t t = 0; t < p.taps(); ++t) {
        table[(t * m + k) * row + c] = A(weight[(c * m + k) * p.taps() + t]);
      }
    }
  }
  const Axis down = rows_of(p), across = columns_of(p);
  const bool whole = whole_rows<kChannels, T>(across, channels, p.width);
  const auto segments =
      whole ? std::vector<Segment>{{0, p.width, whole_meeting(across, p.pad_w + 1 - p.kernel_w, true)}}
            : make_segments(p.width, p.stride_w, [&](int64_t w) { return across.of_input(w); });
  const bool next_to_each_other = p.stride_w == 1 && p.dilation_w == 1;
  parallel_for(p.batch * p.height, rows_of_grain(p), [&](int64_t first, int64_t last) {
    TapList<A> taps;
    for (int64_t line = first; line < last; ++line) {
      const T* image = grad + line / p.height * p.out_height * p.out_width * p.out_channels();
      const Meeting met = down.of_input(line % p.height);
      if (p.stride_w > 1) {
        fetch_to_write(result + line * p.width * channels, p.width * channels);
      }
      for (const Segment& segment : segments) {
        taps.fill(met, segment.met, p.out_width, p.out_channels(), p.kernel_w, table.data(), row, m);
        const PixelSum<A> sum{p.out_channels(),
                              p.stride_w * channels,
                              taps.offsets.data(),
                              taps.rows.data(),
                              int64_t(taps.rows.size()),
                              start.data(),
                              segment.count,
                              channels,
                              m,
                              whole ? segment.met.sources[0] : 0,
                              whole ? p.out_width : INT64_MAX};
        const int64_t run = next_to_each_other ? int64_t(segment.met.taps.size()) : 1;
        sum_pixels_of_segment<kChannels>(sum, run, 1, image,
                                         result + (line * p.width + segment.first) * channels);
      }
    }
  });
}

// As many taps at a time as registers hold.
template <Channels kChannels, typename A, typename T>
void dot_all_taps(PixelDot<A> dot, const TapList<A>& taps, int64_t run, int64_t stride, const T* grad,
                  const T* source) {
  size_t t = 0;
  if constexpr (kChannels == Channels::same && std::is_same_v<T, float>) {
    if (run == 3 && taps.rows.size() <= 9 && stride <= 2) {
      dot.offsets = taps.offsets.data(), dot.sums = taps.rows.data();
      const auto dot_runs_of = [&](auto runs, auto stride_w) {
        return has_avx512() ? dot_runs_wide<runs, stride_w>(dot, grad, source)
                            : dot_runs<runs, stride_w>(dot, grad, source);
      };
      constexpr std::integral_constant<int, 1> one;
      constexpr std::integral_constant<int, 2> two;
      constexpr std::integral_constant<int, 3> three;
      switch (taps.rows.size() + stride) {
        case 10:
          return dot_runs_of(three, one);
        case 11:
          return dot_runs_of(three, two);
        case 7:
          return dot_runs_of(two, one);
        case 8:
          return dot_runs_of(two, two);
      }
    }
  }
  const auto dot_some = [&](auto count) {
    for (; t + count <= taps.rows.size(); t += count) {
      dot.offsets = &taps.offsets[t], dot.sums = &taps.rows[t];
      dot_pixels<count, kChannels>(dot, grad, source);
    }
  };
  if constexpr (std::is_same_v<T, float>) {  // else it takes long to compile
    dot_some(std::integral_constant<int, 9>{});
    dot_some(std::integral_constant<int, 6>{});
  }
  dot_some(std::integral_constant<int, 4>{});
  dot_some(std::integral_constant<int, 1>{});
}

// Sums for stretches of kLines rows of output first, then over the stretches in order, so that it does not
// matter who adds which.
template <Channels kChannels, typename T>
void grad_weight_of_channels(const Problem& p, const T* input, const T* grad, T* result) {
  using A = Accumulate<T>;
  const int64_t channels = p.out_channels(), row = round_up(channels, Lanes<A>::count);
  const int64_t lines = p.batch * p.out_height, of_stretch = (lines + 15) / 16;
  const int64_t stretches = (lines + of_stretch - 1) / of_stretch;
  std::vector<A> partial(stretches * p.taps() * row);
  const Axis down = rows_of(p), across = columns_of(p);
  const auto segments = make_segments(p.out_width, 1, [&](int64_t x) { return across.of_output(x); });
  parallel_for(stretches, 1, [&](int64_t first, int64_t last) {
    TapList<A> taps;
    for (int64_t s = first; s < last; ++s) {
      A* table = &partial[s * p.taps() * row];
      for (int64_t line = s * of_stretch; line < std::min(lines, (s + 1) * of_stretch); ++line) {
        const T* image = input + line / p.out_height * p.height * p.width * p.channels;
        const Meeting met = down.of_output(line % p.out_height);
        for (const Segment& segment : segments) {
          taps.fill(met, segment.met, p.width, p.channels, p.kernel_w, table, row, 1);
          const PixelDot<A> dot{
              channels, p.stride_w * p.channels, nullptr, nullptr, segment.count, channels, p.multiplier};
          const int64_t run = p.dilation_w == 1 ? int64_t(segment.met.taps.size()) : 1;
          dot_all_taps<kChannels>(dot, taps, run, p.stride_w,
                                  grad + (line * p.out_width + segment.first) * channels, image);
        }
      }
    }
  });
  for (int64_t s = 1; s < stretches; ++s) {
    for (int64_t i = 0; i < p.taps() * row; ++i) {
      partial[i] += partial[s * p.taps() * row + i];
    }
  }
  for (int64_t w = 0; w < channels * p.taps(); ++w) {
    result[w] = T(partial[w % p.taps() * row + w / p.taps()]);
  }
}

template <typename T>
void forward_pixels(const Problem& p, const T* input, const T* weight, const T* bias, T* output) {
  p.multiplier == 1 ? forward_of_channels<Channels::same>(p, input, weight, bias, output)
                    : forward_of_channels<Channels::divided>(p, input, weight, bias, output);
}

template <typename T>
void grad_input_pixels(const Problem& p, const T* grad, const T* weight, T* result) {
  p.multiplier == 1 ? grad_input_of_channels<Channels::same>(p, grad, weight, result)
                    : grad_input_of_channels<Channels::multiplied>(p, grad, weight, result);
}

template <typename T>
void grad_weight_pixels(const Problem& p, const T* input, const T* grad, T* result) {
  p.multiplier == 1 ? grad_weight_of_channels<Channels::same>(p, input, grad, result)
                    : grad_weight_of_channels<Channels::divided>(p, input, grad, result);
}

#define INSTANTIATE(T)                                                            \
  template void forward_pixels(const Problem&, const T*, const T*, const T*, T*); \
  template void grad_input_pixels(const Problem&, const T*, const T*, T*);        \
  template void grad_weight_pixels(const Problem&, const T*, const T*, T*);

INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Half)
INSTANTIATE(BFloat16)

}  // namespace detector::depthwise_conv2d

// The samples of roi_align (He et al., Mask R-CNN, arXiv 1703.06870), value for value as in torchvision.
#pragma once

#include "roi.h"

namespace detector::roi_align {

// A sample between two neighboring cells of one axis; none where it is more than a cell outside.
template <typename A>
struct Sample {
  bool inside;
  int low, high;
  A low_weight, high_weight;

  C10_HOST_DEVICE Sample(A at, int size) : inside(at >= A(-1) && at <= A(size)) {
    at = at > A(0) ? at : A(0);
    low = inside ? int(at) : 0;
    if (low >= size - 1) {
      low = high = size - 1;
      at = A(low);
    } else {
      high = low + 1;
    }
    high_weight = at - A(low);
    low_weight = A(1) - high_weight;
  }
};

// One axis of a box: `bins` of size `bin`, each sampled `grid` times.
template <typename A>
struct Axis {
  A start, bin;
  int grid;

  Axis() = default;
  C10_HOST_DEVICE Axis(A from, A to, A scale, A offset, bool at_least_one, int bins, int sampling_ratio) {
    start = from * scale - offset;
    A length = to * scale - offset - start;
    if (at_least_one && length < A(1)) {
      length = A(1);
    }
    bin = length / A(bins);
    const A adaptive = std::ceil(bin);
    const A most = 1 << 30;
    grid = sampling_ratio > 0 ? sampling_ratio
                              : int(adaptive < A(0)   ? A(0)
                                    : adaptive < most ? adaptive
                                                      : most);
  }

  C10_HOST_DEVICE Sample<A> sample(int in_bin, int i, int size) const {
    return {start + A(in_bin) * bin + (A(i) + A(0.5)) * bin / A(grid), size};
  }

  // The samples of a bin that may be inside: a box may be far larger than the image.
  C10_HOST_DEVICE int first_sample(int in_bin, int size) const { return first_sample(in_bin, -1, size); }
  C10_HOST_DEVICE int end_sample(int in_bin, int size) const { return end_sample(in_bin, -1, size); }

  // Those that may be from `low` to `high`.
  C10_HOST_DEVICE int first_sample(int in_bin, int low, int high) const {
    return near(in_bin, A(bin > 0 ? low : high), A(-1));
  }
  C10_HOST_DEVICE int end_sample(int in_bin, int low, int high) const {
    return near(in_bin, A(bin > 0 ? high : low), A(2));
  }

 private:
  // The number of the sample at a place, moved by `margin` and what rounding may hide.
  C10_HOST_DEVICE int near(int in_bin, A place, A margin) const {
    if (bin == A(0)) {
      return margin < A(0) ? 0 : grid;
    }
    margin *= A(1) + A(8) * std::numeric_limits<A>::epsilon() * A(grid);
    const A number = std::floor((place - start - A(in_bin) * bin) / bin * A(grid) + margin);
    return number > A(0) ? (number < A(grid) ? int(number) : grid) : 0;
  }
};

template <typename A>
struct AlignedBox {
  Axis<A> y, x;

  AlignedBox() = default;
  C10_HOST_DEVICE AlignedBox(const A* box, A scale, int pooled_height, int pooled_width, int sampling_ratio,
                             bool aligned)
      : y(box[2], box[4], scale, aligned ? A(0.5) : A(0), !aligned, pooled_height, sampling_ratio),
        x(box[1], box[3], scale, aligned ? A(0.5) : A(0), !aligned, pooled_width, sampling_ratio) {}

  // What the sum of a bin's samples is divided by.
  C10_HOST_DEVICE A count() const {
    const A samples = A(y.grid) * A(x.grid);
    return samples < A(1) ? A(1) : samples;
  }
};

// How a call takes samples of boxes.
template <typename A>
struct Sampling {
  A scale;
  int ratio;
  bool aligned;

  C10_HOST_DEVICE AlignedBox<A> box(const A* values, const roi::Sizes& sizes) const {
    return {values, scale, sizes.pooled_height, sizes.pooled_width, ratio, aligned};
  }
};

inline int checked_ratio(const char* op, int64_t sampling_ratio) {
  if (sampling_ratio > std::numeric_limits<int32_t>::max()) {
    fail(op, ": sampling_ratio is ", sampling_ratio, ", expected less than 2^31");
  }
  return sampling_ratio > 0 ? int(sampling_ratio) : 0;
}

// ---- both passes: checks and tensors here, the kernels in Device ----

template <typename Device>
Tensor forward(const Tensor& input, const Tensor& boxes, int64_t pooled_height, int64_t pooled_width,
               double spatial_scale, int64_t sampling_ratio, bool aligned, bool channels_last) {
  constexpr const char* op = "roi_align";
  const auto sizes = roi::check_forward(op, input, boxes, pooled_height, pooled_width, spatial_scale);
  const int ratio = checked_ratio(op, sampling_ratio);
  const auto guard = device_guard(input);
  const Tensor output =
      roi::new_output(input, sizes.boxes, sizes.channels, pooled_height, pooled_width, channels_last);
  dispatch_floating(op, "input", input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulate<T>;
    if (output.numel() > 0) {
      const Sampling<A> sampling{A(spatial_scale), ratio, aligned};
      Device::template forward<T>(input, boxes, sizes, sampling, channels_last, output);
    }
  });
  return output;
}

template <typename Device>
Tensor backward(const Tensor& grad, const Tensor& boxes, int64_t images, int64_t height, int64_t width,
                double spatial_scale, int64_t sampling_ratio, bool aligned, bool channels_last) {
  constexpr const char* op = "roi_align_backward";
  const auto sizes =
      roi::check_backward(op, grad, boxes, images, height, width, spatial_scale, channels_last);
  const int ratio = checked_ratio(op, sampling_ratio);
  const auto guard = device_guard(grad);
  const Tensor output = roi::new_output(grad, images, sizes.channels, height, width, channels_last);
  dispatch_floating(op, "grad", grad.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulate<T>;
    if (output.numel() > 0) {
      const Sampling<A> sampling{A(spatial_scale), ratio, aligned};
      Device::template backward<T>(grad, boxes, sizes, sampling, channels_last, output);
    }
  });
  return output;
}

}  // namespace detector::roi_align

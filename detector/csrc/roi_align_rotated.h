// RoI align of rotated boxes (image, center x, center y, width, height, angle), value for value as
// detectron2's ROIAlignRotated, for both devices. Bins lie along the sides of a box, and each is the mean of
// a grid of samples. Features are (N, H, W, C) and pooled values (R, PH, PW, C), contiguous.
#pragma once

#include <algorithm>

#include "roi_align.h"
#include "rotated.h"

namespace detector::roi_align_rotated {

using roi_align::Sample;

struct Sizes {
  int64_t images, height, width, channels, boxes;
  int pooled_height, pooled_width;
};

// The samples along one side: `bins` of size `bin`, each with `grid` samples, from `start` on.
template <typename A>
struct Side {
  A start, bin;
  int grid, bins;

  Side() = default;
  C10_HOST_DEVICE Side(A length, int num_bins, int sampling_ratio)
      : start(-length / 2), bin(length / A(num_bins)), grid(sampling_ratio), bins(num_bins) {
    if (sampling_ratio <= 0) {
      const A adaptive = std::ceil(bin), most = 1 << 30;
      grid = int(adaptive < most ? adaptive : most);
    }
  }

  C10_HOST_DEVICE A at(int in_bin, int i) const {
    return start + A(in_bin) * bin + (A(i) + A(0.5)) * bin / A(grid);
  }

  // The samples of a bin that may be less than `reach` from a place: begin and end. A box may be far larger
  // than the image.
  C10_HOST_DEVICE int begin(int in_bin, A place, A reach) const { return near(in_bin, place - reach, A(-2)); }
  C10_HOST_DEVICE int end(int in_bin, A place, A reach) const { return near(in_bin, place + reach, A(3)); }

  // The bins of which a sample may be that near.
  C10_HOST_DEVICE int first_bin(A place, A reach) const {
    return bin > 0 ? clamp((place - reach - start) / bin - A(1), bins) : 0;
  }
  C10_HOST_DEVICE int end_bin(A place, A reach) const {
    return bin > 0 ? clamp((place + reach - start) / bin + A(2), bins) : bins;
  }

 private:
  C10_HOST_DEVICE int near(int in_bin, A place, A margin) const {  // in samples, for what rounding may hide
    margin *= A(1) + A(8) * std::numeric_limits<A>::epsilon() * A(grid);
    return bin > 0         ? clamp((place - start - A(in_bin) * bin) / bin * A(grid) + margin, grid)
           : margin < A(0) ? 0
                           : grid;
  }
  C10_HOST_DEVICE static int clamp(A number, int most) {
    return number > A(0) ? (number < A(most) ? int(number) : most) : 0;
  }
};

template <typename A>
struct Box {
  RotatedBox<A> box;  // in cells
  Side<A> y, x;
  int64_t image;

  Box() = default;
  C10_HOST_DEVICE Box(const A* values, A scale, const Sizes& sizes, int sampling_ratio)
      : box(values[1] * scale - A(0.5), values[2] * scale - A(0.5), values[3] * scale, values[4] * scale,
            values[5]),
        y(box.height, sizes.pooled_height, sampling_ratio),
        x(box.width, sizes.pooled_width, sampling_ratio),
        image(values[0]) {}

  C10_HOST_DEVICE A count() const {
    const A samples = A(y.grid) * A(x.grid);
    return samples < A(1) ? A(1) : samples;
  }

  // Calls visit(sample_y, sample_x) for each sample of a bin that lies in the rectangle of cells whose
  // center and half sizes are given, and perhaps for others.
  template <typename Visit>
  C10_HOST_DEVICE void samples(int ph, int pw, A at_x, A at_y, A half_width, A half_height,
                               const Sizes& sizes, const Visit& visit) const {
    const Point<A> center = box.in_box(at_x, at_y);
    const A cos = std::abs(box.cos), sin = std::abs(box.sin);
    const A reach_u = cos * half_width + sin * half_height, reach_v = sin * half_width + cos * half_height;
    const int end_y = y.end(ph, center.y, reach_v), end_x = x.end(pw, center.x, reach_u);
    for (int i = y.begin(ph, center.y, reach_v); i < end_y; ++i) {
      for (int j = x.begin(pw, center.x, reach_u); j < end_x; ++j) {
        const Point<A> at = box.in_image(x.at(pw, j), y.at(ph, i));
        const Sample<A> sample_y(at.y, sizes.height), sample_x(at.x, sizes.width);
        if (sample_y.inside && sample_x.inside) {
          visit(sample_y, sample_x);
        }
      }
    }
  }

  // All of a bin that are inside of the image.
  template <typename Visit>
  C10_HOST_DEVICE void samples(int ph, int pw, const Sizes& sizes, const Visit& visit) const {
    const A half_width = A(sizes.width + 1) / 2, half_height = A(sizes.height + 1) / 2;
    samples(ph, pw, half_width - A(1), half_height - A(1), half_width, half_height, sizes, visit);
  }
};

// On a GPU the values of a bad box are only skipped.
template <typename A>
C10_HOST_DEVICE inline bool is_valid(const A* box, int64_t images) {
  bool valid = box[0] >= 0 && box[0] < A(images) && box[3] >= 0 && box[4] >= 0;
  for (int i = 1; i < 6; ++i) {
    valid = valid && std::abs(box[i]) <= std::numeric_limits<A>::max();
  }
  return valid;
}

template <typename A>
void check_values(const char* op, const A* boxes, const Sizes& sizes) {
  for (int64_t r = 0; r < sizes.boxes; ++r) {
    if (!is_valid(boxes + 6 * r, sizes.images)) {
      const A* box = boxes + 6 * r;
      fail(op, ": boxes[", r, "] is (", box[0], ", ", box[1], ", ", box[2], ", ", box[3], ", ", box[4], ", ",
           box[5], "), expected an image from 0 to ", sizes.images - 1,
           ", finite numbers and no negative size");
    }
  }
}

// `values` are the features of the forward pass or the gradient of the backward pass.
inline void check_arguments(const char* op, const char* name, const Tensor& values, const Tensor& boxes,
                            double spatial_scale) {
  check_rank(op, name, values, 4);
  check_rows(op, "boxes", boxes, 6, "R");
  check_dtype(op, "boxes", boxes, values.scalar_type());
  check_device(op, "boxes", boxes, name, values);
  roi::check_scale(op, spatial_scale, boxes.scalar_type());
}

inline Sizes forward_sizes(const Tensor& input, const Tensor& boxes, int64_t pooled_height,
                           int64_t pooled_width, double spatial_scale) {
  constexpr const char* op = "roi_align_rotated";
  check_arguments(op, "input", input, boxes, spatial_scale);
  roi::check_sizes(op, input.size(1), input.size(2), pooled_height, pooled_width);
  return {input.size(0), input.size(1),      input.size(2),    input.size(3),
          boxes.size(0), int(pooled_height), int(pooled_width)};
}

inline Sizes backward_sizes(const Tensor& grad, const Tensor& boxes, int64_t images, int64_t height,
                            int64_t width, double spatial_scale) {
  constexpr const char* op = "roi_align_rotated_backward";
  check_arguments(op, "grad", grad, boxes, spatial_scale);
  roi::check_sizes(op, height, width, grad.size(1), grad.size(2));
  if (boxes.size(0) != grad.size(0) || images < 0) {
    fail(op, ": boxes has shape ", shape_text(boxes), " and images is ", images, ", expected (", grad.size(0),
         ", 6) and 0 or more");
  }
  return {images, height, width, grad.size(3), boxes.size(0), int(grad.size(1)), int(grad.size(2))};
}

}  // namespace detector::roi_align_rotated

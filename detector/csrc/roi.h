// What roi_pool and roi_align share on both devices: the checks of their arguments and of the boxes.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "memory.h"

namespace detector::roi {

// The sizes of a call. Features are (N, C, H, W), pooled values (R, C, PH, PW).
struct Sizes {
  int64_t images, channels, height, width, boxes;
  int pooled_height, pooled_width;

  C10_HOST_DEVICE int64_t bins() const { return int64_t(pooled_height) * pooled_width; }
  C10_HOST_DEVICE int64_t cells() const { return height * width; }
};

// A box (5,): the image, then x1, y1, x2, y2. On a GPU the values of a bad one are only skipped.
template <typename A>
C10_HOST_DEVICE inline bool is_valid(const A* box, int64_t images) {
  bool valid = box[0] >= 0 && box[0] < A(images);
  for (int i = 1; i < 5; ++i) {
    valid = valid && std::abs(box[i]) <= std::numeric_limits<A>::max();  // neither NaN nor infinite
  }
  return valid;
}

inline void check_sizes(const char* op, int64_t height, int64_t width, int64_t pooled_height,
                        int64_t pooled_width) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (height < 1 || width < 1 || height > most / width) {
    fail(op, ": input is ", height, " x ", width, ", expected from 1 to 2^31 - 1 cells an image");
  }
  if (pooled_height < 1 || pooled_width < 1 || pooled_height > most / pooled_width) {
    fail(op, ": output_size is (", pooled_height, ", ", pooled_width,
         "), expected positive numbers, up to 2^31 - 1 cells a box");
  }
}

// `type` is that of the coordinates. A scale that it holds as infinite would make NaN of a coordinate of 0.
inline void check_scale(const char* op, double spatial_scale, ScalarType type) {
  const double most =
      type == ScalarType::Double ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  if (!(spatial_scale > 0 && spatial_scale <= most)) {
    fail(op, ": spatial_scale is ", spatial_scale, ", expected a positive number up to ", most);
  }
}

// boxes: (R, 5) in the type that coordinates are computed in, which is never half.
inline void check_boxes(const char* op, const Tensor& boxes, const char* first, const Tensor& features) {
  check_rows(op, "boxes", boxes, 5, "R");
  check_dtype(op, "boxes", boxes, accumulate_type(features.scalar_type()));
  check_device(op, "boxes", boxes, first, features);
}

inline void check_values(const char* op, const Tensor& boxes, const Sizes& sizes) {
  if (!validates_values(boxes)) {
    return;
  }
  const Tensor rows = as_contiguous(on_host(boxes));
  dispatch_float_or_double(op, "boxes", rows.scalar_type(), [&](auto zero) {
    const auto* box = rows.const_data_ptr<decltype(zero)>();
    for (int64_t r = 0; r < sizes.boxes; ++r, box += 5) {
      if (is_valid(box, sizes.images)) {
        continue;
      }
      for (int i = 1; i < 5; ++i) {
        if (!std::isfinite(box[i])) {
          fail(op, ": boxes[", r, ", ", i, "] is ", box[i], ", expected a finite number");
        }
      }
      fail(op, ": boxes[", r, ", 0] is ", box[0], ", expected an image from 0 to ", sizes.images - 1);
    }
  });
}

inline Sizes check_forward(const char* op, const Tensor& input, const Tensor& boxes, int64_t pooled_height,
                           int64_t pooled_width, double spatial_scale) {
  check_rank(op, "input", input, 4);
  dispatch_floating(op, "input", input.scalar_type(), [](auto) {});
  check_boxes(op, boxes, "input", input);
  check_sizes(op, input.size(2), input.size(3), pooled_height, pooled_width);
  check_scale(op, spatial_scale, boxes.scalar_type());
  const Sizes sizes{input.size(0), input.size(1),      input.size(2),    input.size(3),
                    boxes.size(0), int(pooled_height), int(pooled_width)};
  check_values(op, boxes, sizes);
  return sizes;
}

// grad: (R, C, PH, PW), or (R, PH, PW, C) with channels_last. The features had `images` x C x `height` x
// `width`.
inline Sizes check_backward(const char* op, const Tensor& grad, const Tensor& boxes, int64_t images,
                            int64_t height, int64_t width, double spatial_scale, bool channels_last) {
  check_rank(op, "grad", grad, 4);
  dispatch_floating(op, "grad", grad.scalar_type(), [](auto) {});
  check_boxes(op, boxes, "grad", grad);
  if (boxes.size(0) != grad.size(0)) {
    fail(op, ": boxes has shape ", shape_text(boxes), ", expected (", grad.size(0), ", 5)");
  }
  const int first = channels_last ? 1 : 2;  // of the dimensions of a box's grid
  if (images < 0) {
    fail(op, ": images is ", images, ", expected 0 or more");
  }
  check_sizes(op, height, width, grad.size(first), grad.size(first + 1));
  check_scale(op, spatial_scale, boxes.scalar_type());
  const Sizes sizes{images,
                    grad.size(channels_last ? 3 : 1),
                    height,
                    width,
                    boxes.size(0),
                    int(grad.size(first)),
                    int(grad.size(first + 1))};
  check_values(op, boxes, sizes);
  return sizes;
}

// A new tensor for values of boxes or gradients of images, channels last or not.
inline Tensor new_output(const Tensor& like, int64_t count, int64_t channels, int64_t height, int64_t width,
                         bool channels_last, std::optional<ScalarType> type = std::nullopt) {
  return channels_last ? allocate(like, {count, height, width, channels}, type)
                       : allocate(like, {count, channels, height, width}, type);
}

}  // namespace detector::roi

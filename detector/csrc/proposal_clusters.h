// Proposal clusters (PCL, arXiv 1807.03342; OICR, arXiv 1704.00138; MIST, arXiv 2004.04725): the arithmetic
// of both devices.
//
// CPU, GPU and the plain PyTorch reference must choose the same rows, so nothing here may hang on an order of
// summation or on a fused multiply-add:
// - Scores enter the 3-means as whole numbers (FixedPoint), so that their sums are exact in any order.
// - What a cluster contributes is one product and one division; no product is ever added to anything.
// - A box's area is a rounded product (`product`) before it is added.
#pragma once

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "boxes.h"
#include "memory.h"

namespace detector::proposal_clusters {

enum class Method : int64_t { pcl, oicr, mist };  // numbered as in layers/proposal_clusters.py

struct Options {
  Method method;
  double edge_iou;      // PCL: neighbors in the graph; MIST: non-maximum suppression
  int64_t max_centers;  // PCL, of a class
  double top_share;     // MIST: share of the pool that competes
  double member_iou;
  double ignore_iou;
  double ignore_cover;  // 0: off
  double cover_iou;     // a box that covers a center overlaps it at least this much
};

// ---- boxes ----

// Whether a box covers at least that share of a center; one without area is never covered.
template <typename B>
C10_HOST_DEVICE bool covers(const Box<B>& box, const Box<B>& center, B center_area, B share) {
  return center_area > 0 && intersection(box, center) >= product(share, center_area);
}

template <typename B>
C10_HOST_DEVICE bool is_box(const Box<B>& box) {
  const B sides = (box.x2 - box.x1) + (box.y2 - box.y1);  // NaN or infinite if a coordinate is
  return box.x1 <= box.x2 && box.y1 <= box.y2 && std::isfinite(sides);
}

// ---- scores ----

// NaN becomes the lowest, so that scores can always be ordered.
template <typename A>
C10_HOST_DEVICE A clamp_score(A score) {
  constexpr A lowest = A(1e-9), highest = A(1 - 1e-9);
  return score > lowest ? (score < highest ? score : highest) : lowest;
}

C10_HOST_DEVICE inline bool is_label(float label) { return label == 0 || label == 1; }

constexpr int64_t kMaxRows = 65535;  // of an image, so that a row's number fits 16 bits
constexpr int kBits = 46;            // of a score; the sum of kMaxRows of them fits 62

// Scores of an image and a class as multiples of 2^-46 of their range's power of two, counted from the
// lowest. float32 scores keep all their bits unless they lie 22 binary orders below the range.
struct FixedPoint {
  double lowest, scale;

  C10_HOST_DEVICE FixedPoint(double lowest_score, double highest_score) : lowest(lowest_score), scale(1) {
    int exponent = 0;
    if (const double range = highest_score - lowest_score; range > 0) {
      std::frexp(range, &exponent);
      scale = std::ldexp(1.0, kBits - exponent);
    }
  }

  C10_HOST_DEVICE int64_t operator()(double score) const {
    return static_cast<int64_t>((score - lowest) * scale);
  }
};

// MIST: how many of a pool compete.
C10_HOST_DEVICE inline int64_t top_count(int64_t pool, double top_share) {
  const int64_t count = static_cast<int64_t>(std::ceil(top_share * double(pool)));
  return count < 1 ? 1 : count > pool ? pool : count;
}

// ---- exact 3-means of sorted numbers ----

// Distinct values in ascending order, cut into intervals. `count[k]` and `sum[k]` are of the numbers below
// value[k]; the last, k = size, of all.
struct Sorted {
  const int64_t* value;  // (size,)
  const int64_t* sum;    // (size + 1,)
  const int32_t* count;  // (size + 1,)
  int32_t size;

  C10_HOST_DEVICE double mean(int32_t begin, int32_t end) const {
    return double(sum[end] - sum[begin]) / double(count[end] - count[begin]);
  }

  // What the cluster [begin, end) takes off the sum of squares.
  C10_HOST_DEVICE double fit(int32_t begin, int32_t end) const {
    const double total = double(sum[end] - sum[begin]);
    return total * total / double(count[end] - count[begin]);
  }

  // Whether the cluster [begin, end) has a mean of at least `bound`.
  C10_HOST_DEVICE bool mean_reaches(int32_t begin, int32_t end, double bound) const {
    return double(sum[end] - sum[begin]) >= bound * double(count[end] - count[begin]);
  }

  // The first end in (begin, size) whose cluster [begin, end) has a mean of at least `bound`, else size.
  C10_HOST_DEVICE int32_t first_end(int32_t begin, double bound) const {
    int32_t first = begin + 1, last = size;
    while (first < last) {
      const int32_t end = first + (last - first) / 2;
      if (mean_reaches(begin, end, bound)) {
        last = end;
      } else {
        first = end + 1;
      }
    }
    return first;
  }
};

struct Split {
  double fit;
  int32_t high;  // the top cluster is [high, size)
};

// Ties: the smallest top cluster.
C10_HOST_DEVICE inline Split better(const Split& a, const Split& b) {
  return a.fit > b.fit || (a.fit == b.fit && a.high > b.high) ? a : b;
}

// The split to start from: worse than any into three, right for fewer than three values.
C10_HOST_DEVICE inline Split each_value_alone(const Sorted& sorted) { return {-1, sorted.size - 1}; }

// Which thresholds `high` can go with the threshold `low` in an optimum: those from the first on where the
// mean of [low, high) is at least `first`, up to where it is at least `last`.
//
// In an optimum no value is nearer to the neighboring cluster's mean, so the midpoint of the two lower means
// lies between value[low - 1] and value[low]. The mean of [low, high) grows with high, which bounds high on
// both sides. The slack, 2^-32 of the range, is far above rounding: every split as good as the best is among
// the candidates, and there are few others.
struct Bounds {
  double first, last;
};

C10_HOST_DEVICE inline Bounds bounds_at(const Sorted& sorted, int32_t low) {
  constexpr double slack = int64_t(1) << (kBits - 32);
  const double mean = sorted.mean(0, low);
  return {2 * double(sorted.value[low - 1]) - mean - slack, 2 * double(sorted.value[low]) - mean + slack};
}

// Of three clusters the fits, in this order of summation.
C10_HOST_DEVICE inline Split split_of(double lowest, double middle, double highest, int32_t high) {
  return {lowest + middle + highest, high};
}

// ---- results ----

// All (S, sum R).
template <typename T>
struct Outputs {
  int64_t* labels;
  T* weights;
  int64_t* clusters;
  int64_t* centers;

  C10_HOST_DEVICE Outputs from(int64_t row) const {
    return {labels + row, weights + row, clusters + row, centers + row};
  }
};

// Scores (S, sum R, C), stream by stream.
template <typename T>
struct Streams {
  Matrix<T> first;
  int64_t stride;

  explicit Streams(const Tensor& scores)
      : first{scores.const_data_ptr<T>(), scores.stride(1), scores.stride(2)}, stride(scores.stride(0)) {}

  C10_HOST_DEVICE Matrix<T> operator[](int64_t stream) const {
    return {first.data + stream * stride, first.row_stride, first.column_stride};
  }
};

// ---- arguments ----

// Refuses options outside their range, also NaN: the greedy choice would take no node and never end.
inline Options checked_options(int64_t method, double edge_iou, int64_t max_centers, double top_share,
                               double member_iou, double ignore_iou, double ignore_cover, double cover_iou) {
  constexpr const char* op = "proposal_clusters";
  if (method < 0 || method > int64_t(Method::mist)) {
    fail(op, ": method is ", method, ", expected 0 to ", int64_t(Method::mist));
  }
  if (max_centers < 1) {
    fail(op, ": max_centers is ", max_centers, ", expected at least 1");
  }
  if (!(top_share > 0 && top_share <= 1)) {
    fail(op, ": top_share is ", top_share, ", expected more than 0 and at most 1");
  }
  const auto check_fraction = [&](const char* name, double value) {
    if (!(value >= 0 && value <= 1)) {
      fail(op, ": ", name, " is ", value, ", expected 0 to 1");
    }
  };
  check_fraction("edge_iou", edge_iou);
  check_fraction("member_iou", member_iou);
  check_fraction("ignore_iou", ignore_iou);
  check_fraction("ignore_cover", ignore_cover);
  check_fraction("cover_iou", cover_iou);
  // An image has no more centers than rows, so the smaller number has the same effect and fits 32 bits.
  return {Method(method), edge_iou, std::min(max_centers, kMaxRows), top_share, member_iou, ignore_iou,
          ignore_cover,   cover_iou};
}

// What only the values can tell. All tensors on the CPU; defined in
// cpu/proposal_clusters/proposal_clusters.cpp.
void check_values(const Tensor& boxes, const Tensor& scores, const Tensor& image_labels,
                  const Tensor& counts);

// Shapes, dtypes and devices; costs nothing, so it is done on every call.
inline void check_arguments(const Tensor& boxes, const Tensor& scores, const Tensor& image_labels,
                            const Tensor& counts) {
  constexpr const char* op = "proposal_clusters";
  check_rows(op, "boxes", boxes, 4, "sum R");
  dispatch_float_or_double(op, "boxes", boxes.scalar_type(), [](auto) {});
  if (scores.dim() != 3 || scores.size(1) != boxes.size(0)) {
    fail(op, ": scores has shape ", shape_text(scores), ", expected (S, ", boxes.size(0), ", C) as boxes");
  }
  check_rank(op, "counts", counts, 1);
  check_dtype(op, "counts", counts, ScalarType::Long);
  check_rank(op, "image_labels", image_labels, 2);
  if (image_labels.size(0) != counts.size(0) || image_labels.size(1) != scores.size(2)) {
    fail(op, ": image_labels has shape ", shape_text(image_labels), ", expected (B, C) = (", counts.size(0),
         ", ", scores.size(2), ") as counts and scores");
  }
  check_dtype(op, "image_labels", image_labels, ScalarType::Float);
  check_device(op, "scores", scores, "boxes", boxes);
  check_device(op, "image_labels", image_labels, "boxes", boxes);
  if (counts.is_cpu()) {  // they serve every device
    image_starts(op, "boxes", counts, boxes.size(0), kMaxRows);
  } else {
    check_device(op, "counts", counts, "boxes", boxes);
  }
  if (validates_values(boxes)) {
    check_values(on_host(boxes), on_host(scores), on_host(image_labels), on_host(counts));
  }
}

// ---- checks and tensors here, the kernels in Device ----

template <typename Device>
std::tuple<Tensor, Tensor, Tensor, Tensor> clusters(const Tensor& boxes, const Tensor& scores,
                                                    const Tensor& image_labels, const Tensor& counts,
                                                    int64_t method, double edge_iou, int64_t max_centers,
                                                    double top_share, double member_iou, double ignore_iou,
                                                    double ignore_cover, double cover_iou) {
  constexpr const char* op = "proposal_clusters";
  const Options options = checked_options(method, edge_iou, max_centers, top_share, member_iou, ignore_iou,
                                          ignore_cover, cover_iou);
  check_arguments(boxes, scores, image_labels, counts);
  const auto guard = device_guard(boxes);
  const std::array<int64_t, 2> shape{scores.size(0), scores.size(1)};
  const Tensor labels = allocate(scores, shape, ScalarType::Long), weights = allocate(scores, shape);
  const Tensor clusters = allocate(scores, shape, ScalarType::Long);
  const Tensor centers = allocate(scores, shape, ScalarType::Long);
  dispatch_floating(op, "scores", scores.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const Outputs<T> out{labels.mutable_data_ptr<int64_t>(), weights.mutable_data_ptr<T>(),
                         clusters.mutable_data_ptr<int64_t>(), centers.mutable_data_ptr<int64_t>()};
    dispatch_float_or_double(op, "boxes", boxes.scalar_type(), [&](auto box_zero) {
      if (labels.numel() > 0) {
        Device::template run<decltype(box_zero), T>(boxes, scores, image_labels, counts, options, out);
      }
    });
  });
  return {labels, weights, clusters, centers};
}

}  // namespace detector::proposal_clusters

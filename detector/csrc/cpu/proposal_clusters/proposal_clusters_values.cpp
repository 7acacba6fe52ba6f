// What only the values of proposal_clusters' arguments can tell.
#include "../../proposal_clusters.h"

namespace detector::proposal_clusters {
namespace {

template <typename T>
void check_scores(const Tensor& all, int64_t row, int64_t image) {
  const Streams<T> streams(all);
  for (int64_t s = 0; s < all.size(0); ++s) {
    for (int64_t c = 0; c < all.size(2); ++c) {
      if (const double score = streams[s](row, c); !std::isfinite(score)) {
        const std::string stream = all.size(0) == 1 ? "" : std::to_string(s) + ", ";
        fail("proposal_clusters: scores[", stream, row, ", ", c, "], of image ", image, ", is ", score,
             ", expected a finite number");
      }
    }
  }
}

template <typename B>
void check_box(const Box<B>& box, int64_t row, int64_t image) {
  if (!is_box(box)) {
    fail("proposal_clusters: boxes[", row, "], of image ", image, ", is (", box.x1, ", ", box.y1, ", ",
         box.x2, ", ", box.y2, "), expected finite x1 <= x2 and y1 <= y2");
  }
}

}  // namespace

void check_values(const Tensor& boxes, const Tensor& scores, const Tensor& image_labels,
                  const Tensor& counts) {
  const auto starts = image_starts("proposal_clusters", "boxes", counts, boxes.size(0), kMaxRows);
  const int64_t num_classes = scores.size(2);
  const auto labels = matrix_view<float>(image_labels);
  dispatch_floating("proposal_clusters", "scores", scores.scalar_type(), [&](auto zero) {
    for (int64_t i = 0; i < counts.size(0); ++i) {
      for (int64_t c = 0; c < num_classes; ++c) {
        if (!is_label(labels(i, c))) {
          fail("proposal_clusters: image_labels[", i, ", ", c, "] is ", labels(i, c), ", expected 0 or 1");
        }
      }
      for (int64_t r = starts[i]; r < starts[i + 1]; ++r) {
        check_scores<decltype(zero)>(scores, r, i);
        if (boxes.scalar_type() == ScalarType::Double) {
          check_box(box_at(matrix_view<double>(boxes), r), r, i);
        } else {
          check_box(box_at(matrix_view<float>(boxes), r), r, i);
        }
      }
    }
  });
}

}  // namespace detector::proposal_clusters

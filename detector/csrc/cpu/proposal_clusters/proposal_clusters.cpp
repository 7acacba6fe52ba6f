// Proposal clusters on the CPU: one thread an image and stream.
#include "../../proposal_clusters.h"

#include <torch/csrc/stable/library.h>

#include <vector>

#include "../no_contraction.h"  // see proposal_clusters.h
#include "../parallel.h"
#include "centers.h"

namespace detector::proposal_clusters {
namespace {

// ---- the clusters of one image; rows count from its first ----

struct Center {
  int64_t row, column;  // of scores
  double weight;
};

// Class by class; a chosen row is out of the pool of later classes.
template <typename B, typename T>
std::vector<Center> find_centers(const Boxes<B>& boxes, const Matrix<T>& scores, const Vector<float>& labels,
                                 int64_t num_classes, const Options& options) {
  std::vector<Center> centers;
  std::vector<bool> chosen(boxes.size(), false);
  for (int64_t c = 0; c < num_classes; ++c) {
    if (labels[c] == 0 || static_cast<int64_t>(centers.size()) == boxes.size()) {
      continue;
    }
    std::vector<Scored> pool;
    double lowest = 1, highest = 0;
    for (int64_t r = 0; r < boxes.size(); ++r) {
      const double score = clamp_score<Accumulate<T>>(scores(r, c));
      lowest = std::min(lowest, score);
      highest = std::max(highest, score);
      if (!chosen[r]) {
        pool.push_back({r, score});
      }
    }
    const auto found = options.method == Method::pcl
                           ? pcl_centers(boxes, pool, FixedPoint(lowest, highest), options)
                       : options.method == Method::oicr ? oicr_center(pool)
                                                        : mist_centers(boxes, std::move(pool), options);
    for (const Scored& scored : found) {
      chosen[scored.row] = true;
      centers.push_back({scored.row, c, scored.score});
    }
  }
  return centers;
}

// Marks the boxes that cover the center, as the options say; `overlap` is each one's IoU with it.
template <typename B>
void find_covering(const Boxes<B>& boxes, const Box<B>& center, const std::vector<B>& overlap,
                   const Options& options, std::vector<bool>& covering) {
  const B center_area = area(center), share = static_cast<B>(options.ignore_cover);
  const B least = static_cast<B>(options.cover_iou);
  for (int64_t r = 0; r < boxes.size(); ++r) {
    covering[r] = covering[r] || (overlap[r] >= least && covers(boxes[r], center, center_area, share));
  }
}

template <typename B, typename T>
void assign(const Boxes<B>& boxes, const std::vector<Center>& centers, const Options& options,
            const Outputs<T>& out) {
  const int64_t num_rows = boxes.size();
  std::vector<B> overlap, highest(num_rows, -1);
  std::vector<int32_t> nearest(num_rows, -1);
  std::vector<bool> covers_one(num_rows, false);
  std::fill_n(out.centers, num_rows, -1);
  for (size_t n = 0; n < centers.size(); ++n) {
    overlaps(boxes[centers[n].row], boxes, overlap);
    for (int64_t r = 0; r < num_rows; ++r) {
      const bool nearer = overlap[r] > highest[r];
      highest[r] = nearer ? overlap[r] : highest[r];
      nearest[r] = nearer ? n : nearest[r];
    }
    out.centers[centers[n].row] = n;
    if (options.ignore_cover > 0) {
      find_covering(boxes, boxes[centers[n].row], overlap, options, covers_one);
    }
  }
  for (int64_t r = 0; r < num_rows; ++r) {
    const int32_t n = nearest[r];  // -1 where there are no centers
    const bool member = n >= 0 && highest[r] >= static_cast<B>(options.member_iou);
    const bool ignored =
        n < 0 || highest[r] < static_cast<B>(options.ignore_iou) || (!member && covers_one[r]);
    out.labels[r] = member ? centers[n].column + 1 : 0;
    out.weights[r] = static_cast<T>(ignored ? 0 : static_cast<Accumulate<T>>(centers[n].weight));
    out.clusters[r] = member ? n : -1;
  }
}

struct Cpu {
  template <typename B, typename T>
  static void run(const Tensor& boxes, const Tensor& scores, const Tensor& image_labels, const Tensor& counts,
                  const Options& options, const Outputs<T>& out) {
    const auto starts = image_starts("proposal_clusters", "boxes", counts, boxes.size(0), kMaxRows);
    const auto box = matrix_view<B>(boxes);
    const Streams<T> streams(scores);
    const auto label = matrix_view<float>(image_labels);
    const int64_t num_images = counts.size(0), num_rows = boxes.size(0);
    parallel_for(scores.size(0) * num_images, 1, [&](int64_t first, int64_t last) {
      for (int64_t k = first; k < last; ++k) {
        const int64_t stream = k / num_images, image = k % num_images, start = starts[image];
        Boxes<B> image_boxes;
        for (int64_t r = start; r < starts[image + 1]; ++r) {
          image_boxes.push_back(box_at(box, r));
        }
        const auto centers = find_centers(image_boxes, streams[stream].from_row(start), label.row(image),
                                          scores.size(2), options);
        assign(image_boxes, centers, options, out.from(stream * num_rows + start));
      }
    });
  }
};

// ---- what only the values of the arguments can tell ----

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

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) { m.impl("proposal_clusters", TORCH_BOX(&clusters<Cpu>)); }

}  // namespace detector::proposal_clusters

// The clusters of one image; rows count from its first.
#pragma once

#include <vector>

#include "centers.h"

namespace detector::proposal_clusters {

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

}  // namespace detector::proposal_clusters

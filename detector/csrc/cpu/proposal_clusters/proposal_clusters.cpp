// Proposal clusters on the CPU: one thread an image and stream.
#pragma GCC optimize("fp-contract=off")  // see proposal_clusters.h; GCC fuses across statements where it can
#include "../../proposal_clusters.h"

#include <torch/csrc/stable/library.h>

#include <tuple>
#include <vector>

#include "../parallel.h"
#include "image.h"

namespace detector::proposal_clusters {
namespace {

template <typename B, typename T>
void cluster_images(const Tensor& boxes, const Tensor& scores, const Tensor& image_labels,
                    const std::vector<int64_t>& starts, const Options& options, const Outputs<T>& out) {
  const auto box = matrix_view<B>(boxes);
  const Streams<T> streams(scores);
  const auto label = matrix_view<float>(image_labels);
  const int64_t num_images = starts.size() - 1, num_rows = boxes.size(0);
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

std::tuple<Tensor, Tensor, Tensor, Tensor> clusters_cpu(const Tensor& boxes, const Tensor& scores,
                                                        const Tensor& image_labels, const Tensor& counts,
                                                        int64_t method, double edge_iou, int64_t max_centers,
                                                        double top_share, double member_iou,
                                                        double ignore_iou, double ignore_cover,
                                                        double cover_iou) {
  const Options options = checked_options(method, edge_iou, max_centers, top_share, member_iou, ignore_iou,
                                          ignore_cover, cover_iou);
  check_arguments(boxes, scores, image_labels, counts);
  const auto starts = image_starts("proposal_clusters", "boxes", counts, boxes.size(0), kMaxRows);
  const Results results(scores);
  dispatch_floating("proposal_clusters", "scores", scores.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    if (boxes.scalar_type() == ScalarType::Double) {
      cluster_images<double>(boxes, scores, image_labels, starts, options, results.outputs<T>());
    } else {
      cluster_images<float>(boxes, scores, image_labels, starts, options, results.outputs<T>());
    }
  });
  return results.tuple();
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) { m.impl("proposal_clusters", TORCH_BOX(&clusters_cpu)); }

}  // namespace detector::proposal_clusters

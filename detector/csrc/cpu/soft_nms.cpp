// Soft non-maximum suppression on the CPU; threads share the groups.
#include "../soft_nms.h"

#include <torch/csrc/stable/library.h>

#include <limits>
#include <vector>

#include "no_contraction.h"  // see nms.h
#include "parallel.h"

namespace detector::soft_nms {
namespace {

// Writes the scores that `size` boxes are taken with, or what is left of them.
template <typename A>
void decay_group(const Matrix<A>& view, const Vector<A>& scores, int64_t first, int64_t size,
                 const Decay<A>& decay, A min_score, A* output) {
  struct Candidate {
    Box<A> box;
    A area, score;
    int64_t index;
  };
  std::vector<Candidate> left;
  for (int64_t i = first; i < first + size; ++i) {
    const Box<A> box = box_at(view, i);
    left.push_back({box, area(box), scores[i], i});
  }
  while (!left.empty()) {
    const auto best = std::max_element(left.begin(), left.end(), [](const Candidate& a, const Candidate& b) {
      return a.score < b.score;  // the first of equal ones, which are in the order of their indices
    });
    const Candidate taken = *best;
    output[taken.index] = taken.score;
    if (taken.score < min_score) {
      break;
    }
    left.erase(best);
    for (Candidate& other : left) {
      other.score *= decay(iou(taken.box, taken.area, other.box, other.area));
    }
  }
  for (const Candidate& other : left) {
    output[other.index] = other.score;
  }
}

template <typename A>
void check_scores(const Vector<A>& scores, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    if (!(scores[i] >= 0 && std::isfinite(scores[i]))) {  // infinity times a factor of 0 would be a NaN
      // not its index, which is another one where the caller has sorted the boxes by their groups
      fail("soft_nms: scores has ", scores[i], ", expected finite numbers of 0 or more");
    }
  }
}

Tensor soft_nms(const Tensor& boxes, const Tensor& scores, const Tensor& any_starts, bool gaussian,
                double parameter, double min_score) {
  check_arguments(boxes, scores, any_starts);
  const Tensor starts = as_contiguous(any_starts);
  const Tensor output = allocate(boxes, {boxes.size(0)});
  const auto* start = starts.const_data_ptr<int64_t>();
  dispatch_float_or_double("soft_nms", "boxes", boxes.scalar_type(), [&](auto zero) {
    using A = decltype(zero);
    check_scores(vector_view<A>(scores), boxes.size(0));
    parallel_for(starts.size(0) - 1, 1, [&](int64_t first, int64_t last) {
      for (int64_t g = first; g < last; ++g) {
        decay_group(matrix_view<A>(boxes), vector_view<A>(scores), start[g], start[g + 1] - start[g],
                    Decay<A>{gaussian, A(parameter)}, A(min_score), output.mutable_data_ptr<A>());
      }
    });
  });
  return output;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) { m.impl("soft_nms", TORCH_BOX(&soft_nms)); }

}  // namespace detector::soft_nms

// Soft non-maximum suppression on a GPU: a block takes a group, and all its threads look for the next box.
#include <torch/csrc/stable/library.h>

#include <limits>

#include "../soft_nms.h"
#include "launch.cuh"
#include "reduce.cuh"

namespace detector::soft_nms {
namespace {

constexpr int kThreads = kWarp * kWarp;
constexpr int64_t kMostBlocks = 4096;  // each of which reads all starts

// left: (N,), the scores of the boxes that are left, NaN for those that are taken. A thread reads and writes
// only every kThreads-th box of the group. Where starts are out of order no box has a group, and all scores
// are 0.
template <typename A>
__global__ void __launch_bounds__(kThreads)
    soft_nms_kernel(Matrix<A> boxes, Vector<A> scores, int64_t size, const int64_t* starts, int64_t groups,
                    Decay<A> decay, A min_score, A* left, A* output) {
  bool valid = true;
  for (int64_t i = threadIdx.x; i <= groups; i += kThreads) {
    valid = valid && in_order(starts, groups, size, i);
  }
  if (!__syncthreads_and(valid)) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < size; i += gridDim.x * kThreads) {
      output[i] = 0;
    }
    return;
  }
  constexpr A none = -std::numeric_limits<A>::infinity();
  constexpr int64_t no_index = std::numeric_limits<int64_t>::max();
  for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
    const int64_t first = starts[group] + threadIdx.x, end = starts[group + 1];
    for (int64_t i = first; i < end; i += kThreads) {
      left[i] = output[i] = scores[i];
    }
    Box<A> taken{};
    A factor_area = 0;
    int64_t index = no_index;
    for (;;) {
      A best = none;
      int64_t best_index = no_index;
      for (int64_t i = first; i < end; i += kThreads) {
        A score = left[i];
        if (index != no_index) {
          const Box<A> box = box_at(boxes, i);
          score *= decay(iou(taken, factor_area, box, area(box)));
          left[i] = score;
        }
        if (score > best) {
          best = score;
          best_index = i;
        }
      }
      const A top = block_reduce(best, Max{});
      index = block_reduce(best == top ? best_index : no_index, Min{});
      if (!(top >= min_score) || index == no_index) {
        break;
      }
      taken = box_at(boxes, index);
      factor_area = area(taken);
      if (index % kThreads == first % kThreads) {
        output[index] = top;
        left[index] = std::numeric_limits<A>::quiet_NaN();
      }
    }
    for (int64_t i = first; i < end; i += kThreads) {
      output[i] = left[i] == left[i] ? left[i] : output[i];
    }
  }
}

Tensor soft_nms(const Tensor& boxes, const Tensor& scores, const Tensor& any_starts, bool gaussian,
                double parameter, double min_score) {
  check_arguments(boxes, scores, any_starts);
  const auto guard = device_guard(boxes);
  const Tensor starts = as_contiguous(any_starts);
  const Tensor output = allocate(boxes, {boxes.size(0)}), left = allocate(boxes, {boxes.size(0)});
  const int64_t groups = starts.size(0) - 1;
  dispatch_float_or_double("soft_nms", "boxes", boxes.scalar_type(), [&](auto zero) {
    using A = decltype(zero);
    if (groups > 0) {
      launch_kernel(soft_nms_kernel<A>, std::min(groups, kMostBlocks), kThreads, 0, current_stream(boxes),
                    matrix_view<A>(boxes), vector_view<A>(scores), boxes.size(0),
                    starts.const_data_ptr<int64_t>(), groups, Decay<A>{gaussian, A(parameter)}, A(min_score),
                    left.mutable_data_ptr<A>(), output.mutable_data_ptr<A>());
    }
  });
  return output;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) { m.impl("soft_nms", TORCH_BOX(&soft_nms)); }

}  // namespace detector::soft_nms

// Non-maximum suppression of rotated boxes on a GPU: a bit for each pair of boxes, then one block that walks
// the boxes in order, 64 at a time. The bits take N * N / 8 bytes.
#include <torch/csrc/stable/library.h>

#include "../nms_rotated.h"
#include "launch.cuh"

namespace detector::nms_rotated {
namespace {

constexpr int kBits = 64;
constexpr int kSettleThreads = 1024;

// Bit j of word w of box i: it suppresses box 64 w + j, which comes later. A block computes the words of 64
// boxes; words of earlier boxes are not written, and never read.
template <typename A>
__global__ void __launch_bounds__(kBits) pairs_kernel(Matrix<A> boxes, const int64_t* groups, int64_t size,
                                                      int64_t words, A threshold, uint64_t* bits) {
  __shared__ RotatedBox<A> others[kBits];
  for (int64_t block = blockIdx.x; block < words * words; block += gridDim.x) {
    const int64_t row = block / words, word = block % words;
    if (word < row) {
      continue;
    }
    const int64_t i = row * kBits + threadIdx.x, first = word * kBits;
    const int count = int(min(int64_t(kBits), size - first));
    __syncthreads();  // the words before are done
    if (threadIdx.x < count) {
      others[threadIdx.x] = rotated_box_at(boxes, first + threadIdx.x);
    }
    __syncthreads();
    if (i < size) {
      const RotatedBox<A> box = rotated_box_at(boxes, i);
      uint64_t suppressed = 0;
      for (int j = 0; j < count; ++j) {
        const bool same_group = groups == nullptr || groups[i] == groups[first + j];
        if (first + j > i && same_group && suppresses(box, others[j], threshold)) {
          suppressed |= uint64_t(1) << j;
        }
      }
      bits[i * words + word] = suppressed;
    }
  }
}

// removed: (words,), a bit for each box that is suppressed.
__global__ void __launch_bounds__(kSettleThreads)
    settle_kernel(const uint64_t* bits, int64_t size, int64_t words, uint64_t* removed, bool* kept) {
  for (int64_t w = threadIdx.x; w < words; w += kSettleThreads) {
    removed[w] = 0;
  }
  __shared__ uint64_t shared_stay;
  for (int64_t word = 0; word < words; ++word) {
    const int64_t first = word * kBits;
    const int count = int(min(int64_t(kBits), size - first));
    __syncthreads();
    if (threadIdx.x == 0) {
      uint64_t gone = removed[word];
      for (int j = 0; j < count; ++j) {
        gone |= gone >> j & 1 ? 0 : bits[(first + j) * words + word];
      }
      shared_stay = ~gone;
    }
    __syncthreads();
    const uint64_t stay = shared_stay;
    if (threadIdx.x < count) {
      kept[first + threadIdx.x] = stay >> threadIdx.x & 1;
    }
    for (int64_t w = word + 1 + threadIdx.x; w < words; w += kSettleThreads) {
      uint64_t gone = removed[w];
      for (int j = 0; j < count; ++j) {
        gone |= stay >> j & 1 ? bits[(first + j) * words + w] : 0;
      }
      removed[w] = gone;
    }
  }
}

Tensor nms_rotated(const Tensor& boxes, const std::optional<Tensor>& idxs, double iou_threshold) {
  check_arguments(boxes, idxs, iou_threshold);
  const auto guard = device_guard(boxes);
  const int64_t size = boxes.size(0), words = ceil_div(size, kBits);
  const Tensor mask = allocate(boxes, {size}, ScalarType::Bool);
  const std::optional<Tensor> groups = idxs ? std::optional(as_contiguous(*idxs)) : std::nullopt;
  dispatch_float_or_double("nms_rotated", "boxes", boxes.scalar_type(), [&](auto zero) {
    using A = decltype(zero);
    if (size == 0) {
      return;
    }
    const Tensor scratch = allocate(boxes, {checked_product(size + 1, words)}, ScalarType::Long);
    auto* bits = static_cast<uint64_t*>(scratch.mutable_data_ptr());
    const cudaStream_t stream = current_stream(boxes);
    launch_kernel(pairs_kernel<A>, blocks_for(words * words, 1), kBits, 0, stream, matrix_view<A>(boxes),
                  groups ? groups->const_data_ptr<int64_t>() : nullptr, size, words, A(iou_threshold), bits);
    launch_kernel(settle_kernel, 1, kSettleThreads, 0, stream, bits, size, words, bits + size * words,
                  mask.mutable_data_ptr<bool>());
  });
  return mask;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) { m.impl("nms_rotated", TORCH_BOX(&nms_rotated)); }

}  // namespace detector::nms_rotated

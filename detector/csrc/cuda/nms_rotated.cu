// Non-maximum suppression of rotated boxes on a GPU: a bit for each pair of boxes, then one block that
// decides on them in order, as for few upright boxes. The bits take N * N / 8 bytes.
#include <torch/csrc/stable/library.h>

#include "../nms_rotated.h"
#include "launch.cuh"
#include "nms/scan.cuh"

namespace detector::nms_rotated {
namespace {

constexpr int kSide = 64;  // boxes on each side of a tile of pairs
constexpr int kPairThreads = 256;

// Word w of box j, at pairs[w * size + j], has a bit for each of the boxes from 32 w on that suppresses it. A
// block computes a tile; those below the diagonal, of boxes after these, are not written, and never read. Few
// pairs come near the threshold: they are listed first, so that all threads of a warp intersect.
template <typename A>
__global__ void __launch_bounds__(kPairThreads)
    nms_rotated_pairs_kernel(Matrix<A> boxes, const int64_t* groups, int64_t size, int64_t tiles, A threshold,
                             uint32_t* pairs) {
  static_assert(kSide * kSide <= 1 << 16, "a pair is a number of 16 bits");
  static_assert(2 * kSide <= kPairThreads && kSide == 2 * kWarp, "a thread writes a word");
  __shared__ RotatedBox<A> firsts[kSide], seconds[kSide];
  __shared__ int64_t first_groups[kSide], second_groups[kSide];
  __shared__ uint32_t found[kSide][2];
  __shared__ uint16_t near[kSide * kSide];
  __shared__ int num_near;
  for (int64_t tile = blockIdx.x; tile < tiles * tiles; tile += gridDim.x) {
    const int64_t first = tile / tiles * kSide, second = tile % tiles * kSide;
    if (second < first) {
      continue;
    }
    const int num_firsts = int(min(int64_t(kSide), size - first));
    const int num_seconds = int(min(int64_t(kSide), size - second));
    __syncthreads();  // the tile before has been written
    const int own = threadIdx.x % kSide;
    if (threadIdx.x < kSide) {
      found[own][0] = found[own][1] = 0;
      if (own < num_firsts) {
        firsts[own] = rotated_box_at(boxes, first + own);
        first_groups[own] = groups == nullptr ? 0 : groups[first + own];
      }
    } else if (threadIdx.x < 2 * kSide) {
      if (own < num_seconds) {
        seconds[own] = rotated_box_at(boxes, second + own);
        second_groups[own] = groups == nullptr ? 0 : groups[second + own];
      }
    } else if (threadIdx.x == 2 * kSide) {
      num_near = 0;
    }
    __syncthreads();
    for (int pair = threadIdx.x; pair < kSide * kSide; pair += kPairThreads) {
      const int i = pair / kSide, j = pair % kSide;
      const bool is_near = i < num_firsts && j < num_seconds && first + i < second + j &&
                           first_groups[i] == second_groups[j] &&
                           may_suppress(firsts[i], seconds[j], threshold);
      const unsigned lanes = __ballot_sync(0xffffffffu, is_near);
      int place = 0;
      if (lane_of_thread() == 0 && lanes != 0) {
        place = atomicAdd(&num_near, __popc(lanes));
      }
      place = __shfl_sync(0xffffffffu, place, 0);
      if (is_near) {
        near[place + __popc(lanes & ((1u << lane_of_thread()) - 1))] = uint16_t(pair);
      }
    }
    __syncthreads();
    for (int n = threadIdx.x; n < num_near; n += kPairThreads) {
      const int i = near[n] / kSide, j = near[n] % kSide;
      if (suppresses(firsts[i], seconds[j], threshold)) {
        atomicOr(&found[j][i / kWarp], 1u << i % kWarp);  // in any order
      }
    }
    __syncthreads();
    const int half = threadIdx.x / kSide;
    const int64_t word = first / kWarp + half;
    if (half < 2 && own < num_seconds && word * kWarp < size) {
      pairs[word * size + second + own] = found[own][half];
    }
  }
}

__global__ void __launch_bounds__(nms::kScanThreads)
    nms_rotated_keep_kernel(const uint32_t* pairs, int size, int words, bool* mask) {
  extern __shared__ uint32_t shared[];
  uint32_t *const alive = shared, *const kept = shared + words;
  for (int word = threadIdx.x; word < words; word += nms::kScanThreads) {
    alive[word] = nms::bits_between(0, size - word * kWarp);
  }
  __syncthreads();
  nms::suppress_all(pairs, size, alive, kept);
  for (int i = threadIdx.x; i < size; i += nms::kScanThreads) {
    mask[i] = kept[i / kWarp] >> i % kWarp & 1;
  }
}

Tensor nms_rotated(const Tensor& boxes, const std::optional<Tensor>& idxs, double iou_threshold) {
  check_arguments(boxes, idxs, iou_threshold);
  const auto guard = device_guard(boxes);
  const int64_t size = boxes.size(0), tiles = ceil_div(size, kSide);
  const int64_t words = ceil_div(size, nms::kChunk) * nms::kWords;
  const Tensor mask = allocate(boxes, {size}, ScalarType::Bool);
  const std::optional<Tensor> groups = idxs ? std::optional(as_contiguous(*idxs)) : std::nullopt;
  dispatch_float_or_double("nms_rotated", "boxes", boxes.scalar_type(), [&](auto zero) {
    using A = decltype(zero);
    if (size == 0) {
      return;
    }
    const Tensor scratch = allocate(boxes, {checked_product(size, ceil_div(size, kWarp))}, ScalarType::Int);
    auto* pairs = static_cast<uint32_t*>(scratch.mutable_data_ptr());
    const cudaStream_t stream = current_stream(boxes);
    launch_kernel(nms_rotated_pairs_kernel<A>, blocks_for(tiles * tiles, 1), kPairThreads, 0, stream,
                  matrix_view<A>(boxes), groups ? groups->const_data_ptr<int64_t>() : nullptr, size, tiles,
                  A(iou_threshold), pairs);
    launch_kernel(nms_rotated_keep_kernel, 1, nms::kScanThreads, 2 * words * sizeof(uint32_t), stream, pairs,
                  int(size), int(words), mask.mutable_data_ptr<bool>());
  });
  return mask;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) { m.impl("nms_rotated", TORCH_BOX(&nms_rotated)); }

}  // namespace detector::nms_rotated

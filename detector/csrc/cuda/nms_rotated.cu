// Non-maximum suppression of rotated boxes on a GPU: a bit for each pair of boxes, then one block that walks
// the boxes in order, 64 at a time. The bits take N * N / 8 bytes.
#include <torch/csrc/stable/library.h>

#include "../nms_rotated.h"
#include "launch.cuh"
#include "reduce.cuh"

namespace detector::nms_rotated {
namespace {

constexpr int kBits = 64;  // boxes of a word, and of a tile
constexpr int kPairThreads = 256;
constexpr int kWalkThreads = kWarp * kWarp;

// Bit j of word w of box i, at bits[w * size + i]: it suppresses box 64 w + j, which comes later. A block
// computes a tile, the words w of 64 boxes; those of tiles below the diagonal are not written, and never
// read. Few pairs come near the threshold: they are listed first, so that all threads of a warp intersect.
template <typename A>
__global__ void __launch_bounds__(kPairThreads)
    nms_rotated_pairs_kernel(Matrix<A> boxes, const int64_t* groups, int64_t size, int64_t words, A threshold,
                             uint64_t* bits) {
  static_assert(kBits * kBits <= 1 << 16, "a pair is a number of 16 bits");
  __shared__ RotatedBox<A> firsts[kBits], seconds[kBits];
  __shared__ int64_t first_groups[kBits], second_groups[kBits];
  __shared__ uint32_t found[kBits][2];
  __shared__ uint16_t near[kBits * kBits];
  __shared__ int num_near;
  for (int64_t tile = blockIdx.x; tile < words * words; tile += gridDim.x) {
    const int64_t row = tile / words, word = tile % words;
    if (word < row) {
      continue;
    }
    const int64_t first = row * kBits, second = word * kBits;
    const int num_firsts = int(min(int64_t(kBits), size - first));
    const int num_seconds = int(min(int64_t(kBits), size - second));
    __syncthreads();  // the tile before has been written
    const int own = threadIdx.x % kBits;
    if (threadIdx.x < kBits) {
      found[own][0] = found[own][1] = 0;
      if (own < num_firsts) {
        firsts[own] = rotated_box_at(boxes, first + own);
        first_groups[own] = groups == nullptr ? 0 : groups[first + own];
      }
    } else if (threadIdx.x < 2 * kBits) {
      if (own < num_seconds) {
        seconds[own] = rotated_box_at(boxes, second + own);
        second_groups[own] = groups == nullptr ? 0 : groups[second + own];
      }
    } else if (threadIdx.x == 2 * kBits) {
      num_near = 0;
    }
    __syncthreads();
    for (int pair = threadIdx.x; pair < kBits * kBits; pair += kPairThreads) {
      const int i = pair / kBits, j = pair % kBits;
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
      const int i = near[n] / kBits, j = near[n] % kBits;
      if (suppresses(firsts[i], seconds[j], threshold)) {
        atomicOr(&found[i][j / 32], 1u << j % 32);  // in any order
      }
    }
    __syncthreads();
    if (threadIdx.x < num_firsts) {
      bits[word * size + first + threadIdx.x] = uint64_t(found[threadIdx.x][1]) << 32 | found[threadIdx.x][0];
    }
  }
}

struct Or {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a | b; }
};

// All threads find which of 64 boxes those that are kept before suppress; then one warp goes through the 64.
__global__ void __launch_bounds__(kWalkThreads)
    nms_rotated_keep_kernel(const uint64_t* bits, int64_t size, int64_t words, bool* kept) {
  __shared__ uint64_t suppressed_by_warp[kWarp], own_bits[kBits];
  for (int64_t word = 0; word < words; ++word) {
    const int64_t first = word * kBits;
    const int count = int(min(int64_t(kBits), size - first));
    const uint64_t* column = bits + word * size;
    if (threadIdx.x < count) {
      own_bits[threadIdx.x] = column[first + threadIdx.x];
    }
    uint64_t suppressed = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < first; i += kWalkThreads) {
      suppressed |= kept[i] ? column[i] : 0;
    }
    suppressed = warp_reduce(suppressed, Or{});
    if (lane_of_thread() == 0) {
      suppressed_by_warp[warp_of_thread()] = suppressed;
    }
    __syncthreads();
    if (warp_of_thread() == 0) {
      uint64_t left = ~warp_reduce(suppressed_by_warp[lane_of_thread()], Or{}), keep = 0;
      left &= ~uint64_t(0) >> (kBits - count);
      while (left != 0) {
        const int j = __ffsll(static_cast<long long>(left)) - 1;
        keep |= uint64_t(1) << j;
        left &= ~(own_bits[j] | uint64_t(1) << j);
      }
      for (int j = lane_of_thread(); j < count; j += kWarp) {
        kept[first + j] = keep >> j & 1;
      }
    }
    __syncthreads();  // kept has been written, and own_bits are free
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
    const Tensor scratch = allocate(boxes, {checked_product(size, words)}, ScalarType::Long);
    auto* bits = static_cast<uint64_t*>(scratch.mutable_data_ptr());
    const cudaStream_t stream = current_stream(boxes);
    launch_kernel(nms_rotated_pairs_kernel<A>, blocks_for(words * words, 1), kPairThreads, 0, stream,
                  matrix_view<A>(boxes), groups ? groups->const_data_ptr<int64_t>() : nullptr, size, words,
                  A(iou_threshold), bits);
    launch_kernel(nms_rotated_keep_kernel, 1, kWalkThreads, 0, stream, bits, size, words,
                  mask.mutable_data_ptr<bool>());
  });
  return mask;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) { m.impl("nms_rotated", TORCH_BOX(&nms_rotated)); }

}  // namespace detector::nms_rotated

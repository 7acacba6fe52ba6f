// Which of few boxes of one group are kept: nms_scan_kernel. All pairs are tested at once, as there is memory
// for a bit for each; then one block goes through the bits. Where boxes have groups nms_chunk_kernel takes
// less time: it decides on them side by side.
#pragma once

#include "keep.cuh"

namespace detector::nms {

constexpr int kFewWords = kFew / kWarp;
static_assert(kFewWords % kWarp == 0 && kFewWords % kWords == 0);
static_assert(kScanThreads / kWarp > kWords,
              "a warp decides, and one for each word of a chunk sees to the others");

// Word w <= i / 32 of box i, at w * size + i, gets a bit for each of the boxes from 32 w on that suppresses
// it.
template <typename A>
__device__ void find_all_pairs(const Order<A>& order, A threshold, uint32_t* pairs) {
  __shared__ Box<A> boxes[kTileBoxes];
  __shared__ A areas[kTileBoxes];
  const int first = blockIdx.x * kTileBoxes;
  if (threadIdx.x < kTileBoxes) {
    const int other = first + threadIdx.x;
    const Box<A> box = other < order.size ? order.boxes[other] : no_box<A>();
    boxes[threadIdx.x] = box;
    areas[threadIdx.x] = area(box);
  }
  __syncthreads();
  const int i = blockIdx.y * kTileBoxes + threadIdx.x % kTileBoxes;
  const int word = threadIdx.x / kTileBoxes, begin = first + word * kWarp;
  if (i >= order.size || begin > i) {
    return;
  }
  pairs[begin / kWarp * order.size + i] = find_suppressors(
      boxes + word * kWarp, areas + word * kWarp, order.boxes[i], bits_between(0, i - begin), threshold);
}

// Which boxes are kept, by one block, chunk after chunk. One warp decides on a chunk while the others see to
// what the chunk before suppresses in those after. `alive` and `kept` have a bit for each box, in whole
// chunks.
__device__ inline void suppress_all(const uint32_t* pairs, int size, uint32_t* alive, uint32_t* kept) {
  __shared__ uint32_t own_pairs[2][kWords][kChunk];  // of the boxes of a chunk, for this chunk and the next
  const int lane = lane_of_thread(), num_words = (size + kWarp - 1) / kWarp;
  // For a box of word `of`: its pairs with the chunk that begins with word `first`.
  const auto load = [&](int first, int of, uint32_t (&words)[kWords]) {
    const int i = of * kWarp + lane;
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      words[word] = i < size && first + word <= of ? __ldcg(pairs + int64_t(first + word) * size + i) : 0;
    }
  };
  const auto suppress = [&](int first, int of, const uint32_t (&words)[kWords]) {
    uint32_t hit = 0;
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      hit |= words[word] & kept[first + word];
    }
    const uint32_t left = __ballot_sync(0xffffffffu, hit == 0);
    if (lane == 0) {
      alive[of] &= left;
    }
  };
  const auto load_own = [&](int first, int of) {
    uint32_t words[kWords];
    load(first, of, words);
    for (int word = 0; word < kWords; ++word) {
      own_pairs[first / kWords % 2][word][of % kWords * kWarp + lane] = words[word];
    }
  };
  constexpr int others = kScanThreads / kWarp - 1;  // warps that do not decide
  const int other = warp_of_thread() - 1;           // which of them
  const bool has_near = other >= 0 && other < kWords;
  uint32_t near[kWords] = {};  // pairs of the chunk that is being decided and a word of the next
  if (has_near) {
    load_own(0, other);
  }
  for (int first = 0; first < num_words; first += kWords) {
    if (has_near && first > 0) {
      suppress(first - kWords, first + other, near);
    }
    __syncthreads();
    if (other < 0) {
      const uint32_t own = suppress_in_words(bits_of_lane(alive + first), own_pairs[first / kWords % 2]);
      if (lane < kWords) {
        kept[first + lane] = own;
      }
    } else {
      const int next = first + kWords;
      if (has_near) {
        load_own(next, next + other);
        load(first, next + other, near);
      }
      for (int of = next + other; of < num_words && first > 0; of += 2 * others) {
        uint32_t words[kWords], more[kWords];  // two at a time wait together
        load(first - kWords, of, words);
        load(first - kWords, of + others, more);
        suppress(first - kWords, of, words);
        if (of + others < num_words) {
          suppress(first - kWords, of + others, more);
        }
      }
    }
    __syncthreads();
  }
}

// The mask or the list, and the number of boxes that are kept.
__device__ inline void give(const Answer& answer, const uint32_t* slots, int size, const uint32_t* kept) {
  __shared__ int before[kFewWords];
  if (warp_of_thread() == 0) {
    int sum = 0;
    for (int first = 0; first < kFewWords; first += kWarp) {
      const int word = first + lane_of_thread();
      const int own = __popc(word * kWarp < size ? kept[word] : 0);
      const int up_to = sum + warp_scan(own);
      before[word] = up_to - own;
      sum = __shfl_sync(0xffffffffu, up_to, kWarp - 1);
    }
    if (lane_of_thread() == 0) {
      *answer.count = sum;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < size; i += kScanThreads) {
    const uint32_t word = kept[i / kWarp], bit = 1u << lane_of_thread();
    if (answer.mask) {
      answer.mask[slots[i]] = (word & bit) != 0;
    } else if (word & bit) {
      answer.list[before[i / kWarp] + __popc(word & (bit - 1))] = slots[i];
    }
  }
}

// A block finds the pairs of a tile; the last one to end decides on all.
template <typename A>
__global__ void __launch_bounds__(kScanThreads)
    nms_scan_kernel(Order<A> order, A threshold, uint32_t* pairs, unsigned long long* num_ended,
                    Answer answer) {
  __shared__ uint32_t alive[kFewWords], kept[kFewWords];
  __shared__ bool is_last;
  if (blockIdx.x > blockIdx.y) {  // of boxes after these
    return;
  }
  find_all_pairs(order, threshold, pairs);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(num_ended, 1ull) + 1 == gridDim.y * (gridDim.y + 1) / 2;
  }
  for (int word = threadIdx.x; word < kFewWords; word += kScanThreads) {
    alive[word] = bits_between(0, order.size - word * kWarp);
  }
  __syncthreads();
  if (!is_last) {
    return;
  }
  __threadfence();
  suppress_all(pairs, order.size, alive, kept);
  give(answer, order.slots, order.size, kept);
}

}  // namespace detector::nms

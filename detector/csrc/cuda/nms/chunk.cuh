// A chunk of boxes in shared memory, which of them suppress which, and what chunks tell each other.
#pragma once

#include <cuda/atomic>

#include "../../nms.h"
#include "../../nms_plan.h"
#include "../reduce.cuh"

namespace detector::nms {

constexpr int kWords = kChunk / kWarp;  // bits of a chunk
constexpr int kTile = 2 * kChunk;       // boxes in shared memory
static_assert(kWords <= kWarp, "a lane has a word");
static_assert(kTile <= kChunkThreads, "a thread loads a box");
template <typename A>
constexpr int kUnroll = 32 / sizeof(A);  // tests at a time
static_assert(kTile % (kParts * kUnroll<float>) == 0 && kWarp % kUnroll<float> == 0,
              "so no test is of a box beyond");

// All boxes, group after group, best first.
template <typename A>
struct Order {
  Box<A>* boxes;
  Box<A>* kept;      // those of a chain that are kept, from the chain's place on
  uint32_t* groups;  // where the group of each begins; null where all boxes are of one
  uint32_t* slots;   // where the answer for each box goes
  int64_t size;
};

// Where the answer goes: a mask by index or a list of indices, best first; the other is null.
struct Answer {
  uint8_t* mask;
  int64_t* list;
  unsigned long long* count;  // of boxes that are kept; beside a list it is on the host
};

// What blocks tell each other; starts as zeros.
struct State {
  unsigned long long* count;    // boxes that are kept
  unsigned long long* tickets;  // chunks that have a block; in nms_scan_kernel: blocks that have ended
  uint64_t* progress;           // of the list of the chain that begins in a chunk
  uint64_t* words;              // kWords of each chunk: kDecided and a bit for each box that is kept
};

constexpr uint64_t kDecided = uint64_t(1) << kWarp;

// The progress of a list: the chunk that comes next, above the number of boxes. 2^36 boxes, which would fill
// a terabyte, do not overflow it.
constexpr int kListedBits = 37;
__device__ inline int64_t next_chunk(uint64_t progress) { return progress >> kListedBits; }
__device__ inline int64_t num_listed(uint64_t progress) {
  return progress & ((uint64_t(1) << kListedBits) - 1);
}

using Shared = cuda::atomic_ref<uint64_t, cuda::thread_scope_device>;

// A box that suppresses nothing.
template <typename A>
__device__ Box<A> no_box() {
  return {A(NAN), A(NAN), A(NAN), A(NAN)};
}

// Not from the first cache, which may hold what was there before another block wrote.
__device__ inline Box<float> load_from_l2(const Box<float>* box) {
  const float4 values = __ldcg(reinterpret_cast<const float4*>(box));
  return {values.x, values.y, values.z, values.w};
}
__device__ inline Box<double> load_from_l2(const Box<double>* box) {
  const double2 from = __ldcg(reinterpret_cast<const double2*>(box));
  const double2 to = __ldcg(reinterpret_cast<const double2*>(box) + 1);
  return {from.x, from.y, to.x, to.y};
}

// suppresses() of nms.h, for boxes of positive width and height or no_box(), whose area is NaN, in two steps.
// If the rounded quotient is greater than the threshold then so is the exact one, and the intersection is at
// least the rounded product, as rounding keeps order. So hardly any lane has to divide, and none to branch
// before.
template <typename A>
struct Pair {
  A intersection, both;
  __device__ Pair(const Box<A>& a, A area_a, const Box<A>& b, A area_b) {
    const A width = fmin(a.x2, b.x2) - fmax(a.x1, b.x1), height = fmin(a.y2, b.y2) - fmax(a.y1, b.y1);
    intersection = product(fmax(width, A(0)), height);  // negative where only the height is
    both = area_a + area_b - intersection;
  }
  __device__ bool may_suppress(A threshold) const { return intersection >= product(threshold, both); }
  __device__ bool suppresses(A threshold) const { return intersection / both > threshold; }
};

// Bits begin..end of a word, of those that it has.
__device__ inline uint32_t bits_between(int begin, int end) {
  const auto below = [](int bit) { return bit >= kWarp ? 0xffffffffu : (1u << max(bit, 0)) - 1; };
  return below(end) & ~below(begin);
}

template <typename A>
struct Chunk {
  Box<A> boxes[kTile];  // the chunk before and this one, then stretches of the list
  A areas[kTile];
  uint32_t pairs[2 * kWords][kChunk];  // bits for each box here: which of the boxes before suppress it
  uint32_t heads[kWords];              // bits: first boxes of groups
  uint32_t alive[kWords];              // bits: boxes that nothing in the list suppresses
  uint32_t kept[kWords];               // bits: boxes that are kept
  int64_t index;                       // of the chunk
  int64_t chain;                       // place where its first group begins
  uint64_t progress;                   // of that chain's list

  __device__ void set_box(int i, const Box<A>& box) {
    boxes[i] = box;
    areas[i] = area(box);
  }
  __device__ Pair<A> pair(int other, const Box<A>& box, A area_of_box) const {
    return {boxes[other], areas[other], box, area_of_box};
  }
  // The first box of the group of box i.
  __device__ int group_begin(int i) const {
    int word = i / kWarp;
    uint32_t bits = heads[word] & bits_between(0, i % kWarp + 1);
    while (bits == 0) {  // box 0 counts as a first one
      bits = heads[--word];
    }
    return word * kWarp + 31 - __clz(bits);
  }
  // How many of the boxes begin..end are kept.
  __device__ int num_kept(int begin, int end) const {
    int number = 0;
    for (int word = 0; word < kWords; ++word) {
      number += __popc(kept[word] & bits_between(begin - word * kWarp, end - word * kWarp));
    }
    return number;
  }
};

// Which of kWarp boxes suppress a box: bits, of those that are wanted.
template <typename A>
__device__ uint32_t find_suppressors(const Box<A>* boxes, const A* areas, const Box<A>& box, uint32_t wanted,
                                     A threshold) {
  uint32_t bits = 0;
  if (wanted == 0) {
    return bits;
  }
  const A area_of_box = area(box);
  const auto pair = [&](int bit) { return Pair<A>(boxes[bit], areas[bit], box, area_of_box); };
#pragma unroll kUnroll < A>
  for (int bit = 0; bit < kWarp; ++bit) {
    bits |= uint32_t(pair(bit).may_suppress(threshold)) << bit;
  }
  bits &= wanted;
  for (uint32_t left = bits; left != 0; left &= left - 1) {
    const int bit = __ffs(left) - 1;
    if (!pair(bit).suppresses(threshold)) {
      bits ^= 1u << bit;
    }
  }
  return bits;
}

// The bits of box i for the boxes begin..i, counted from the chunk's first, negative in the chunk before.
template <typename A>
__device__ void find_pairs(Chunk<A>& chunk, int i, int part, int begin, A threshold) {
  for (int word = part; word < 2 * kWords; word += kParts) {
    const int other = word * kWarp, offset = other - kChunk;
    chunk.pairs[word][i] = find_suppressors(chunk.boxes + other, chunk.areas + other, chunk.boxes[kChunk + i],
                                            bits_between(begin - offset, i - offset), threshold);
  }
}

}  // namespace detector::nms

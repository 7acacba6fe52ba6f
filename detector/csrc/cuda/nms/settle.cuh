// Which boxes stay: settle_kernel.
//
// A block takes a chunk of boxes of the order. It computes which of them suppress which, and waits for the
// chunks before it that hold boxes of its first group, a chain: as they are settled, the boxes that stay are
// appended to a list of the chain, and the block tests its own against those. Then it settles its chunk and
// appends in its turn. So a box is tested against those that stay, not against all; chains of different
// groups run side by side; and the memory is linear in the number of boxes.
#pragma once

#include <cuda/atomic>

#include "../../nms.h"
#include "../reduce.cuh"

namespace detector::nms {

constexpr int kChunk = 512;  // boxes, each with its thread
constexpr int kChunkWarps = kChunk / kWarp;
constexpr int kUnroll = 8;  // boxes tested at a time

// All boxes, group after group, best first.
template <typename A>
struct Order {
  Box<A>* boxes;          // those of a chain's boxes that stay gather at the chain's begin, as it is settled
  const int64_t* groups;  // null where all are of one
  int64_t* slots;         // where the answer for each box goes
  int64_t size;
};

// What blocks tell each other; starts as zeros.
struct State {
  unsigned long long* count;    // boxes that stay
  unsigned long long* tickets;  // chunks that have a block
  uint64_t* progress;           // of the chain that begins in a chunk
};

// The progress of a chain: the chunk that it has come to, above the number of its boxes that stay. 2^36
// boxes, which would fill a terabyte, do not overflow it.
constexpr int kKeptBits = 37;
__device__ inline int64_t next_chunk(uint64_t progress) { return progress >> kKeptBits; }
__device__ inline int64_t num_kept(uint64_t progress) { return progress & ((uint64_t(1) << kKeptBits) - 1); }

using Progress = cuda::atomic_ref<uint64_t, cuda::thread_scope_device>;

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

// suppresses() of nms.h for boxes of positive width and height, or no_box(): most pairs are apart. If the
// rounded quotient is greater than the threshold then so is the exact one, and the intersection is at least
// the rounded product, as rounding keeps order: so hardly any lane has to divide.
template <typename A>
__device__ bool overlaps(const Box<A>& a, const Box<A>& b, A threshold) {
  if (!(a.x1 < b.x2 & b.x1 < a.x2 & a.y1 < b.y2 & b.y1 < a.y2)) {
    return false;
  }
  const A intersection = product((a.x2 < b.x2 ? a.x2 : b.x2) - (a.x1 > b.x1 ? a.x1 : b.x1),
                                 (a.y2 < b.y2 ? a.y2 : b.y2) - (a.y1 > b.y1 ? a.y1 : b.y1));
  const A both = area(a) + area(b) - intersection;
  return intersection >= product(threshold, both) && intersection / both > threshold;
}

// The boxes and pairs of a chunk. Row i of `pairs` has a bit for each box before i in the chunk and of its
// group: whether it suppresses i. Only the words up to i's own are there.
template <typename A>
struct Chunk {
  Box<A> boxes[kChunk];
  uint32_t pairs[kChunkWarps * (kChunkWarps + 1) / 2][kWarp];
  uint32_t heads[kChunkWarps];  // bits: first boxes of groups
  uint32_t kept[kChunkWarps];   // bits: boxes that stay
  int64_t index;                // of the chunk
  int64_t chain;                // where its first group begins
  uint64_t progress;            // of that chain

  __device__ uint32_t& pairs_of_thread(int word) {
    return pairs[warp_of_thread() * (warp_of_thread() + 1) / 2 + word][lane_of_thread()];
  }
  // The first box of the group of box i.
  __device__ int group_begin(int i) const {
    int word = i / kWarp;
    uint32_t bits = heads[word] & (0xffffffffu >> (31 - i % kWarp));
    while (bits == 0) {  // box 0 counts as a first one
      bits = heads[--word];
    }
    return word * kWarp + 31 - __clz(bits);
  }
  // The boxes begin..end that stay.
  __device__ int num_kept(int begin, int end) const {
    int number = 0;
    for (int word = begin / kWarp; word * kWarp < end; ++word) {
      const uint32_t from = 0xffffffffu << max(begin - word * kWarp, 0);
      const uint32_t below = end - word * kWarp < kWarp ? (1u << (end - word * kWarp)) - 1 : 0xffffffffu;
      number += __popc(kept[word] & from & below);
    }
    return number;
  }
};

// The first place whose group is that of place `last`.
__device__ inline int64_t find_group(const int64_t* groups, int64_t last) {
  int64_t begin = 0, end = last;  // the answer is in begin..end
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (groups[middle] < groups[last]) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

template <typename A>
__device__ void find_pairs(Chunk<A>& chunk, const Box<A>& box, int group_begin, A threshold) {
  for (int word = group_begin / kWarp; word <= warp_of_thread(); ++word) {
    uint32_t bits = 0;
#pragma unroll kUnroll
    for (int bit = 0; bit < kWarp; ++bit) {
      bits |= uint32_t(overlaps(chunk.boxes[word * kWarp + bit], box, threshold)) << bit;
    }
    const uint32_t before = word == warp_of_thread() ? (1u << lane_of_thread()) - 1 : 0xffffffffu;
    chunk.pairs_of_thread(word) = bits & before & (0xffffffffu << max(group_begin - word * kWarp, 0));
  }
}

// Tests the thread's box against all that stay in the chunks before; returns how many these are. Every
// thread comes here, `alive` or not.
template <typename A>
__device__ int64_t follow_chain(Chunk<A>& chunk, const Order<A>& order, uint64_t* progress, const Box<A>& box,
                                A threshold, bool& alive) {
  int64_t seen = 0;
  uint64_t now;
  do {
    if (threadIdx.x == 0) {
      Progress chain(progress[chunk.chain / kChunk]);
      do {
        now = chain.load(cuda::memory_order_acquire);
      } while (num_kept(now) == seen && next_chunk(now) != chunk.index);
      chunk.progress = now;
    }
    __syncthreads();
    now = chunk.progress;
    while (seen < num_kept(now)) {
      const int size = min(num_kept(now) - seen, int64_t(kChunk));
      const Box<A>* source = order.boxes + chunk.chain + seen + threadIdx.x;
      chunk.boxes[threadIdx.x] = threadIdx.x < size ? load_from_l2(source) : no_box<A>();
      __syncthreads();
      for (int i = 0; i < size && alive; i += kUnroll) {
        bool suppressed = false;
#pragma unroll
        for (int k = 0; k < kUnroll; ++k) {
          suppressed |= overlaps(chunk.boxes[i + k], box, threshold);
        }
        alive = !suppressed;
      }
      seen += size;
      __syncthreads();  // chunk.boxes and chunk.progress are free again
    }
  } while (next_chunk(now) != chunk.index);
  return seen;
}

// Of the alive boxes of a warp those that stay: all that none of the open ones before can suppress stay at
// once, and what they suppress is closed. At least the first open one is settled in a round.
__device__ inline uint32_t settle_warp(bool alive, uint32_t pairs) {
  uint32_t kept = 0, open = __ballot_sync(0xffffffffu, alive);
  while (open != 0) {
    kept |= __ballot_sync(0xffffffffu, alive && (pairs & (open | kept)) == 0);
    alive = alive && (pairs & kept) == 0;
    open = __ballot_sync(0xffffffffu, alive) & ~kept;
  }
  return kept;
}

template <typename A>
__global__ void __launch_bounds__(kChunk)
    settle_kernel(Order<A> order, A threshold, State state, uint8_t* kept_of_slot) {
  __shared__ Chunk<A> chunk;
  if (threadIdx.x == 0) {
    chunk.index = atomicAdd(state.tickets, 1ull);  // in order, so that no block waits for one not yet running
  }
  __syncthreads();
  const int64_t first = chunk.index * kChunk, place = first + threadIdx.x;
  const int size = min(order.size - first, int64_t(kChunk));
  const bool valid = threadIdx.x < size;
  const Box<A> box = valid ? order.boxes[place] : no_box<A>();
  chunk.boxes[threadIdx.x] = box;
  const bool differs = order.groups && valid && place > 0 && order.groups[place] != order.groups[place - 1];
  const uint32_t heads = __ballot_sync(0xffffffffu, differs || threadIdx.x == 0);
  if (lane_of_thread() == 0) {
    chunk.heads[warp_of_thread()] = heads;
  }
  if (threadIdx.x == 0) {
    chunk.chain = differs ? first : order.groups ? find_group(order.groups, first) : 0;
  }
  __syncthreads();
  const int group_begin = chunk.group_begin(threadIdx.x), last_group = chunk.group_begin(size - 1);
  find_pairs(chunk, box, group_begin, threshold);
  __syncthreads();  // chunk.boxes are free

  bool alive = valid;
  int64_t kept_before = 0;
  if (chunk.chain < first) {
    bool in_chain = alive && group_begin == 0;
    const bool in_none = alive && group_begin > 0;
    kept_before = follow_chain(chunk, order, state.progress, box, threshold, in_chain);
    alive = in_chain || in_none;
  }
  for (int word = 0; word < kChunkWarps; ++word) {
    if (word == warp_of_thread()) {
      const uint32_t kept = settle_warp(alive, alive ? chunk.pairs_of_thread(word) : 0);
      if (lane_of_thread() == 0) {
        chunk.kept[word] = kept;
      }
    }
    __syncthreads();
    if (word < warp_of_thread() && word >= group_begin / kWarp) {
      alive = alive && (chunk.pairs_of_thread(word) & chunk.kept[word]) == 0;
    }
  }

  const bool kept = chunk.kept[warp_of_thread()] >> lane_of_thread() & 1;
  const int64_t chain = last_group == 0 ? chunk.chain : first + last_group;
  kept_before = last_group == 0 ? kept_before : 0;
  if (kept && group_begin == last_group) {
    order.boxes[chain + kept_before + chunk.num_kept(last_group, threadIdx.x)] = box;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    const uint64_t kept_now = kept_before + chunk.num_kept(last_group, size);
    Progress(state.progress[chain / kChunk])
        .store(uint64_t(chunk.index + 1) << kKeptBits | kept_now, cuda::memory_order_release);
    atomicAdd(state.count, static_cast<unsigned long long>(chunk.num_kept(0, size)));
  }
  if (valid) {
    kept_of_slot[order.slots[place]] = kept;
  }
}

}  // namespace detector::nms

// Which boxes stay: settle_kernel.
//
// A block takes a chunk of boxes of the order. What may suppress them are earlier boxes of the chunk, which
// it tests, and boxes of chunks before that hold the same group, a chain. Those of the chunk right before it
// tests too, all of them while it waits, so that in the end their fate is bits; of the others, those that
// stay, which gather in a list of the chain as it is settled. So the number of tests is that of boxes by
// boxes that stay, the memory is linear, chains of different groups run side by side, and from one chunk of a
// chain to the next it takes one warp, which reads bits, settles its chunk and writes bits.
#pragma once

#include <cuda/atomic>

#include "../../nms.h"
#include "../reduce.cuh"

namespace detector::nms {

constexpr int kChunk = 256;  // boxes
constexpr int kParts = 4;    // threads of a box, each with a part of what it is tested against
constexpr int kSettleThreads = kChunk * kParts;
constexpr int kWords = kChunk / kWarp;  // bits of a chunk
constexpr int kTile = 2 * kChunk;       // boxes in shared memory
template <typename A>
constexpr int kUnroll = 32 / sizeof(A);  // tests at a time

// All boxes, group after group, best first.
template <typename A>
struct Order {
  Box<A>* boxes;
  Box<A>* kept;           // those of a chain that stay, from the chain's place on
  const int64_t* groups;  // null where all are of one
  int64_t* slots;         // where the answer for each box goes
  int64_t size;
};

// What blocks tell each other; starts as zeros.
struct State {
  unsigned long long* count;    // boxes that stay
  unsigned long long* tickets;  // chunks that have a block
  uint64_t* progress;           // of the list of the chain that begins in a chunk
  uint64_t* words;              // kWords of each chunk: kSettled and a bit for each box that stays
};

constexpr uint64_t kSettled = uint64_t(1) << kWarp;

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
  uint32_t kept[kWords];               // bits: boxes that stay
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
  // How many of the boxes begin..end stay.
  __device__ int num_kept(int begin, int end) const {
    int number = 0;
    for (int word = 0; word < kWords; ++word) {
      number += __popc(kept[word] & bits_between(begin - word * kWarp, end - word * kWarp));
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

// The bits of box i for the boxes begin..i, counted from the chunk's first, negative in the chunk before.
template <typename A>
__device__ void find_pairs(Chunk<A>& chunk, int i, int part, int begin, A threshold) {
  const Box<A> box = chunk.boxes[kChunk + i];
  const A area_of_box = chunk.areas[kChunk + i];
  for (int word = part; word < 2 * kWords; word += kParts) {
    const int offset = word * kWarp - kChunk;
    const uint32_t wanted = bits_between(begin - offset, i - offset);
    uint32_t bits = 0;
    if (wanted != 0) {
#pragma unroll kUnroll < A>
      for (int bit = 0; bit < kWarp; ++bit) {
        const auto pair = chunk.pair(word * kWarp + bit, box, area_of_box);
        bits |= uint32_t(pair.may_suppress(threshold)) << bit;
      }
    }
    bits &= wanted;
    for (uint32_t left = bits; left != 0; left &= left - 1) {
      const int bit = __ffs(left) - 1;
      if (!chunk.pair(word * kWarp + bit, box, area_of_box).suppresses(threshold)) {
        bits ^= 1u << bit;
      }
    }
    chunk.pairs[word][i] = bits;
  }
}

// Waits until the list of the chunk's chain has all before chunk `next`, or more than `most`. For one thread.
template <typename A>
__device__ void await_list(Chunk<A>& chunk, uint64_t* progress, int64_t next, int64_t most) {
  Shared shared(progress[chunk.chain / kChunk]);
  do {
    chunk.progress = shared.load(cuda::memory_order_acquire);
  } while (next_chunk(chunk.progress) < next && num_listed(chunk.progress) <= most);
}

// Whether no box in the list of the chain suppresses this one, as far as this part of the list says. Of the
// chunk before the list may be without. Every thread comes here, `alive` or not.
template <typename A>
__device__ bool follow_list(Chunk<A>& chunk, const Order<A>& order, uint64_t* progress, const Box<A>& box,
                            int part, A threshold, bool alive) {
  const A area_of_box = area(box);
  int64_t seen = 0;
  uint64_t now;
  do {
    if (threadIdx.x == 0) {
      await_list(chunk, progress, chunk.index - 1, seen);
    }
    __syncthreads();
    now = chunk.progress;
    while (seen < num_listed(now)) {
      const int size = min(num_listed(now) - seen, int64_t(kTile));
      if (threadIdx.x < kTile) {
        const Box<A>* source = order.kept + chunk.chain + seen + threadIdx.x;
        chunk.set_box(threadIdx.x, threadIdx.x < size ? load_from_l2(source) : no_box<A>());
      }
      __syncthreads();
      for (int i = part; i < size && alive; i += kParts * kUnroll<A>) {
        bool near = false;
#pragma unroll
        for (int k = 0; k < kUnroll<A>; ++k) {
          near |= chunk.pair(i + k * kParts, box, area_of_box).may_suppress(threshold);
        }
        for (int k = 0; k < kUnroll<A> && near && alive; ++k) {
          const auto pair = chunk.pair(i + k * kParts, box, area_of_box);
          alive = !(pair.may_suppress(threshold) && pair.suppresses(threshold));
        }
      }
      seen += size;
      __syncthreads();  // chunk.boxes and chunk.progress are free again
    }
  } while (next_chunk(now) < chunk.index - 1);
  return alive;
}

// Of the alive boxes of a word those that stay: all that none of the open ones before can suppress stay at
// once, and what they suppress is closed. At least the first open one is settled in a round.
__device__ inline uint32_t settle_word(bool alive, uint32_t pairs) {
  uint32_t kept = 0, open = __ballot_sync(0xffffffffu, alive);
  while (open != 0) {
    kept |= __ballot_sync(0xffffffffu, alive && (pairs & (open | kept)) == 0);
    alive = alive && (pairs & kept) == 0;
    open = __ballot_sync(0xffffffffu, alive) & ~kept;
  }
  return kept;
}

// By one warp: which of chunk.alive stay, into chunk.kept. A lane has a box of each word. `before`, of lane
// i, is word i of the chunk before.
template <typename A>
__device__ void settle_chunk(Chunk<A>& chunk, uint32_t before) {
  const int lane = lane_of_thread();
  uint32_t alive = 0;  // bits: the lane's boxes
  for (int word = 0; word < kWords; ++word) {
    alive |= (chunk.alive[word] >> lane & 1) << word;
  }
#pragma unroll
  for (int word = 0; word < kWords; ++word) {
    const uint32_t kept = __shfl_sync(0xffffffffu, before, word);
#pragma unroll
    for (int own = 0; own < kWords; ++own) {
      alive &= ~(uint32_t((chunk.pairs[word][own * kWarp + lane] & kept) != 0) << own);
    }
  }
  uint32_t kept_of_lane = 0;
#pragma unroll
  for (int word = 0; word < kWords; ++word) {
    const uint32_t kept = settle_word(alive >> word & 1, chunk.pairs[kWords + word][word * kWarp + lane]);
#pragma unroll
    for (int later = word + 1; later < kWords; ++later) {
      alive &= ~(uint32_t((chunk.pairs[kWords + word][later * kWarp + lane] & kept) != 0) << later);
    }
    kept_of_lane = lane == word ? kept : kept_of_lane;
  }
  if (lane < kWords) {
    chunk.kept[lane] |= kept_of_lane;
  }
}

// The word of the chunk before, which is awaited, for each lane below kWords.
__device__ inline uint32_t await_word(uint64_t* words_of_chunk) {
  uint64_t word = 0;
  if (lane_of_thread() < kWords) {
    Shared shared(words_of_chunk[lane_of_thread()]);
    do {
      word = shared.load(cuda::memory_order_relaxed);
    } while (word < kSettled);
  }
  __syncwarp();
  return static_cast<uint32_t>(word);
}

// What a thread has in hand.
template <typename A>
struct Own {
  Box<A> box;
  int i, part;      // its box's number in the chunk; which of the box's threads it is
  int group_begin;  // first box of the box's group
  int last_group;   // first box of the chunk's last group
  int size;         // of the chunk
};

// Settles the boxes that are `alive`. If the chunk's last group is among them, also tells the next chunk of
// it: by words, then by the list. Groups that begin in the chunk wait for nothing; the first may go on from
// another.
template <typename A>
__device__ void settle(Chunk<A>& chunk, const Order<A>& order, const State& state, const Own<A>& own,
                       bool alive, bool after_another, bool last_is_among) {
  if (threadIdx.x < kWords) {
    chunk.alive[threadIdx.x] = 0xffffffffu;
  }
  __syncthreads();
  const uint32_t alive_of_warp = __ballot_sync(0xffffffffu, alive);
  if (lane_of_thread() == 0) {
    atomicAnd(&chunk.alive[own.i / kWarp], alive_of_warp);
  }
  __syncthreads();
  if (warp_of_thread() == 0) {
    settle_chunk(chunk, after_another ? await_word(state.words + (chunk.index - 1) * kWords) : 0);
    __syncwarp();
    if (last_is_among && lane_of_thread() < kWords) {
      Shared(state.words[chunk.index * kWords + lane_of_thread()])
          .store(kSettled | chunk.kept[lane_of_thread()], cuda::memory_order_relaxed);
    }
    if (last_is_among && after_another && threadIdx.x == 0) {
      await_list(chunk, state.progress, chunk.index, INT64_MAX);
    }
  }
  __syncthreads();
  if (!last_is_among) {
    return;
  }
  const int64_t listed = after_another ? num_listed(chunk.progress) : 0;
  const int64_t chain = after_another ? chunk.chain : chunk.index * kChunk + own.last_group;
  const bool kept = chunk.kept[own.i / kWarp] >> lane_of_thread() & 1;
  if (own.part == 0 && kept && own.group_begin == own.last_group) {
    order.kept[chain + listed + chunk.num_kept(own.last_group, own.i)] = own.box;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    const uint64_t listed_now = listed + chunk.num_kept(own.last_group, own.size);
    Shared(state.progress[chain / kChunk])
        .store(uint64_t(chunk.index + 1) << kListedBits | listed_now, cuda::memory_order_release);
  }
}

template <typename A>
__global__ void __launch_bounds__(kSettleThreads)
    settle_kernel(Order<A> order, A threshold, State state, uint8_t* kept_of_slot) {
  __shared__ Chunk<A> chunk;
  if (threadIdx.x == 0) {
    chunk.index = atomicAdd(state.tickets, 1ull);  // in order, so that no block waits for one not yet running
  }
  __syncthreads();
  const int i = threadIdx.x % kChunk, part = threadIdx.x / kChunk;
  const int64_t first = chunk.index * kChunk, place = first + i;
  const int size = min(order.size - first, int64_t(kChunk));
  const bool valid = i < size;
  const Box<A> box = valid ? order.boxes[place] : no_box<A>();
  if (part == 0) {
    chunk.set_box(kChunk + i, box);
    const bool differs = order.groups && valid && place > 0 && order.groups[place] != order.groups[place - 1];
    const uint32_t heads = __ballot_sync(0xffffffffu, differs || i == 0);
    if (lane_of_thread() == 0) {
      chunk.heads[i / kWarp] = heads;
      chunk.kept[i / kWarp] = 0;
    }
    if (i == 0) {
      chunk.chain = differs ? first : order.groups ? find_group(order.groups, first) : 0;
    }
  } else if (part == 1) {
    chunk.set_box(i, first > 0 ? order.boxes[place - kChunk] : no_box<A>());
  }
  __syncthreads();
  const Own<A> own{box, i, part, chunk.group_begin(i), chunk.group_begin(size - 1), size};
  const bool after_another = chunk.chain < first;
  const bool in_chain = after_another && own.group_begin == 0;
  const int chain_begin = max(chunk.chain - first, -int64_t(kChunk));
  find_pairs(chunk, i, part, in_chain ? chain_begin : own.group_begin, threshold);
  __syncthreads();  // chunk.boxes are free

  if (!after_another || own.last_group > 0) {
    settle(chunk, order, state, own, valid && !in_chain, false, true);
  }
  if (after_another) {
    bool alive = valid && in_chain;
    if (chunk.chain < first - kChunk) {
      alive = follow_list(chunk, order, state.progress, box, part, threshold, alive);
    }
    settle(chunk, order, state, own, alive, true, own.last_group == 0);
  }
  if (part == 0 && valid) {
    kept_of_slot[order.slots[place]] = chunk.kept[i / kWarp] >> lane_of_thread() & 1;
  }
  if (threadIdx.x == 0) {
    atomicAdd(state.count, static_cast<unsigned long long>(chunk.num_kept(0, size)));
  }
}

}  // namespace detector::nms

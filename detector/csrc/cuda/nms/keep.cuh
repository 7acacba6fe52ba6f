// Which boxes are kept: nms_chunk_kernel.
//
// A block takes a chunk of the order. Its boxes may be suppressed by earlier ones of the chunk and of chunks
// before that hold the same group: a chain. The block tests its boxes against all of its own and of the chunk
// right before, whatever their fate, while it waits; of the chunks before that, only against those that are
// kept, which gather in a list as the chain is decided. What is left to do once the chunk before is decided
// is one warp's work on bits. So the time of a test is rarely waited for, the number of tests is that of
// boxes by boxes that are kept, memory is linear, and the chains of different groups run side by side.
#pragma once

#include "chunk.cuh"

namespace detector::nms {

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

// Of the alive boxes of a word those that are kept: all that none of the open ones before can suppress are,
// at once, and what they suppress is closed. At least the first open one is decided in a round.
__device__ inline uint32_t suppress_in_word(bool alive, uint32_t pairs) {
  uint32_t kept = 0, open = __ballot_sync(0xffffffffu, alive);
  while (open != 0) {
    kept |= __ballot_sync(0xffffffffu, alive && (pairs & (open | kept)) == 0);
    alive = alive && (pairs & kept) == 0;
    open = __ballot_sync(0xffffffffu, alive) & ~kept;
  }
  return kept;
}

// By one warp: which of the boxes of a chunk are kept. A lane has a box of each word, `alive` a bit for each
// of these; lane i gets word i of the boxes that are kept.
__device__ inline uint32_t suppress_in_words(uint32_t alive, const uint32_t (*pairs)[kChunk]) {
  uint32_t kept_of_lane = 0;
#pragma unroll
  for (int word = 0; word < kWords; ++word) {
    const uint32_t kept = suppress_in_word(alive >> word & 1, pairs[word][word * kWarp + lane_of_thread()]);
#pragma unroll
    for (int later = word + 1; later < kWords; ++later) {
      alive &= ~(uint32_t((pairs[word][later * kWarp + lane_of_thread()] & kept) != 0) << later);
    }
    kept_of_lane = lane_of_thread() == word ? kept : kept_of_lane;
  }
  return kept_of_lane;
}

// The lane's bits of kWords words, one below the other.
__device__ inline uint32_t bits_of_lane(const uint32_t* words) {
  uint32_t bits = 0;
  for (int word = 0; word < kWords; ++word) {
    bits |= (words[word] >> lane_of_thread() & 1) << word;
  }
  return bits;
}

// By one warp: which of chunk.alive are kept, into chunk.kept. `before`, of lane i, is word i of the chunk
// before.
template <typename A>
__device__ void suppress_in_chunk(Chunk<A>& chunk, uint32_t before) {
  const int lane = lane_of_thread();
  uint32_t alive = bits_of_lane(chunk.alive);
#pragma unroll
  for (int word = 0; word < kWords; ++word) {
    const uint32_t kept = __shfl_sync(0xffffffffu, before, word);
#pragma unroll
    for (int own = 0; own < kWords; ++own) {
      alive &= ~(uint32_t((chunk.pairs[word][own * kWarp + lane] & kept) != 0) << own);
    }
  }
  const uint32_t kept_of_lane = suppress_in_words(alive, chunk.pairs + kWords);
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
    } while (word < kDecided);
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

// Decides on the boxes that are `alive`. If the chunk's last group is among them, also tells the next chunk
// of it: by words, then by the list. Groups that begin in the chunk wait for nothing; the first may go on
// from another.
template <typename A>
__device__ void suppress(Chunk<A>& chunk, const Order<A>& order, const State& state, const Own<A>& own,
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
    suppress_in_chunk(chunk, after_another ? await_word(state.words + (chunk.index - 1) * kWords) : 0);
    __syncwarp();
    if (last_is_among && lane_of_thread() < kWords) {
      Shared(state.words[chunk.index * kWords + lane_of_thread()])
          .store(kDecided | chunk.kept[lane_of_thread()], cuda::memory_order_relaxed);
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
__global__ void __launch_bounds__(kChunkThreads)
    nms_chunk_kernel(Order<A> order, A threshold, State state, uint8_t* kept_of_slot) {
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
    const bool begins = order.groups && valid && order.groups[place] == place;
    const uint32_t heads = __ballot_sync(0xffffffffu, begins || i == 0);
    if (lane_of_thread() == 0) {
      chunk.heads[i / kWarp] = heads;
      chunk.kept[i / kWarp] = 0;
    }
    if (i == 0) {
      chunk.chain = order.groups ? order.groups[first] : 0;
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
    suppress(chunk, order, state, own, valid && !in_chain, false, true);
  }
  if (after_another) {
    bool alive = valid && in_chain;
    if (chunk.chain < first - kChunk) {
      alive = follow_list(chunk, order, state.progress, box, part, threshold, alive);
    }
    suppress(chunk, order, state, own, alive, true, own.last_group == 0);
  }
  if (part == 0 && valid) {
    kept_of_slot[order.slots[place]] = chunk.kept[i / kWarp] >> lane_of_thread() & 1;
  }
  if (threadIdx.x == 0) {
    atomicAdd(state.count, static_cast<unsigned long long>(chunk.num_kept(0, size)));
  }
}

}  // namespace detector::nms

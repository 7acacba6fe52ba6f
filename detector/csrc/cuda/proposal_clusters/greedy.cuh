// The greedy choice among the nodes, many winners at a time. A warp works on a node, each lane on a word of
// its neighbours.
#pragma once

#include "block.cuh"
#include "pool.cuh"

namespace detector::proposal_clusters {

// Calls body(row) for each remaining node, by all lanes of one warp.
template <typename Body>
__device__ void for_each_node(const uint64_t* remaining, int32_t words, const Body& body) {
  for (int32_t quarter = warp_of_thread(); quarter < words * 4; quarter += kWarp) {
    const int32_t first = quarter * 16;
    for (unsigned left = remaining[first / 64] >> (first % 64) & 0xffff; left != 0; left &= left - 1) {
      body(first + __ffs(left) - 1);
    }
  }
}

// Calls body(word, bits) for the remaining neighbours of a row.
template <typename B, typename T, typename Body>
__device__ void for_neighbours(const Pool<B, T>& pool, int32_t row, const Body& body) {
  for (int32_t word = lane_of_thread(); word < pool.graph.words; word += kWarp) {
    body(word, pool.graph.neighbours(row, word, pool.work.remaining[word]));
  }
}

template <typename B, typename T>
__device__ uint32_t degree(const Pool<B, T>& pool, int32_t row) {
  uint32_t count = 0;
  for_neighbours(pool, row, [&](int32_t, uint64_t bits) { count += __popcll(bits); });
  return warp_sum(count);
}

template <typename B, typename T>
__device__ uint32_t highest_key(const Pool<B, T>& pool, int32_t row, const uint32_t* keys) {
  uint32_t highest = 0;
  for_neighbours(pool, row, [&](int32_t word, uint64_t bits) {
    for (; bits != 0; bits &= bits - 1) {
      highest = max(highest, keys[word * 64 + __ffsll(bits) - 1]);
    }
  });
  return warp_max(highest);
}

template <typename B, typename T>
__device__ double best_score(const Pool<B, T>& pool, int32_t row) {
  double best = 0;
  for_neighbours(pool, row, [&](int32_t word, uint64_t bits) {
    for (; bits != 0; bits &= bits - 1) {
      best = fmax(best, double(pool.scores[word * 64 + __ffsll(bits) - 1]));
    }
  });
  return warp_reduce(best, Max{});
}

template <typename B, typename T>
__device__ void remove_neighbours(const Pool<B, T>& pool, int32_t row) {
  for (int32_t word = lane_of_thread(); word < pool.graph.words; word += kWarp) {
    const int32_t rows = min(64, pool.num_rows - word * 64);
    const uint64_t gone = pool.graph.neighbours(row, word, ~uint64_t(0) >> (64 - rows));
    atomicAnd(reinterpret_cast<unsigned long long*>(pool.work.remaining + word), ~gone);
  }
}

template <typename B, typename T>
__device__ int32_t row_of_key(const Pool<B, T>& pool, uint32_t key) {
  return pool.options.method == Method::pcl ? 65535 - (key & 0xffff) : pool.order[key - 1];
}

// One after another the node of the highest key wins, and its neighbours go with it, until no nodes remain.
// Here they win in rounds: a node wins if its key is the highest among the nodes whose win could change its
// key or its neighbours, since it will win whatever happens elsewhere. For MIST those are its neighbours; for
// PCL, where keys hold degrees, their neighbours too. As degrees only fall, the order of the keys is that of
// the wins.
//
// Leaves work.found and work.weight: the best score of a PCL winner and its neighbours, a MIST winner's own.
template <typename B, typename T>
__device__ void find_winners(const Pool<B, T>& pool) {
  const Work& work = pool.work;
  const int32_t words = pool.graph.words;
  const bool pcl = pool.options.method == Method::pcl;
  for (int32_t before = 0;;) {
    bool any = false;
    for (int32_t word = threadIdx.x; word < words; word += kThreads) {
      any = any || work.remaining[word] != 0;
    }
    if (!__syncthreads_or(any)) {
      return;
    }
    if (pcl) {
      for_each_node(work.remaining, words, [&](int32_t row) {
        const uint32_t key = degree(pool, row) << 16 | (65535 - row);
        if (lane_of_thread() == 0) {
          work.key[row] = key;
        }
      });
      __syncthreads();
    }
    for_each_node(work.remaining, words, [&](int32_t row) {
      const uint32_t key = highest_key(pool, row, work.key);
      if (lane_of_thread() == 0) {
        work.nearby[row] = key;
      }
    });
    __syncthreads();
    for_each_node(work.remaining, words, [&](int32_t row) {
      const uint32_t key = work.key[row];
      if (work.nearby[row] == key && (!pcl || highest_key(pool, row, work.nearby) == key) &&
          lane_of_thread() == 0) {
        work.found[atomicAdd(work.num_found, 1)] = key;  // in any order: the keys, which differ, decide
      }
    });
    __syncthreads();
    const int32_t after = *work.num_found;
    for (int32_t slot = before + warp_of_thread(); slot < after; slot += kWarp) {
      const int32_t row = row_of_key(pool, work.found[slot]);
      const double weight = pcl ? best_score(pool, row) : double(pool.scores[row]);
      if (lane_of_thread() == 0) {
        work.weight[slot] = weight;
      }
    }
    __syncthreads();  // all winners of the round have seen their neighbours
    for (int32_t slot = before + warp_of_thread(); slot < after; slot += kWarp) {
      remove_neighbours(pool, row_of_key(pool, work.found[slot]));
    }
    __syncthreads();
    before = after;
  }
}

}  // namespace detector::proposal_clusters

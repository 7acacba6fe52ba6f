// The centers of one class, by each method.
#pragma once

#include "greedy.cuh"
#include "top_ranking.cuh"

namespace detector::proposal_clusters {

struct Best {
  double weight;
  uint32_t key;
  int32_t index;
};

__device__ inline Best better(const Best& a, const Best& b) {
  return a.weight > b.weight || (a.weight == b.weight && a.key > b.key) ? a : b;
}

// Makes the graph of the listed nodes and finds the winners; returns how many, to the first block, which has
// them in nodes.found().
template <typename B, typename T>
__device__ int32_t find_winners_of(const Pool<B, T>& pool, const Nodes<B>& nodes, const Options& options) {
  const Sets sets = pool.work.sets;
  __syncthreads();  // the nodes are listed
  for (int32_t node = threadIdx.x; node < num_words(nodes.size) * kWarp; node += kThreads) {
    const uint32_t exist = __ballot_sync(kAllLanes, node < nodes.size);
    if (lane_of_thread() == 0) {
      sets.remaining()[node / kWarp] = exist;
      for (int32_t rank = 0; rank < pool.work.team.size; ++rank) {
        sets.going(rank)[node / kWarp] = 0;
      }
    }
    if (node < nodes.size) {
      const int32_t row = nodes.row()[node];
      nodes.box()[node] = box_at(pool.boxes, row);
      nodes.weight()[node] = pool.scores[row];
      nodes.key()[node] = 65535 - node;
      nodes.found()[node] = 0;
    }
  }
  pool.work.team.sync();  // no block reads its 3-means any more
  const Graph<B> graph{pool.work.space.bits_for(nodes, pool.work.team), nodes, pool.work.team,
                       Overlap<B>(static_cast<B>(options.edge_iou))};
  if (graph.bits != nullptr) {
    connect(graph);
  }
  find_winners(graph, sets, options.method == Method::pcl);
  return pool.work.team.rank == 0 ? list_winners(nodes) : 0;
}

// The highest key of the winners, by one warp, that the greedy choice does not come to, since max_centers
// nodes or fewer remain by then; 0 if there are none. The upper half of a key counts the nodes that went with
// it.
template <typename B>
__device__ uint32_t highest_dropped(const Nodes<B>& nodes, int32_t found, int64_t max_centers) {
  uint32_t first = 0;  // the key of the winner that is always kept
  for (int32_t i = lane_of_thread(); i < found; i += kWarp) {
    first = max(first, nodes.found()[i]);
  }
  first = warp_reduce(first, Max{});
  uint32_t dropped = 0;
  for (int64_t remaining = 0;;) {
    uint32_t last = first;
    for (int32_t i = lane_of_thread(); i < found; i += kWarp) {
      const uint32_t key = nodes.found()[i];
      last = key > dropped ? min(last, key) : last;
    }
    last = ~warp_reduce(~last, Max{});
    remaining += last >> 16;
    if (last == first || remaining > max_centers) {
      return dropped;
    }
    dropped = last;
  }
}

// Each chooser calls choose(n, row, weight) for its n-th center, n from 0, in the first block, and returns
// the number of centers to that block's thread 0.

// PCL: the max_centers winners of most weight, which is the best score of the nodes that went with them. Of
// equals the first to win goes first.
template <typename B, typename T, typename Choose>
__device__ int32_t choose_best(const Pool<B, T>& pool, const Options& options, const Choose& choose) {
  const Nodes<B> nodes = take_top_cluster(pool);
  const int32_t found = find_winners_of(pool, nodes, options);
  if (pool.work.team.rank != 0) {
    return 0;
  }
  __shared__ uint32_t dropped;
  if (warp_of_thread() == 0) {
    const uint32_t key = highest_dropped(nodes, found, options.max_centers);
    if (lane_of_thread() == 0) {
      dropped = key;
    }
  }
  __syncthreads();
  for (int32_t n = 0; n < options.max_centers; ++n) {
    Best best{0, 0, -1};
    for (int32_t i = threadIdx.x; i < found; i += kThreads) {
      if (const uint32_t key = nodes.found()[i]; key > dropped) {
        best = better(best, Best{nodes.weight()[node_of_key(key)], key, i});
      }
    }
    best = block_best(best);
    if (best.index < 0) {
      return n;
    }
    if (threadIdx.x == 0) {
      choose(n, nodes.row()[node_of_key(best.key)], best.weight);
      nodes.found()[best.index] = 0;
    }
    __syncthreads();
  }
  return options.max_centers;
}

// MIST: all winners, best first. A winner's weight is its score.
template <typename B, typename T, typename Choose>
__device__ int32_t choose_all(const Pool<B, T>& pool, const Options& options, const Choose& choose) {
  const Nodes<B> nodes = take_top_share(pool, options.top_share);
  const int32_t found = find_winners_of(pool, nodes, options);
  if (pool.work.team.rank != 0) {
    return 0;
  }
  for (int32_t i = threadIdx.x; i < found; i += kThreads) {
    int32_t n = 0;
    for (int32_t other = 0; other < found; ++other) {
      n += nodes.found()[other] > nodes.found()[i];
    }
    const int32_t node = node_of_key(nodes.found()[i]);
    choose(n, nodes.row()[node], nodes.weight()[node]);
  }
  return found;
}

// OICR: the best row of the pool, the first of equals; by a block alone.
template <typename B, typename T, typename Choose>
__device__ int32_t choose_one(const Pool<B, T>& pool, const Choose& choose) {
  Best best{0, 0, -1};
  for (int32_t row = threadIdx.x; row < pool.num_rows; row += kThreads) {
    if (!has_bit(pool.work.sets.chosen(), row)) {
      best = better(best, Best{double(pool.scores[row]), ~uint32_t(row), row});
    }
  }
  best = block_best(best);
  if (threadIdx.x == 0) {
    choose(0, best.index, best.weight);
  }
  return 1;
}

}  // namespace detector::proposal_clusters

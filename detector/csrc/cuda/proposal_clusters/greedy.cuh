// The greedy choice among the nodes, many winners at a time; a thread looks after a node, a warp after a word
// of them.
#pragma once

#include "graph.cuh"

namespace detector::proposal_clusters {

// Calls body(word, node, remains) for the nodes of a warp, by all its lanes.
template <typename B, typename Body>
__device__ void for_each_node(Work<B> work, int32_t num_nodes, const Body& body) {
  for (int32_t word = warp_of_thread(); word < num_words(num_nodes); word += kWarps) {
    body(word, word * kWarp + lane_of_thread(), bool(work.remaining()[word] >> lane_of_thread() & 1));
  }
}

template <typename B>
__device__ uint32_t highest_near(Work<B> work, const Graph<B>& graph, int32_t node, const uint32_t* keys) {
  uint32_t highest = 0;
  graph.for_neighbours(node, work.remaining(), [&](int32_t word, uint32_t bits) {
    for (; bits != 0; bits &= bits - 1) {
      highest = max(highest, keys[word * 32 + __ffs(bits) - 1]);
    }
  });
  return highest;
}

__device__ inline int32_t node_of_key(uint32_t key) { return 65535 - (key & 0xffff); }

// One after another the node of the highest key wins, and its neighbours go with it, until no nodes remain.
// Here they win in rounds: a node wins if its key is the highest among the nodes whose win could change its
// key or its neighbours, since it will win whatever happens elsewhere. For MIST those are its neighbours; for
// PCL, where keys hold degrees, their neighbours too. As degrees only fall, the order of the keys is that of
// the wins.
//
// Leaves work.found(), the keys of the winners, and work.owner(); returns how many won.
template <typename B>
__device__ __noinline__ int32_t find_winners(Work<B> work, const Graph<B>& graph, bool pcl) {
  const int32_t num_nodes = graph.num_nodes, lane = lane_of_thread();
  for (int32_t word = warp_of_thread(); word < num_words(num_nodes); word += kWarps) {
    const int32_t node = word * kWarp + lane;
    const uint32_t exist = __ballot_sync(kAllLanes, node < num_nodes);
    if (lane == 0) {
      work.remaining()[word] = exist;
    }
    if (node < num_nodes) {
      work.key()[node] = 65535 - node;
    }
  }
  if (threadIdx.x == 0) {
    *work.num_found() = 0;
  }
  graph.connect();
  __syncthreads();
  for (;;) {
    bool any = false;
    for_each_node(work, num_nodes, [&](int32_t, int32_t node, bool remains) {
      any = any || remains;
      if (pcl && remains) {
        uint32_t degree = 0;
        graph.for_neighbours(node, work.remaining(), [&](int32_t, uint32_t bits) { degree += __popc(bits); });
        work.key()[node] = degree << 16 | (65535 - node);
      }
    });
    if (!__syncthreads_or(any)) {
      return *work.num_found();
    }
    for_each_node(work, num_nodes, [&](int32_t, int32_t node, bool remains) {
      if (remains) {
        work.best()[node] = highest_near(work, graph, node, work.key());
      }
    });
    __syncthreads();
    for_each_node(work, num_nodes, [&](int32_t word, int32_t node, bool remains) {
      const bool wins = remains && work.best()[node] == work.key()[node] &&
                        (!pcl || highest_near(work, graph, node, work.best()) == work.key()[node]);
      if (wins) {
        const int32_t number =
            atomicAdd(work.num_found(), 1);  // in any order: the keys, which differ, decide
        work.found()[number] = work.key()[node];
        work.owner()[node] = number;
      }
      const uint32_t won = __ballot_sync(kAllLanes, wins);
      if (lane == 0) {
        work.won()[word] = won;
      }
    });
    __syncthreads();
    for_each_node(work, num_nodes, [&](int32_t word, int32_t node, bool remains) {
      bool stays = remains;
      if (remains) {
        graph.for_neighbours(node, work.won(), [&](int32_t other, uint32_t near) {
          if (near != 0) {  // it has one bit: winners are apart
            const int32_t winner = other * 32 + __ffs(near) - 1;
            if (winner != node) {
              work.owner()[node] = work.owner()[winner];
            }
            stays = false;
          }
        });
      }
      const uint32_t staying = __ballot_sync(kAllLanes, stays);
      __syncwarp();
      if (lane == 0) {
        work.remaining()[word] = staying;
      }
    });
    __syncthreads();
  }
}

}  // namespace detector::proposal_clusters

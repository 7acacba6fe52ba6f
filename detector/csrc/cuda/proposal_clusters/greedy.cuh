// The greedy choice among the nodes, many winners at a time; each block of the team looks after its own
// nodes.
#pragma once

#include "graph.cuh"

namespace detector::proposal_clusters {

// Calls body(k, node, remains) for each of the block's nodes, by all lanes of the warps that look after them.
template <typename B, typename Body>
__device__ void for_each_node(const Graph<B>& graph, const uint32_t* remaining, const Body& body) {
  constexpr int32_t nodes_per_block = kThreads / kNodeLanes, nodes_per_warp = kWarp / kNodeLanes;
  const int32_t own = graph.num_own();
  for (int32_t first = warp_of_thread() * nodes_per_warp; first < own; first += nodes_per_block) {
    const int32_t k = first + lane_of_thread() / kNodeLanes;
    const int32_t node = k * graph.team.size + graph.team.rank;
    body(k, node, k < own && has_bit(remaining, node));
  }
}

// Every lane of a node gets the result.
template <typename Op, typename T>
__device__ T node_reduce(T value, const Op& op) {
  for (int offset = kNodeLanes / 2; offset > 0; offset /= 2) {
    value = op(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

// The highest of the values of the nodes near the block's node k, if that is `wanted`, else 0.
template <typename B, typename T>
__device__ T highest_near(const Graph<B>& graph, int32_t k, bool wanted, const uint32_t* mask,
                          const T* values) {
  T highest = 0;
  if (wanted) {
    graph.for_neighbors(k, mask, [&](int32_t word, uint32_t near) {
      for (; near != 0; near &= near - 1) {
        highest = max(highest, values[word * 32 + __ffs(near) - 1]);
      }
    });
  }
  return node_reduce(highest, Max{});
}

// Writes to the copies of all blocks; each lane of a node sees to one of them.
template <typename B>
__device__ void publish(const Graph<B>& graph, uint32_t* place, uint32_t value) {
  static_assert(kMostBlocks <= kNodeLanes);
  const int32_t other = threadIdx.x % kNodeLanes;
  if (other < graph.team.size) {
    *graph.nodes.in_block(graph.team, other, place) = value;
  }
}

// Tells the other blocks which nodes go. Atomics on their memory would take far longer than these stores.
__device__ inline void publish_going(const Team& team, const Sets& sets, int32_t num_nodes) {
  __syncthreads();  // the block has found them
  const int32_t words = num_words(num_nodes);
  uint32_t* const going = sets.going(team.rank);
  for (int32_t i = threadIdx.x; i < words * team.size; i += kThreads) {
    if (const int32_t other = i / words, word = i % words; other != team.rank) {
      team.in_block(other, going)[word] = going[word];
    }
  }
}

// Takes the nodes that go out of those that remain; returns whether any do.
__device__ inline bool drop_going(const Team& team, const Sets& sets, int32_t num_nodes) {
  uint32_t left = 0;
  for (int32_t word = threadIdx.x; word < num_words(num_nodes); word += kThreads) {
    uint32_t going = 0;
    for (int32_t rank = 0; rank < team.size; ++rank) {
      going |= sets.going(rank)[word];
    }
    sets.going(team.rank)[word] = 0;
    const uint32_t remaining = sets.remaining()[word] & ~going;
    sets.remaining()[word] = remaining;
    left |= remaining;
  }
  return __syncthreads_or(left != 0);
}

__device__ inline int32_t node_of_key(uint32_t key) { return 65535 - (key & 0xffff); }

// One after another the node of the highest key wins, and its neighbors go with it, until no nodes remain.
// Here they win in rounds: a node wins if its key is the highest among the nodes whose win could change its
// key or its neighbors, since it will win whatever happens elsewhere. For MIST those are its neighbors; for
// PCL, where keys hold degrees, their neighbors too. As degrees only fall, the order of the keys is that of
// the wins.
//
// All nodes remain, none goes or is found, and for MIST the keys are set. The first block gets the key of a
// winner in its nodes.found() and, for PCL, the highest weight of the nodes that went with it in its
// nodes.weight().
template <typename B>
__device__ __noinline__ void find_winners(Graph<B> graph, Sets sets, bool pcl) {
  const Nodes<B> nodes = graph.nodes;
  const Team team = graph.team;
  const uint32_t* remaining = sets.remaining();
  const bool first_lane = threadIdx.x % kNodeLanes == 0;
  while (drop_going(team, sets, nodes.size)) {
    if (pcl) {
      for_each_node(graph, remaining, [&](int32_t k, int32_t node, bool remains) {
        uint32_t degree = 0;
        if (remains) {
          graph.for_neighbors(k, remaining, [&](int32_t, uint32_t near) { degree += __popc(near); });
        }
        degree = node_reduce(degree, Sum{});
        if (remains) {
          publish(graph, nodes.key() + node, degree << 16 | (65535 - node));
        }
      });
      team.sync();
      for_each_node(graph, remaining, [&](int32_t k, int32_t node, bool remains) {
        const uint32_t best = highest_near(graph, k, remains, remaining, nodes.key());
        if (remains) {
          publish(graph, nodes.best() + node, best);
        }
      });
    }
    team.sync();
    const uint32_t* best = pcl ? nodes.best() : nodes.key();
    for_each_node(graph, remaining, [&](int32_t k, int32_t node, bool remains) {
      const bool leads = remains && best[node] == nodes.key()[node];
      const uint32_t highest = highest_near(graph, k, leads, remaining, best);
      const bool wins = leads && highest == best[node];
      if (wins) {
        graph.for_neighbors(k, remaining, [&](int32_t word, uint32_t near) {
          if (near != 0) {
            atomicOr(sets.going(team.rank) + word, near);
          }
        });
      }
      const double weight = pcl ? highest_near(graph, k, wins, remaining, nodes.weight()) : 0;
      __syncwarp();  // the node's own weight is among those that have been read
      if (wins && first_lane) {
        nodes.in_block(team, 0, nodes.found())[node] = nodes.key()[node];
        if (pcl) {
          nodes.in_block(team, 0, nodes.weight())[node] = weight;
        }
      }
    });
    publish_going(team, sets, nodes.size);
    team.sync();
  }
}

// Moves the keys of the winners to the front, in any order; returns how many. By all threads of a block.
template <typename B>
__device__ int32_t list_winners(const Nodes<B>& nodes) {
  __shared__ int32_t number;
  if (threadIdx.x == 0) {
    number = 0;
  }
  for (int32_t first = 0; first < nodes.size; first += kThreads) {
    const int32_t node = first + threadIdx.x;
    const uint32_t key = node < nodes.size ? nodes.found()[node] : 0;
    __syncthreads();  // these have been read
    if (key != 0) {
      nodes.found()[atomicAdd(&number, 1)] = key;
    }
  }
  __syncthreads();
  return number;
}

}  // namespace detector::proposal_clusters

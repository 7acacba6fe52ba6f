// Which nodes are neighbors: a bit for each pair whose IoU is greater than a threshold. Each node is its
// own.
#pragma once

#include "work.cuh"

namespace detector::proposal_clusters {

// Whether iou(a, b) > threshold. For a threshold t of at least 0 that is so if the intersection is greater
// than t / (1 + t) of the areas' sum; the division, longer than all the rest, is done only where rounding
// could tell the two apart.
template <typename B>
struct Overlap {
  B threshold, share;

  __device__ explicit Overlap(B threshold)
      : threshold(threshold), share(threshold >= 0 ? threshold / (1 + threshold) : B(NAN)) {}

  __device__ bool operator()(const Box<B>& a, B area_a, const Box<B>& b, B area_b) const {
    constexpr B rounding = B(4e-6),
                smallest = std::numeric_limits<B>::min();  // far more than the sums are off
    const B width = max(min(a.x2, b.x2) - max(a.x1, b.x1), B(0));
    const B height = max(min(a.y2, b.y2) - max(a.y1, b.y1), B(0));
    const B bound = share * (area_a + area_b), excess = product(width, height) - bound;
    if (abs(excess) > bound * rounding + smallest) {  // not where either is NaN or infinite
      return excess > 0;
    }
    return iou(a, area_a, b, area_b) > threshold;
  }
};

constexpr int kNodeLanes = 8;  // that look after a node together

// Node k * team.size + team.rank is the k-th of this block.
template <typename B>
struct Graph {
  uint32_t* bits;  // (this block's nodes, words_of_node(N)); null if there is no space: then they are
                   // computed where they are needed
  Nodes<B> nodes;
  Team team;
  Overlap<B> overlaps;

  __device__ int32_t num_own() const { return (nodes.size - team.rank + team.size - 1) / team.size; }

  // Calls body(word, found) with the neighbors of the block's node k among those that `mask` has, word by
  // word of nodes 32 * word + 0..31; the lanes of a node share the words.
  template <typename Body>
  __device__ void for_neighbors(int32_t k, const uint32_t* mask, const Body& body) const {
    constexpr int32_t at_once = 4;  // words of a lane; a read takes long
    const int32_t words = num_words(nodes.size), lane = threadIdx.x % kNodeLanes;
    if (bits == nullptr) {
      for (int32_t word = lane; word < words; word += kNodeLanes) {
        body(word, find_neighbors(k, word, mask[word]));
      }
      return;
    }
    const uint32_t* row = bits + int64_t(k) * words_of_node(nodes.size);
    for (int32_t first = lane; first < words; first += at_once * kNodeLanes) {
      uint32_t found[at_once];
#pragma unroll
      for (int32_t i = 0; i < at_once; ++i) {
        const int32_t word = first + i * kNodeLanes;
        found[i] = word < words ? row[word] & mask[word] : 0;
      }
#pragma unroll
      for (int32_t i = 0; i < at_once; ++i) {
        body(first + i * kNodeLanes, found[i]);
      }
    }
  }

  __device__ __noinline__ uint32_t find_neighbors(int32_t k, int32_t word, uint32_t mask) const {
    const int32_t node = k * team.size + team.rank;
    const Box<B> node_box = nodes.box()[node];
    const B node_area = area(node_box);
    uint32_t found = 0;
    for (; mask != 0; mask &= mask - 1) {
      const int32_t other = word * 32 + __ffs(mask) - 1;
      const Box<B> box = nodes.box()[other];
      found |= other == node || overlaps(node_box, node_area, box, area(box)) ? mask & -mask : 0;
    }
    return found;
  }
};

// Finds the bits of the block's nodes: a warp takes a tile of 8 of them by 32 of all.
template <typename B>
__device__ __noinline__ void connect(Graph<B> graph) {
  constexpr int32_t height = 8;
  const Nodes<B> nodes = graph.nodes;
  const Team team = graph.team;
  const int32_t words = num_words(nodes.size), own = graph.num_own(), lane = lane_of_thread();
  const int32_t tiles = (own + height - 1) / height * words;
  for (int32_t tile = warp_of_thread(); tile < tiles; tile += kWarps) {
    const int32_t first = tile / words * height, word = tile % words, j = word * kWarp + lane;
    const Box<B> other = nodes.box()[min(j, nodes.size - 1)];
    const B other_area = area(other);
    uint32_t lane_word = 0;  // the word of the block's node first + lane
#pragma unroll
    for (int32_t k = 0; k < height; ++k) {
      const int32_t node = min((first + k) * team.size + team.rank, nodes.size - 1);
      const Box<B> node_box = nodes.box()[node];
      const bool joined = graph.overlaps(node_box, area(node_box), other, other_area) || node == j;
      const uint32_t found = __ballot_sync(kAllLanes, joined && j < nodes.size);
      lane_word = lane == k ? found : lane_word;
    }
    if (lane < height && first + lane < own) {
      graph.bits[int64_t(first + lane) * words_of_node(nodes.size) + word] = lane_word;
    }
  }
}

}  // namespace detector::proposal_clusters

// Which nodes are neighbours: a bit for each pair whose IoU is greater than a threshold. Each node is its
// own.
#pragma once

#include "work.cuh"

namespace detector::proposal_clusters {

// Whether iou(a, b) > threshold. The division, longer than all the rest, is done only where the lanes of a
// warp need it, and nothing else branches.
template <typename B>
__device__ bool overlaps_more(const Box<B>& a, const Box<B>& b, B threshold) {
  constexpr B rounding = B(1e-6);  // far more than what the products and the quotient can be off
  const B width = max(min(a.x2, b.x2) - max(a.x1, b.x1), B(0));
  const B height = max(min(a.y2, b.y2) - max(a.y1, b.y1), B(0));
  const B area_a = area(a), area_b = area(b), intersection = product(width, height);
  const B bound = threshold * (area_a + area_b - intersection);
  const bool more = (bound > 0) & (intersection > bound * (1 + rounding));
  const bool less = (intersection == 0) | (intersection < bound * (1 - rounding));
  const bool joined = more | ((intersection == 0) & (threshold < 0));
  if (more | less) {
    return joined;
  }
  return iou(a, area_a, b, area_b) > threshold;
}

C10_HOST_DEVICE inline int64_t graph_words(int64_t nodes) { return nodes * num_words(nodes); }

template <typename B>
struct Graph {
  uint32_t*
      bits;  // (num_words(N), N); null if there is no space: then they are computed where they are needed
  const Box<B>* box;
  int32_t num_nodes;
  B edge_iou;

  // Calls body(word, found) with the neighbours of a node among those that each word of `mask` has.
  template <typename Body>
  __device__ void for_neighbours(int32_t node, const uint32_t* mask, const Body& body) const {
    constexpr int32_t at_once = 8;  // words; a read takes long
    const int32_t words = num_words(num_nodes);
    if (bits == nullptr) {
      for (int32_t word = 0; word < words; ++word) {
        body(word, find_neighbours(node, word, mask[word]));
      }
      return;
    }
    for (int32_t first = 0; first < words; first += at_once) {
      uint32_t found[at_once];
#pragma unroll
      for (int32_t k = 0; k < at_once; ++k) {
        found[k] = first + k < words ? bits[(first + k) * num_nodes + node] & mask[first + k] : 0;
      }
#pragma unroll
      for (int32_t k = 0; k < at_once; ++k) {
        body(first + k, found[k]);
      }
    }
  }

  // The neighbours of a node among those that `mask` has of nodes 32 * word + 0..31.
  __device__ __noinline__ uint32_t find_neighbours(int32_t node, int32_t word, uint32_t mask) const {
    const Box<B> mine = box[node];
    uint32_t found = 0;
    for (; mask != 0; mask &= mask - 1) {
      const int32_t other = word * 32 + __ffs(mask) - 1;
      found |= other == node || overlaps_more(mine, box[other], edge_iou) ? mask & -mask : 0;
    }
    return found;
  }

  // Finds the bits, each pair once: a warp takes a tile of 8 x 32 nodes. All threads of the block call it.
  __device__ __noinline__ void connect() const {
    if (bits == nullptr) {
      return;
    }
    constexpr int32_t height = 8;  // a byte of a word
    const int32_t words = num_words(num_nodes), lane = lane_of_thread();
    for (int32_t band = warp_of_thread(); band < words * (kWarp / height); band += kWarps) {
      const int32_t first = band * height;
      for (int32_t column = first / kWarp; column < words; ++column) {
        const int32_t j = column * kWarp + lane;
        const Box<B> other = box[min(j, num_nodes - 1)];
        uint32_t of_row = 0, of_column = 0;  // the word of node first + lane, and a byte of that of node j
        Box<B> mine[height];
#pragma unroll
        for (int32_t k = 0; k < height; ++k) {
          mine[k] = box[min(first + k, num_nodes - 1)];
        }
#pragma unroll
        for (int32_t k = 0; k < height; ++k) {
          const bool exist = (j < num_nodes) & (first + k < num_nodes);
          const bool joined = exist & (overlaps_more(mine[k], other, edge_iou) | (first + k == j));
          const uint32_t found = __ballot_sync(kAllLanes, joined);
          of_row = lane == k ? found : of_row;
          of_column |= uint32_t(joined) << k;
        }
        if (lane < height && first + lane < num_nodes) {
          bits[column * num_nodes + first + lane] = of_row;
        }
        if (first / kWarp != column && j < num_nodes) {
          const int32_t word = first / kWarp * num_nodes + j;
          reinterpret_cast<uint8_t*>(bits + word)[first % kWarp / height] = of_column;
        }
      }
    }
  }
};

}  // namespace detector::proposal_clusters

// Which nodes are neighbours: a bit for each pair whose IoU is greater than a threshold. Each node is its
// own.
#pragma once

#include "work.cuh"

namespace detector::proposal_clusters {

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
      found |= are_joined(node, mine, area(mine), other, box[other]) ? mask & -mask : 0;
    }
    return found;
  }

  __device__ bool are_joined(int32_t i, const Box<B>& a, B area_a, int32_t j, const Box<B>& b) const {
    return i == j || overlaps_more(a, area_a, b, area(b), edge_iou);
  }

  // Finds the bits, each pair once: a warp takes a tile of 8 x 32 nodes. All threads of the block call it.
  __device__ void connect() const {
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
#pragma unroll
        for (int32_t k = 0; k < height; ++k) {
          const int32_t i = min(first + k, num_nodes - 1);
          const Box<B> mine = box[i];
          const bool joined = j < num_nodes && are_joined(i, mine, area(mine), j, other);
          const uint32_t found = __ballot_sync(kAllLanes, joined);
          of_row = lane == k ? found : of_row;
          of_column |= uint32_t(joined && first + k < num_nodes) << k;
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

// What a block of proposal_clusters_centers_kernel has at hand for one image and stream, and how much space
// that takes.
//
// Addresses are worked out when they are needed: all of them at once would take half of a thread's registers.
#pragma once

#include <cooperative_groups.h>

#include "../../proposal_clusters_plan.h"
#include "batch.cuh"

namespace detector::proposal_clusters {

// The blocks that share the work on one image and stream: a thread block cluster where the GPU has them
// (compute capability 9), else one block.
struct Team {
  int32_t rank, size;  // of this block

  // All threads of all blocks wait for each other, and see what the others have written.
  __device__ void sync() const {
#if __CUDA_ARCH__ >= 900
    if (size > 1) {
      cooperative_groups::this_cluster().sync();
      return;
    }
#endif
    __syncthreads();
  }

  // Where another block has what this one has at `shared`, a place in its shared memory.
  template <typename T>
  __device__ T* in_block(int32_t other, T* shared) const {
#if __CUDA_ARCH__ >= 900
    if (other != rank) {
      return cooperative_groups::this_cluster().map_shared_rank(shared, other);
    }
#endif
    return shared;
  }
};

// The best of the values of all blocks, for all threads; better(a, b) picks one of two by a total order.
template <typename T>
__device__ inline T team_best(const Team& team, T value) {
  __shared__ T block_values[kMostBlocks];
  value = block_best(value);
  if (threadIdx.x < team.size) {
    *team.in_block(threadIdx.x, block_values + team.rank) = value;
  }
  team.sync();
  for (int32_t other = 0; other < team.size; ++other) {
    value = better(value, block_values[other]);
  }
  return value;  // block_values is free again when the team has met once more
}

// Each block of a team has the bits of every `blocks`-th node. Their number is odd, so that lanes that read
// the same word of different nodes read different banks.
C10_HOST_DEVICE inline int64_t words_of_node(int64_t nodes) { return num_words(nodes) | 1; }

C10_HOST_DEVICE inline int64_t graph_words(int64_t nodes, int64_t blocks) {
  return ceil_div(nodes, blocks) * words_of_node(nodes);
}

__device__ inline bool has_bit(const uint32_t* words, int32_t i) { return words[i / 32] >> (i % 32) & 1; }

__device__ inline void set_bit(uint32_t* words, int32_t i) { atomicOr(words + i / 32, 1u << (i % 32)); }

// A bit for each row of an image, then for each node. In shared memory: the other blocks of a team write
// here.
struct Sets {
  uint32_t* space;
  int32_t words;

  __device__ uint32_t* chosen() const { return space; }                 // the row is a center
  __device__ uint32_t* top() const { return space + words; }            // the row is in the top cluster
  __device__ uint32_t* remaining() const { return space + 2 * words; }  // the node has not gone yet
  __device__ uint32_t* going(int32_t rank) const {  // it goes now, by what that block of the team found
    return space + (3 + rank) * words;
  }
};

// The arrays of the 3-means, for R rows. Each block of a team has its own.
struct Means {
  char* space;
  int32_t rows;

  __device__ int64_t* value() const { return at<int64_t>(0); }       // (R,) of Sorted
  __device__ int64_t* number() const { return at<int64_t>(8); }      // (R,) by place in the order
  __device__ double* highest_fit() const { return at<double>(16); }  // (R,) Sorted::fit to the end
  __device__ int64_t* sum() const { return at<int64_t>(24); }        // (R + 1,) of Sorted
  __device__ int32_t* count() const { return at<int32_t>(32) + 2; }  // (R + 1,) of Sorted

  C10_HOST_DEVICE static int64_t bytes(int64_t rows, int64_t images) { return array_bytes(36, rows, images); }

 private:
  template <typename T>
  __device__ T* at(int32_t bytes_before) const {
    return reinterpret_cast<T*>(space + int64_t(rows) * bytes_before);
  }
};

// The N nodes, the rows of the top-ranking set: PCL's in the order of their rows, MIST's in that of their
// scores, best first. Each block of a team has all, and writes what it finds to the others' too; if they do
// not fit into shared memory there is one copy in global memory.
//
// The node of the highest key wins and its neighbors go with it, and so on. A key is
// degree << 16 | 65535 - node, for MIST without the degree.
template <typename B>
struct Nodes {
  char* space;
  int32_t size;
  bool shared;

  __device__ Box<B>* box() const { return at<Box<B>>(0); }
  __device__ double* weight() const { return at<double>(kBox); }  // its score; the winner's, see find_winners
  __device__ int32_t* row() const { return at<int32_t>(kBox + 8); }
  __device__ uint32_t* key() const { return at<uint32_t>(kBox + 12); }
  __device__ uint32_t* best() const { return at<uint32_t>(kBox + 16); }  // the highest key near the node
  __device__ uint32_t* found() const {
    return at<uint32_t>(kBox + 20);
  }  // the winners' keys, see find_winners

  template <typename T>
  __device__ T* in_block(const Team& team, int32_t other, T* place) const {
    return shared ? team.in_block(other, place) : place;
  }

  C10_HOST_DEVICE static int64_t bytes(int64_t nodes, int64_t images) {
    return array_bytes(kBox + 24, nodes, images);
  }

 private:
  static constexpr int32_t kBox = sizeof(Box<B>);

  template <typename T>
  __device__ T* at(int32_t bytes_before) const {
    return reinterpret_cast<T*>(space + int64_t(size) * bytes_before);
  }
};

// Where the nodes and the bits of their graph go: into shared memory, after each other, or what does not fit
// there into global memory. If the bits do not fit there either they have no place.
struct NodeSpace {
  char* shared;
  int64_t shared_bytes;
  char* nodes;
  uint32_t* graph;
  int64_t graph_words_of_team;

  template <typename B>
  __device__ Nodes<B> nodes_for(int32_t size) const {
    const bool fits = Nodes<B>::bytes(size, 1) <= shared_bytes;
    return {fits ? shared : nodes, size, fits};
  }

  // For this block's nodes.
  template <typename B>
  __device__ uint32_t* bits_for(const Nodes<B>& nodes, const Team& team) const {
    const int64_t used = nodes.shared ? Nodes<B>::bytes(nodes.size, 1) : 0;
    const int64_t words = graph_words(nodes.size, team.size);
    if (used + words * int64_t(sizeof(uint32_t)) <= shared_bytes) {
      return reinterpret_cast<uint32_t*>(shared + used);
    }
    return words * team.size <= graph_words_of_team ? graph + words * team.rank : nullptr;
  }
};

// All of that.
struct Work {
  Team team;
  Sets sets;
  Means means;
  NodeSpace space;
};

// The rows that a class of an image can choose from.
template <typename B, typename T>
struct Pool {
  Work work;
  Matrix<B> boxes;
  Scores<T> scores;
  const uint16_t* order;  // (R,), see proposal_clusters_order_kernel; not for OICR
  int32_t num_rows;       // R, of the image

  __device__ bool has_place(int32_t place) const { return !has_bit(work.sets.chosen(), order[place]); }
};

}  // namespace detector::proposal_clusters

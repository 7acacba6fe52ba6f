// What a block of centres_kernel has at hand for one image and class.
#pragma once

#include "graph.cuh"

namespace detector::proposal_clusters {

// Space for Work of `rows` rows, in units of 8 bytes; many images need no more than one of all their rows and
// `images`.
C10_HOST_DEVICE inline int64_t work_words(int64_t rows, int64_t images) { return 4 * rows + 8 * images; }

// Arrays for an image of R rows, W = num_words(R); in shared memory if they fit. Those of the 3-means and
// those of the greedy choice, which comes after, share their space.
//
// A node is a row of the top-ranking set; the node of the highest key goes first. A key is never 0. It is
// degree << 16 | 65535 - row for PCL and the place in the order + 1 for MIST.
struct Work {
  int64_t* value;   // (R,) of Sorted
  int64_t* sum;     // (R + 1,) of Sorted
  int32_t* count;   // (R + 1,) of Sorted
  int64_t* number;  // (R,) fixed-point scores, by place in the order

  uint32_t* key;     // (R,) of nodes, by row; where `value` was
  uint32_t* nearby;  // (R,) the highest key among a node's neighbours, by row; behind `key`
  uint32_t* found;   // (R,) the keys of the winners; where `sum` was
  double* weight;    // (R,) and their weights; where `number` was

  uint64_t* remaining;  // (W,) a bit for each row that is a node, not a winner and not gone with one
  uint64_t* chosen;     // (W,) a bit for each row that is a centre
  int32_t* num_found;   // in shared memory

  __device__ Work(int64_t* space, int64_t rows, int32_t* num_found)
      : value(space),
        sum(value + rows + 1),
        count(reinterpret_cast<int32_t*>(sum + rows + 1)),
        number(sum + rows + 1 + rows / 2 + 1),
        key(reinterpret_cast<uint32_t*>(value)),
        nearby(key + rows),
        found(reinterpret_cast<uint32_t*>(sum)),
        weight(reinterpret_cast<double*>(number)),
        remaining(reinterpret_cast<uint64_t*>(number + rows)),
        chosen(remaining + num_words(rows)),
        num_found(num_found) {}
};

__device__ inline bool has_bit(const uint64_t* words, int32_t i) { return words[i / 64] >> (i % 64) & 1; }

__device__ inline void set_bit(uint64_t* words, int32_t i) {
  atomicOr(reinterpret_cast<unsigned long long*>(words + i / 64), 1ull << (i % 64));
}

// The rows that a class of an image can choose from.
template <typename B, typename T>
struct Pool {
  const Graph<B>& graph;
  const Work& work;
  const Options& options;
  Scores<T> scores;
  const uint16_t* order;  // (R,), see order_kernel; not for OICR
  int32_t num_rows;       // R, of the image

  __device__ bool has_place(int32_t place) const { return !has_bit(work.chosen, order[place]); }
};

}  // namespace detector::proposal_clusters

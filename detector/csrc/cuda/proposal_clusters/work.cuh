// What a block of centres_kernel has at hand for one image and stream, and how much space that takes.
#pragma once

#include "block.cuh"

namespace detector::proposal_clusters {

C10_HOST_DEVICE inline int64_t num_words(int64_t rows) { return (rows + 31) / 32; }  // a bit a row

// The 3-means' arrays and, after them and in their place, those of the greedy choice, for R rows.
//
// Nodes are the rows of the top-ranking set. The node of the highest key wins and its neighbours go with it,
// and so on. A key is degree << 16 | 65535 - node, for MIST without the degree; PCL's nodes are in the order
// of their rows, MIST's in that of their scores, best first.
//
// Addresses are worked out when they are needed: all of them at once would take half of a thread's registers.
template <typename B>
struct Work {
  char* space;  // aligned as a box is
  int32_t rows;

  // The 3-means.
  __device__ int64_t* value() const { return at<int64_t>(0); }       // (R,) of Sorted
  __device__ int64_t* number() const { return at<int64_t>(8); }      // (R,) by place in the order
  __device__ double* highest_fit() const { return at<double>(16); }  // (R,) Sorted::fit to the end
  __device__ int64_t* sum() const { return at<int64_t>(24); }        // (R + 1,) of Sorted
  __device__ int32_t* count() const { return at<int32_t>(32) + 2; }  // (R + 1,) of Sorted

  // The greedy choice.
  __device__ Box<B>* box() const { return at<Box<B>>(0); }               // (R,) of nodes
  __device__ int64_t* weight() const { return at<int64_t>(kBox); }       // (R,) of winners, see choose_best
  __device__ int32_t* row() const { return at<int32_t>(kBox + 8); }      // (R,) of nodes
  __device__ uint32_t* key() const { return at<uint32_t>(kBox + 12); }   // (R,) of nodes
  __device__ uint32_t* best() const { return at<uint32_t>(kBox + 16); }  // (R,) the highest key near a node
  __device__ int32_t* owner() const { return at<int32_t>(kBox + 20); }   // (R,) the winner a node went with
  __device__ uint32_t* found() const {
    return at<uint32_t>(kBox + 24);
  }  // (R,) keys of winners, in any order

  // A bit for each row, then for each node.
  __device__ uint32_t* chosen() const { return words(0); }     // the row is a centre
  __device__ uint32_t* top() const { return words(1); }        // the row is in the top cluster
  __device__ uint32_t* remaining() const { return words(2); }  // the node has not gone yet
  __device__ uint32_t* won() const { return words(3); }        // the node wins now

  __device__ int32_t* num_found() const { return reinterpret_cast<int32_t*>(words(4)); }

  // Bytes for `rows` rows in `images` images.
  C10_HOST_DEVICE static int64_t bytes(int64_t rows, int64_t images) {
    return (rows * kRow + images * (3 * kEnd) + rows / 2 + 16 * images) / kEnd * kEnd;
  }

 private:
  static constexpr int32_t kBox = sizeof(Box<B>), kRow = kBox + 28;  // bytes of a row, 44 at least
  static constexpr int32_t kEnd = 64;  // room for what is longer by one, and for alignment

  template <typename T>
  __device__ T* at(int32_t bytes_before) const {
    return reinterpret_cast<T*>(space + int64_t(rows) * bytes_before);
  }
  __device__ uint32_t* words(int32_t before) const {
    return at<uint32_t>(kRow) + kEnd / 4 + before * int32_t(num_words(rows));
  }
};

__device__ inline bool has_bit(const uint32_t* words, int32_t i) { return words[i / 32] >> (i % 32) & 1; }

__device__ inline void set_bit(uint32_t* words, int32_t i) { atomicOr(words + i / 32, 1u << (i % 32)); }

// The rows that a class of an image can choose from.
template <typename B, typename T>
struct Pool {
  Work<B> work;
  Matrix<B> boxes;
  Scores<T> scores;
  const uint16_t* order;  // (R,), see order_kernel; not for OICR
  int32_t num_rows;       // R, of the image

  __device__ bool has_place(int32_t place) const { return !has_bit(work.chosen(), order[place]); }
};

}  // namespace detector::proposal_clusters

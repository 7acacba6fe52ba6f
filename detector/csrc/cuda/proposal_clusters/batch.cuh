// The images of a batch, as the kernels of proposal_clusters see them.
#pragma once

#include <cstring>

#include "../../proposal_clusters.h"
#include "../reduce.cuh"

namespace detector::proposal_clusters {

constexpr unsigned kAllLanes = 0xffffffffu;

// Every image is clustered once a stream. The blocks of a kernel are numbered stream after stream.
struct Batch {
  Vector<int64_t> counts;
  int64_t num_streams;
  int64_t num_images;
  int64_t num_rows;
};

struct Image {
  int64_t begin;  // its first row among the boxes
  int64_t place;  // and in what holds the rows of all streams
  int32_t num_rows;
  bool valid;  // counts fit the rows; if not, no image has any
};

// Image num_images is empty. Each warp sums for itself.
__device__ inline Image image_at(const Batch& batch, int64_t stream, int64_t index) {
  int64_t begin = 0, all = 0;
  bool valid = true;
  for (int64_t i = lane_of_thread(); i < batch.num_images; i += kWarp) {
    const int64_t count = batch.counts[i];
    const bool fits = 0 <= count && count <= kMaxRows;
    valid = valid && fits;
    if (fits) {
      begin += i < index ? count : 0;
      all += count;
    }
  }
  begin = warp_reduce(begin, Sum{});
  all = warp_reduce(all, Sum{});
  valid = __all_sync(kAllLanes, valid) && all == batch.num_rows;
  if (!valid) {
    return {0, stream * batch.num_rows, 0, false};
  }
  return {begin, stream * batch.num_rows + begin, index < batch.num_images ? int32_t(batch.counts[index]) : 0,
          true};
}

// Calls body(column) for each positive class, with all lanes of the warp.
template <typename Body>
__device__ inline void for_each_positive(const Vector<float>& labels, int64_t num_classes, const Body& body) {
  for (int64_t first = 0; first < num_classes; first += kWarp) {
    const int64_t column = first + lane_of_thread();
    const bool positive = column < num_classes && labels[column] != 0;
    for (unsigned left = __ballot_sync(kAllLanes, positive); left != 0; left &= left - 1) {
      body(first + __ffs(left) - 1);
    }
  }
}

// The scores of an image and a class, by row of the image.
template <typename T>
struct Scores {
  Vector<T> scores;
  __device__ Accumulate<T> operator[](int64_t row) const { return clamp_score<Accumulate<T>>(scores[row]); }
};

// ---- what the threads of a block do together ----

constexpr int kWarps = 32;
constexpr int kThreads = kWarps * kWarp;
static_assert(kWarps == kWarp, "a warp reduces what the warps found; block_scan() expects as many threads");

// Every lane gets the best; better(a, b) picks one of two by a total order.
template <typename T>
__device__ inline T warp_best(T value) {
  constexpr int words = sizeof(T) / sizeof(uint32_t);
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    uint32_t word[words];
    memcpy(word, &value, sizeof(T));
    for (int w = 0; w < words; ++w) {
      word[w] = __shfl_xor_sync(kAllLanes, word[w], offset);
    }
    T other;
    memcpy(&other, word, sizeof(T));
    value = better(value, other);
  }
  return value;
}

template <typename T>
__device__ inline T block_best(T value) {
  __shared__ T warp_values[kWarps];
  value = warp_best(value);
  if (lane_of_thread() == 0) {
    warp_values[warp_of_thread()] = value;
  }
  __syncthreads();
  value = warp_best(warp_values[lane_of_thread() % kWarps]);
  __syncthreads();  // warp_values is free again
  return value;
}

}  // namespace detector::proposal_clusters

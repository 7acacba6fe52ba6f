// The order of many boxes: by score, and by group. Both are sorted at once, in few launches, where a radix
// sort would take two or more for each byte of a key, which is most of its time for some 10,000 boxes.
//
//   run_kernel    sorted runs, a block each
//   merge_kernel  kFanIn runs become one; as often as it takes
//   fill_kernel   what settle_kernel reads
#pragma once

#include "order.cuh"

namespace detector::nms {

constexpr int kRun = 1024;  // a power of two
constexpr int kFanIn = 8;   // runs merged at a time

// What decides a box's place. No two are equal.
template <typename A>
struct alignas(sizeof(A) == 4 ? 16 : 8) Entry {
  int64_t group;
  decltype(order_key(A{})) key;
  uint32_t index;
  // Without a branch, so that loads of several need not wait for each other.
  __device__ bool operator<(const Entry& other) const {
    const bool better = (key > other.key) | ((key == other.key) & (index < other.index));
    return (group < other.group) | ((group == other.group) & better);
  }
};

// How many of `length` sorted entries, a power of two, are smaller.
template <typename A>
__device__ int count_smaller(const Entry<A>* sorted, int length, const Entry<A>& own) {
  int smaller = 0;
  for (int step = length; step > 0; step /= 2) {
    const int more = smaller + step;
    smaller = (more <= length) & (sorted[min(more, length) - 1] < own) ? more : smaller;
  }
  return smaller;
}

// Row 0 of `entries` (1 or 2, size) gets runs sorted by score, row 1 by group, then score.
template <typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kRun)
    run_kernel(Vector<T> scores, Vector<int64_t> idxs, int64_t size, Entry<A>* entries) {
  __shared__ Entry<A> run[kRun];
  const int thread = threadIdx.x, warp_begin = thread - lane_of_thread();
  const int64_t i = int64_t(blockIdx.x) * kRun + thread;
  Entry<A> own{INT64_MAX, 0, uint32_t(i)};  // past the last box: after all others
  if (i < size) {
    own = {blockIdx.y == 0 ? 0 : idxs[i], order_key(A(scores[i])), uint32_t(i)};
  }
  run[thread] = own;
  __syncwarp();
  int place = warp_begin;
  for (int k = 0; k < kWarp; ++k) {
    place += run[warp_begin + k] < own;
  }
  __syncwarp();
  run[place] = own;
  __syncthreads();
  for (int length = kWarp; length < kRun; length *= 2) {  // merges two runs into one
    const int own_begin = thread / length * length, other_begin = own_begin ^ length;
    own = run[thread];
    place = thread - own_begin + min(own_begin, other_begin) + count_smaller(run + other_begin, length, own);
    __syncthreads();
    run[place] = own;
    __syncthreads();
  }
  if (i < size) {
    entries[blockIdx.y * size + i] = run[thread];
  }
}

// An entry's place is the number of smaller ones in the runs that become one. `rank_of_index` (size,), if not
// null, gets the places by score.
template <typename A>
__global__ void __launch_bounds__(kOrderThreads)
    merge_kernel(const Entry<A>* from, Entry<A>* to, int64_t size, int64_t run, uint32_t* rank_of_index) {
  const int64_t i = int64_t(blockIdx.x) * kOrderThreads + threadIdx.x;
  if (i >= size) {
    return;
  }
  from += blockIdx.y * size;
  to += blockIdx.y * size;
  const Entry<A> own = from[i];
  const int64_t first = i / (run * kFanIn) * (run * kFanIn);
  const Entry<A>* runs[kFanIn];
  uint32_t length[kFanIn], smaller[kFanIn] = {};
#pragma unroll
  for (int k = 0; k < kFanIn; ++k) {
    length[k] = max(min(size - first - k * run, run), int64_t(0));
    runs[k] = from + (length[k] > 0 ? first + k * run : 0);
  }
  for (uint32_t step = run; step > 0; step /= 2) {
#pragma unroll
    for (int k = 0; k < kFanIn; ++k) {  // loads that do not wait for each other
      const uint32_t more = smaller[k] + step;
      const bool are_smaller = runs[k][max(min(more, length[k]), 1u) - 1] < own;
      smaller[k] = (more <= length[k]) & are_smaller ? more : smaller[k];
    }
  }
  int64_t place = first;
#pragma unroll
  for (int k = 0; k < kFanIn; ++k) {
    place += smaller[k];
  }
  to[place] = own;
  if (rank_of_index && blockIdx.y == 0) {
    rank_of_index[own.index] = place;
  }
}

// The first place of the group of place `last`.
template <typename A>
__device__ int64_t find_group(const Entry<A>* entries, int64_t last) {
  int64_t begin = 0, end = last;  // the answer is in begin..end
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (entries[middle].group < entries[last].group) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

// `rank_of_index` is null where all boxes are of one group, `index_of_rank` where no list is wanted.
template <typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kOrderThreads)
    fill_kernel(Filled<T> filled, const Entry<A>* entries, const uint32_t* rank_of_index,
                uint32_t* index_of_rank, State state, int64_t num_chunks) {
  clear(state, num_chunks);
  const int64_t place = int64_t(blockIdx.x) * kOrderThreads + threadIdx.x, size = filled.order.size;
  if (place >= size) {
    return;
  }
  const uint32_t index = entries[place + (rank_of_index ? size : 0)].index;
  filled.set(place, rank_of_index ? rank_of_index[index] : place, index);
  if (rank_of_index) {
    filled.order.groups[place] = find_group(entries + size, place);
  }
  if (index_of_rank) {
    index_of_rank[place] = entries[place].index;
  }
}

}  // namespace detector::nms

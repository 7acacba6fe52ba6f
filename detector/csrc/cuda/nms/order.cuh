// The boxes in the order in which they are settled, group after group, best first. Few are ranked by counting
// in one launch, many are sorted: sort.cuh; both on keys that order every NaN and both zeros as nms.h says.
#pragma once

#include "chunk.cuh"

namespace detector::nms {

constexpr int kOrderThreads = 256;
constexpr int kRowsABlock = 8;  // of rank_kernel

// What is filled in for each box, in the order. `rank` is its place among all scores.
template <typename T, typename A = Accumulate<T>>
struct Filled {
  Matrix<T> source;
  Order<A> order;
  bool slots_are_ranks;  // or indices

  __device__ void set(int64_t place, uint32_t rank, uint32_t index) const {
    const Box<A> box{A(source(index, 0)), A(source(index, 1)), A(source(index, 2)), A(source(index, 3))};
    order.boxes[place] = box.x1 < box.x2 && box.y1 < box.y2 ? box : no_box<A>();
    order.slots[place] = slots_are_ranks ? rank : index;
  }
};

__device__ inline void clear(const State& state, int64_t num_chunks) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = thread; i < num_chunks; i += int64_t(gridDim.x) * blockDim.x) {
    state.progress[i] = 0;
    for (int word = 0; word < kWords; ++word) {
      state.words[i * kWords + word] = 0;
    }
  }
  if (thread == 0) {
    *state.count = *state.tickets = 0;
  }
}

// A block counts, for each of its rows, the boxes before it: work that grows with the square of the size. The
// boxes in lower groups tell where a group begins. `index_of_rank` may be null.
template <typename T>
__global__ void __launch_bounds__(kOrderThreads)
    rank_kernel(Filled<T> filled, Vector<T> scores, Vector<int64_t> idxs, uint32_t* index_of_rank,
                State state, int64_t num_chunks) {
  using Key = decltype(order_key(Accumulate<T>{}));
  __shared__ int rank_of_row[kRowsABlock], group_of_row[kRowsABlock], place_of_row[kRowsABlock];
  clear(state, num_chunks);
  if (threadIdx.x < kRowsABlock) {
    rank_of_row[threadIdx.x] = group_of_row[threadIdx.x] = place_of_row[threadIdx.x] = 0;
  }
  const int size = filled.order.size, first = blockIdx.x * kRowsABlock;
  const bool grouped = idxs.data != nullptr;
  int rank[kRowsABlock] = {}, lower[kRowsABlock] = {}, place[kRowsABlock] = {};
  Key key[kRowsABlock];
  int64_t group[kRowsABlock] = {};
  for (int k = 0; k < kRowsABlock; ++k) {
    const int source = min(first + k, size - 1);
    key[k] = order_key(Accumulate<T>(scores[source]));
    group[k] = grouped ? idxs[source] : 0;
  }
  for (int i = threadIdx.x; i < size; i += kOrderThreads) {
    const Key other = order_key(Accumulate<T>(scores[i]));
    if (grouped) {
      const int64_t other_group = idxs[i];
      for (int k = 0; k < kRowsABlock; ++k) {
        const bool before = other > key[k] || (other == key[k] && i < first + k);
        rank[k] += before;
        lower[k] += other_group < group[k];
        place[k] += other_group < group[k] || (other_group == group[k] && before);
      }
    } else {
      for (int k = 0; k < kRowsABlock; ++k) {
        rank[k] += other > key[k] || (other == key[k] && i < first + k);
      }
    }
  }
  __syncthreads();
  for (int k = 0; k < kRowsABlock; ++k) {
    const int rank_of_warp = warp_reduce(rank[k], Sum{});
    const int lower_of_warp = grouped ? warp_reduce(lower[k], Sum{}) : 0;
    const int place_of_warp = grouped ? warp_reduce(place[k], Sum{}) : rank_of_warp;
    if (lane_of_thread() == 0) {
      atomicAdd(&rank_of_row[k], rank_of_warp);
      atomicAdd(&group_of_row[k], lower_of_warp);
      atomicAdd(&place_of_row[k], place_of_warp);
    }
  }
  __syncthreads();
  const int k = threadIdx.x, row = first + k;
  if (k < kRowsABlock && row < size) {
    filled.set(place_of_row[k], rank_of_row[k], row);
    if (index_of_rank) {
      index_of_rank[rank_of_row[k]] = row;
    }
    if (grouped) {
      filled.order.groups[place_of_row[k]] = group_of_row[k];
    }
  }
}

}  // namespace detector::nms

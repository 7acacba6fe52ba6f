// The boxes in the order in which they are settled, group after group, best first. Few are ranked by counting
// in one launch; many are sorted by torch, on keys that order every NaN and both zeros as nms.h says.
#pragma once

#include "chunk.cuh"

namespace detector::nms {

constexpr int kOrderThreads = 256;
constexpr int kRowsABlock = 8;  // of rank_kernel

// What is filled in for each box, in the order or by rank, its place among all scores.
template <typename T, typename A = Accumulate<T>>
struct Filled {
  Matrix<T> source;
  Order<A> order;
  int64_t* groups;   // of the order; null where all boxes are of one
  int64_t* indices;  // of each rank; null where slots are to be indices, not ranks

  __device__ void set(int64_t place, int64_t rank, int64_t index) const {
    const Box<A> box{A(source(index, 0)), A(source(index, 1)), A(source(index, 2)), A(source(index, 3))};
    order.boxes[place] = box.x1 < box.x2 && box.y1 < box.y2 ? box : no_box<A>();
    order.slots[place] = indices ? rank : index;
    if (indices) {
      indices[rank] = index;
    }
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

// A block counts, for each of its rows, the boxes before it: work that grows with the square of the size.
template <typename T>
__global__ void __launch_bounds__(kOrderThreads)
    rank_kernel(Filled<T> filled, Vector<T> scores, Vector<int64_t> idxs, State state, int64_t num_chunks) {
  using Key = decltype(order_key(Accumulate<T>{}));
  __shared__ int rank_of_row[kRowsABlock], place_of_row[kRowsABlock];
  clear(state, num_chunks);
  if (threadIdx.x < kRowsABlock) {
    rank_of_row[threadIdx.x] = place_of_row[threadIdx.x] = 0;
  }
  const int size = filled.order.size, first = blockIdx.x * kRowsABlock;
  const bool grouped = idxs.data != nullptr;
  int rank[kRowsABlock] = {}, place[kRowsABlock] = {};
  Key key[kRowsABlock];
  int64_t group[kRowsABlock] = {};
  for (int k = 0; k < kRowsABlock; ++k) {
    const int source = min(first + k, size - 1);
    key[k] = order_key(Accumulate<T>(scores[source]));
    group[k] = grouped ? idxs[source] : 0;
  }
  for (int i = threadIdx.x; i < size; i += kOrderThreads) {
    const Key other = order_key(Accumulate<T>(scores[i]));
    const int64_t other_group = grouped ? idxs[i] : 0;
    for (int k = 0; k < kRowsABlock; ++k) {
      const bool before = other > key[k] || (other == key[k] && i < first + k);
      rank[k] += before;
      place[k] += other_group < group[k] || (other_group == group[k] && before);
    }
  }
  __syncthreads();
  for (int k = 0; k < kRowsABlock; ++k) {
    const int rank_of_warp = __reduce_add_sync(0xffffffffu, rank[k]);
    const int place_of_warp = __reduce_add_sync(0xffffffffu, place[k]);
    if (lane_of_thread() == 0) {
      atomicAdd(&rank_of_row[k], rank_of_warp);
      atomicAdd(&place_of_row[k], place_of_warp);
    }
  }
  __syncthreads();
  const int k = threadIdx.x;
  if (k < kRowsABlock && first + k < size) {
    filled.set(place_of_row[k], rank_of_row[k], first + k);
    if (grouped) {
      filled.groups[place_of_row[k]] = idxs[first + k];
    }
  }
}

// The keys as signed integers, whose descending order is that of the scores.
template <typename T, typename Signed>
__global__ void key_kernel(Vector<T> scores, int64_t size, Signed* keys) {
  constexpr auto sign = std::make_unsigned_t<Signed>(1) << (8 * sizeof(Signed) - 1);
  for (int64_t i = int64_t(blockIdx.x) * kOrderThreads + threadIdx.x; i < size;
       i += int64_t(gridDim.x) * kOrderThreads) {
    keys[i] = static_cast<Signed>(order_key(Accumulate<T>(scores[i])) ^ sign);
  }
}

// index_of_rank: the sorted scores; rank_of_place: the sorted groups, null where all boxes are of one.
template <typename T>
__global__ void fill_kernel(Filled<T> filled, const int64_t* index_of_rank, const int64_t* rank_of_place,
                            State state, int64_t num_chunks) {
  clear(state, num_chunks);
  for (int64_t place = int64_t(blockIdx.x) * kOrderThreads + threadIdx.x; place < filled.order.size;
       place += int64_t(gridDim.x) * kOrderThreads) {
    const int64_t rank = rank_of_place ? rank_of_place[place] : place;
    filled.set(place, rank, index_of_rank[rank]);
  }
}

}  // namespace detector::nms

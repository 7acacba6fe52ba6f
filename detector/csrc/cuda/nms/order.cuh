// The boxes in the order in which they are looked at, group after group, best first. Few are ranked by
// counting in one launch, many are sorted; both on keys that order every NaN and both zeros as nms.h says.
#pragma once

#include <cub/device/device_radix_sort.cuh>
#include <cub/thread/thread_search.cuh>

#include "../launch.cuh"
#include "chunk.cuh"

namespace detector::nms {

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
    nms_rank_kernel(Filled<T> filled, Vector<T> scores, Vector<int64_t> idxs, uint32_t* index_of_rank,
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

// What many boxes are sorted in, (size,) each: by cub's radix sort, by score and, where they have groups,
// then by group. It is stable, so equal scores keep the order of their indices and the boxes of a group that
// of their scores.
struct Sorting {
  uint64_t *keys, *sorted_keys;
  uint32_t* numbers;        // 0, 1, ...
  uint32_t* index_of_rank;  // by score
  uint32_t* rank_of_place;  // by group, then by score; null where all boxes are of one group
};

template <typename T>
struct ScoreKey {
  Vector<T> scores;
  __device__ uint64_t operator()(int64_t index) const { return ~order_key(Accumulate<T>(scores[index])); }
};

struct GroupKey {
  Vector<int64_t> idxs;
  const uint32_t* index_of_rank;
  __device__ uint64_t operator()(int64_t rank) const {
    return uint64_t(idxs[index_of_rank[rank]]) ^ uint64_t(1) << 63;  // negative groups first
  }
};

template <typename KeyOf>
__global__ void __launch_bounds__(kOrderThreads)
    nms_keys_kernel(KeyOf key_of, int64_t size, uint64_t* keys, uint32_t* numbers) {
  const int64_t i = int64_t(blockIdx.x) * kOrderThreads + threadIdx.x;
  if (i < size) {
    keys[i] = key_of(i);
    numbers[i] = i;
  }
}

// The numbers from 0 on in the ascending order of the lower `bits` of key_of(number).
template <typename KeyOf>
void sort_numbers(const KeyOf& key_of, int bits, const Sorting& in, int64_t size, uint32_t* sorted,
                  const Tensor& like, cudaStream_t stream) {
  launch_kernel(nms_keys_kernel<KeyOf>, ceil_div(size, kOrderThreads), kOrderThreads, 0, stream, key_of, size,
                in.keys, in.numbers);
  size_t bytes = 0;
  const auto sort = [&](void* scratch) {
    STD_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(scratch, bytes, in.keys, in.sorted_keys, in.numbers,
                                                   sorted, int(size), 0, bits, stream));
  };
  sort(nullptr);  // tells the bytes
  const Tensor scratch = allocate(like, {int64_t(bytes)}, ScalarType::Byte);
  sort(scratch.mutable_data_ptr());
}

// Of the sorted boxes what nms_chunk_kernel reads.
template <typename T>
__global__ void __launch_bounds__(kOrderThreads)
    nms_fill_kernel(Filled<T> filled, Sorting sorted, State state, int64_t num_chunks) {
  clear(state, num_chunks);
  const int64_t place = int64_t(blockIdx.x) * kOrderThreads + threadIdx.x;
  if (place >= filled.order.size) {
    return;
  }
  const uint32_t rank = sorted.rank_of_place ? sorted.rank_of_place[place] : place;
  filled.set(place, rank, sorted.index_of_rank[rank]);
  if (sorted.rank_of_place) {
    const uint64_t* groups = sorted.sorted_keys;
    filled.order.groups[place] = cub::LowerBound(groups, place, groups[place]);
  }
}

}  // namespace detector::nms

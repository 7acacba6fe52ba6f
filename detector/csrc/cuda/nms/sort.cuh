// The order of many boxes, by cub's radix sort: by score and, where boxes have groups, then by group. The
// sort is stable, so equal scores keep the order of their indices and the boxes of a group that of their
// scores.
#pragma once

#include <cub/device/device_radix_sort.cuh>
#include <cub/thread/thread_search.cuh>

#include "../launch.cuh"
#include "order.cuh"

namespace detector::nms {

// What boxes are sorted in, (size,) each.
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
    keys_kernel(KeyOf key_of, int64_t size, uint64_t* keys, uint32_t* numbers) {
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
  launch_kernel(keys_kernel<KeyOf>, ceil_div(size, kOrderThreads), kOrderThreads, 0, stream, key_of, size,
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

// Of the sorted boxes what settle_kernel reads.
template <typename T>
__global__ void __launch_bounds__(kOrderThreads)
    fill_kernel(Filled<T> filled, Sorting sorted, State state, int64_t num_chunks) {
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

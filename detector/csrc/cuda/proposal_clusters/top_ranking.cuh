// The nodes: the top cluster of the 3-means for PCL, the best share of the pool for MIST. All threads of the
// block call each function.
#pragma once

#include "block.cuh"
#include "pool.cuh"

namespace detector::proposal_clusters {

// The places in the order that a thread walks.
struct Stretch {
  int32_t begin, end;
};

__device__ inline Stretch stretch_of_thread(int32_t num_rows) {
  const int32_t size = (num_rows + kThreads - 1) / kThreads;
  const int32_t begin = min(int32_t(threadIdx.x) * size, num_rows);
  return {begin, min(begin + size, num_rows)};
}

// The numbers of the pool, which is not empty, as distinct values with their counts and sums. Leaves each
// number in work.number for the thread that walks its place.
template <typename B, typename T>
__device__ Sorted sort_numbers(const Pool<B, T>& pool, const FixedPoint& fixed) {
  const Work& work = pool.work;
  const auto [begin, end] = stretch_of_thread(pool.num_rows);
  const auto number_at = [&](int32_t place) { return fixed(pool.scores[pool.order[place]]); };
  int32_t place_before = begin - 1;
  while (place_before >= 0 && !pool.has_place(place_before)) {
    --place_before;
  }
  const int64_t number_before = place_before >= 0 ? number_at(place_before) : -1;
  int64_t counts = 0, sum = 0, previous = number_before;  // counts: distinct values << 32 | rows
  for (int32_t place = begin; place < end; ++place) {
    const int64_t number = pool.has_place(place) ? number_at(place) : -1;
    work.number[place] = number;
    if (number >= 0) {
      counts += (int64_t(number != previous) << 32) + 1;
      sum += number;
      previous = number;
    }
  }
  const Scan scanned_counts = block_scan(counts), scanned_sum = block_scan(sum);
  int32_t distinct = scanned_counts.before >> 32, count = scanned_counts.before & 0xffffffff;
  sum = scanned_sum.before;
  previous = number_before;
  for (int32_t place = begin; place < end; ++place) {
    const int64_t number = work.number[place];
    if (number >= 0) {
      if (number != previous) {
        work.value[distinct] = number;
        work.count[distinct] = count;
        work.sum[distinct] = sum;
        ++distinct;
      }
      count += 1;
      sum += number;
      previous = number;
    }
  }
  const int32_t size = scanned_counts.all >> 32;
  if (threadIdx.x == 0) {
    work.count[size] = scanned_counts.all & 0xffffffff;
    work.sum[size] = scanned_sum.all;
  }
  __syncthreads();
  return {work.value, work.sum, work.count, size};
}

// The lowest number of the top cluster of the optimal 3-means: a thread for each lower threshold.
__device__ inline int64_t top_threshold(const Sorted& sorted) {
  constexpr int32_t wide = 16;  // candidates; more are shared among the lanes
  Split best = each_value_alone(sorted);
  for (int32_t first = warp_of_thread() * kWarp; first < sorted.size; first += kThreads) {
    const int32_t low = first + lane_of_thread();
    const Range range = 1 <= low && low < sorted.size ? candidates(sorted, low) : Range{0, 0};
    const bool is_wide = range.last - range.first > wide;
    for (int32_t high = range.first; !is_wide && high < range.last; ++high) {
      best = better(best, split_at(sorted, low, high));
    }
    for (unsigned left = __ballot_sync(kAllLanes, is_wide); left != 0; left &= left - 1) {
      const int lane = __ffs(left) - 1;
      const int32_t last = __shfl_sync(kAllLanes, range.last, lane);
      const int32_t begin = __shfl_sync(kAllLanes, range.first, lane);
      for (int32_t high = begin + lane_of_thread(); high < last; high += kWarp) {
        best = better(best, split_at(sorted, first + lane, high));
      }
    }
  }
  return sorted.value[block_best(best).high];
}

template <typename B, typename T>
__device__ void clear_nodes(const Pool<B, T>& pool) {
  for (int32_t word = threadIdx.x; word < pool.graph.words; word += kThreads) {
    pool.work.remaining[word] = 0;
  }
  if (threadIdx.x == 0) {
    *pool.work.num_found = 0;
  }
  __syncthreads();
}

template <typename B, typename T>
__device__ void take_top_cluster(const Pool<B, T>& pool) {
  clear_nodes(pool);
  const FixedPoint fixed(pool.scores[pool.order[0]], pool.scores[pool.order[pool.num_rows - 1]]);
  const int64_t threshold = top_threshold(sort_numbers(pool, fixed));
  const auto [begin, end] = stretch_of_thread(pool.num_rows);
  for (int32_t place = begin; place < end; ++place) {
    if (pool.work.number[place] >= threshold) {
      set_bit(pool.work.remaining, pool.order[place]);
    }
  }
  __syncthreads();  // the arrays of the 3-means have been read
}

template <typename B, typename T>
__device__ void take_top_share(const Pool<B, T>& pool) {
  clear_nodes(pool);
  const auto [begin, end] = stretch_of_thread(pool.num_rows);
  int32_t count = 0;
  for (int32_t place = begin; place < end; ++place) {
    count += pool.has_place(place);
  }
  const Scan scanned = block_scan(count);
  const int64_t top = top_count(scanned.all, pool.options.top_share);
  int64_t left = scanned.all - scanned.before;  // from this place on
  for (int32_t place = begin; place < end; ++place) {
    if (pool.has_place(place) && left-- <= top) {
      pool.work.key[pool.order[place]] = place + 1;
      set_bit(pool.work.remaining, pool.order[place]);
    }
  }
  __syncthreads();
}

}  // namespace detector::proposal_clusters

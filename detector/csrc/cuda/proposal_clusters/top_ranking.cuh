// The nodes: the top cluster of the 3-means for PCL, the best share of the pool for MIST. All threads of the
// team call each function.
#pragma once

#include "work.cuh"

namespace detector::proposal_clusters {

// The places in the order, or the words of a set of rows, that a thread walks.
struct Stretch {
  int32_t begin, end;
};

__device__ inline Stretch stretch_of_thread(int32_t size) {
  const int32_t length = (size + kThreads - 1) / kThreads;
  const int32_t begin = min(int32_t(threadIdx.x) * length, size);
  return {begin, min(begin + length, size)};
}

// The numbers of the pool, which is not empty, as distinct values with their counts and sums, by each block.
// Leaves each number in means.number() for the thread that walks its place.
template <typename B, typename T>
__device__ __noinline__ Sorted sort_numbers(const Pool<B, T>& shared_pool, FixedPoint fixed) {
  const Pool<B, T> pool = shared_pool;
  const Means means = pool.work.means;
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
    means.number()[place] = number;
    if (number >= 0) {
      counts += (int64_t(number != previous) << 32) + 1;
      sum += number;
      previous = number;
    }
  }
  const Scan<int64_t> scanned_counts = block_scan(counts), scanned_sum = block_scan(sum);
  int32_t distinct = scanned_counts.before >> 32, count = scanned_counts.before & 0xffffffff;
  sum = scanned_sum.before;
  previous = number_before;
  for (int32_t place = begin; place < end; ++place) {
    const int64_t number = means.number()[place];
    if (number >= 0) {
      if (number != previous) {
        means.value()[distinct] = number;
        means.count()[distinct] = count;
        means.sum()[distinct] = sum;
        ++distinct;
      }
      count += 1;
      sum += number;
      previous = number;
    }
  }
  const int32_t size = scanned_counts.all >> 32;
  if (threadIdx.x == 0) {
    means.count()[size] = scanned_counts.all & 0xffffffff;
    means.sum()[size] = scanned_sum.all;
  }
  __syncthreads();
  return {means.value(), means.sum(), means.count(), size};
}

// The lane whose share holds item `index` of what a warp has to do, given the shares' sums through each lane.
__device__ inline int lane_of_item(int32_t index, int32_t through_this_lane) {
  int lane = 0;
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const int32_t through = __shfl_sync(kAllLanes, through_this_lane, lane + step - 1);
    lane += through <= index ? step : 0;
  }
  return lane;
}

// The lowest number of the top cluster of the optimal 3-means. A warp takes up to 32 lower thresholds at a
// time, fewer if so all warps of the team have some; the upper ones that can go with them, few for most, are
// shared out evenly among its lanes.
__device__ __noinline__ inline int64_t top_threshold(Team team, Means means, Sorted sorted) {
  for (int32_t high = threadIdx.x; high < sorted.size; high += kThreads) {
    means.highest_fit()[high] = sorted.fit(high, sorted.size);
  }
  __syncthreads();
  Split best = each_value_alone(sorted);
  const int32_t warps = team.size * kWarps, at_once = min((sorted.size + warps - 1) / warps, kWarp);
  for (int32_t first = (team.rank * kWarps + warp_of_thread()) * at_once; first < sorted.size;
       first += warps * at_once) {
    const int32_t low = first + lane_of_thread();
    int32_t high = 0, count = 0;  // of the upper thresholds: the first, and how many
    double lowest_fit = 0;
    if (1 <= low && low < sorted.size && lane_of_thread() < at_once) {
      const Bounds bounds = bounds_at(sorted, low);
      high = sorted.first_end(low, bounds.first);
      count = sorted.first_end(low, bounds.last) - high;
      lowest_fit = sorted.fit(0, low);
    }
    const int32_t through = warp_scan(count), pairs = __shfl_sync(kAllLanes, through, kWarp - 1);
    for (int32_t base = 0; base < pairs; base += kWarp) {
      const int32_t pair = min(base + lane_of_thread(), pairs - 1);
      const int lane = lane_of_item(pair, through);
      const int32_t low_of_pair = first + lane;
      const int32_t high_of_pair = __shfl_sync(kAllLanes, high + count - through, lane) + pair;
      const double lowest_of_pair = __shfl_sync(kAllLanes, lowest_fit, lane);
      best = better(best, split_of(lowest_of_pair, sorted.fit(low_of_pair, high_of_pair),
                                   means.highest_fit()[high_of_pair], high_of_pair));
    }
  }
  return sorted.value[team_best(team, best).high];
}

// Lists the rows of the top cluster as nodes, in their order.
template <typename B, typename T>
__device__ Nodes<B> take_top_cluster(const Pool<B, T>& pool) {
  const Sets sets = pool.work.sets;
  const int32_t words = num_words(pool.num_rows);
  for (int32_t word = threadIdx.x; word < words; word += kThreads) {
    sets.top()[word] = 0;
  }
  const FixedPoint fixed(pool.scores[pool.order[0]], pool.scores[pool.order[pool.num_rows - 1]]);
  const int64_t threshold = top_threshold(pool.work.team, pool.work.means, sort_numbers(pool, fixed));
  const auto [begin, end] = stretch_of_thread(pool.num_rows);
  for (int32_t place = begin; place < end; ++place) {
    if (pool.work.means.number()[place] >= threshold) {
      set_bit(sets.top(), pool.order[place]);
    }
  }
  __syncthreads();  // the arrays of the 3-means have been read
  const auto [first, last] = stretch_of_thread(words);
  int64_t count = 0;
  for (int32_t word = first; word < last; ++word) {
    count += __popc(sets.top()[word]);
  }
  const Scan<int64_t> scanned = block_scan(count);
  const auto nodes = pool.work.space.template nodes_for<B>(scanned.all);
  int32_t node = scanned.before;
  for (int32_t word = first; word < last; ++word) {
    for (uint32_t bits = sets.top()[word]; bits != 0; bits &= bits - 1) {
      nodes.row()[node++] = word * 32 + __ffs(bits) - 1;
    }
  }
  return nodes;
}

// Lists the rows of the best share as nodes, best first.
template <typename B, typename T>
__device__ Nodes<B> take_top_share(const Pool<B, T>& pool, double top_share) {
  const auto [begin, end] = stretch_of_thread(pool.num_rows);
  int64_t count = 0;
  for (int32_t place = begin; place < end; ++place) {
    count += pool.has_place(place);
  }
  const Scan<int64_t> scanned = block_scan(count);
  const int64_t top = top_count(scanned.all, top_share);
  const auto nodes = pool.work.space.template nodes_for<B>(top);
  int64_t better = scanned.all - scanned.before;  // rows of the pool from this place on
  for (int32_t place = begin; place < end; ++place) {
    if (pool.has_place(place) && --better < top) {
      nodes.row()[better] = pool.order[place];
    }
  }
  return nodes;
}

}  // namespace detector::proposal_clusters

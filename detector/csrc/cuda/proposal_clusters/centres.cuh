// The centres of each image: centres_kernel.
#pragma once

#include "greedy.cuh"
#include "top_ranking.cuh"

namespace detector::proposal_clusters {

// As they are found, from the first row of an image on.
struct Centres {
  int32_t* rows;     // (sum R,) of the image
  int32_t* columns;  // (sum R,) of the scores
  double* weights;   // (sum R,)
  int32_t* counts;   // (B,)

  __device__ void set(int64_t n, int32_t row, int32_t column, double weight) const {
    rows[n] = row;
    columns[n] = column;
    weights[n] = weight;
  }
};

struct Winner {
  double weight;
  uint32_t key;
  int32_t slot;
};

__device__ inline Winner better(const Winner& a, const Winner& b) {
  return a.weight > b.weight || (a.weight == b.weight && a.key > b.key) ? a : b;
}

// The highest key of the winners, by one warp, that the greedy choice does not come to, since max_centres
// nodes or fewer remain by then; 0 if there are none. The upper half of a key counts the nodes that went with
// it.
template <typename B, typename T>
__device__ uint32_t highest_dropped(const Pool<B, T>& pool) {
  const int32_t found = *pool.work.num_found;
  uint32_t first = 0;  // the key of the winner that is always kept
  for (int32_t slot = lane_of_thread(); slot < found; slot += kWarp) {
    first = max(first, pool.work.found[slot]);
  }
  first = warp_max(first);
  uint32_t dropped = 0;
  for (int64_t remaining = 0;;) {
    uint32_t last = first;
    for (int32_t slot = lane_of_thread(); slot < found; slot += kWarp) {
      const uint32_t key = pool.work.found[slot];
      last = key > dropped ? min(last, key) : last;
    }
    last = ~warp_max(~last);
    remaining += last >> 16;
    if (last == first || remaining > pool.options.max_centres) {
      return dropped;
    }
    dropped = last;
  }
}

// Each chooser calls choose(n, row, weight) for its n-th centre, n from 0, and returns the number of centres
// to thread 0.

// PCL, by one warp: the max_centres winners of most weight. Of equals the first to win goes first.
template <typename B, typename T, typename Choose>
__device__ int32_t choose_best(const Pool<B, T>& pool, const Choose& choose) {
  uint32_t* const keys = pool.work.found;
  const int32_t found = *pool.work.num_found;
  const uint32_t dropped = highest_dropped(pool);
  for (int32_t n = 0; n < pool.options.max_centres; ++n) {
    Winner best{0, 0, -1};
    for (int32_t slot = lane_of_thread(); slot < found; slot += kWarp) {
      if (keys[slot] > dropped) {
        best = better(best, Winner{pool.work.weight[slot], keys[slot], slot});
      }
    }
    best = warp_best(best);
    if (best.slot < 0) {
      return n;
    }
    if (lane_of_thread() == 0) {
      choose(n, row_of_key(pool, best.key), best.weight);
      keys[best.slot] = 0;
    }
    __syncwarp();
  }
  return pool.options.max_centres;
}

// MIST: all winners, best first.
template <typename B, typename T, typename Choose>
__device__ int32_t choose_all(const Pool<B, T>& pool, const Choose& choose) {
  const uint32_t* const keys = pool.work.found;
  const int32_t found = *pool.work.num_found;
  for (int32_t slot = threadIdx.x; slot < found; slot += kThreads) {
    int32_t n = 0;
    for (int32_t other = 0; other < found; ++other) {
      n += keys[other] > keys[slot];
    }
    choose(n, row_of_key(pool, keys[slot]), pool.work.weight[slot]);
  }
  return found;
}

// OICR: the best row of the pool, the first of equals.
template <typename B, typename T, typename Choose>
__device__ int32_t choose_one(const Pool<B, T>& pool, const Choose& choose) {
  Winner best{0, 0, -1};
  for (int32_t row = threadIdx.x; row < pool.num_rows; row += kThreads) {
    if (!has_bit(pool.work.chosen, row)) {
      best = better(best, Winner{double(pool.scores[row]), ~uint32_t(row), row});
    }
  }
  best = block_best(best);
  if (threadIdx.x == 0) {
    choose(0, best.slot, best.weight);
  }
  return 1;
}

// A block an image, class after class.
template <typename B, typename T>
__global__ void __launch_bounds__(kThreads)
    centres_kernel(Matrix<B> boxes, Matrix<T> scores, int64_t num_classes, Matrix<float> image_labels,
                   Batch batch, Options options, const uint64_t* graph_bits, int64_t graph_size,
                   const uint16_t* order, int64_t* global_work, int64_t shared_size, Centres centres) {
  extern __shared__ int64_t shared_work[];
  __shared__ int32_t num_centres, num_found;
  const int64_t index = blockIdx.x;
  const Image image = image_at(batch, index);
  const int32_t num_rows = image.num_rows;
  const bool fits = work_words(num_rows, 1) <= shared_size;
  const Work work(fits ? shared_work : global_work + work_words(image.begin, index), num_rows, &num_found);
  const bool has_graph = image.graph_begin + graph_words(num_rows) <= graph_size;
  const Graph<B> graph{has_graph ? graph_bits + image.graph_begin : nullptr, int32_t(num_words(num_rows)),
                       boxes.from_row(image.begin), static_cast<B>(options.edge_iou)};
  for (int32_t word = threadIdx.x; word < graph.words; word += kThreads) {
    work.chosen[word] = 0;
  }
  if (threadIdx.x == 0) {
    num_centres = 0;
  }
  __syncthreads();
  for_each_positive(image_labels.row(index), num_classes, [&](int64_t column) {
    const int32_t before = num_centres;
    __syncthreads();  // all have read it
    if (before == num_rows) {
      return;  // the pool is empty
    }
    const Pool<B, T> pool{graph,
                          work,
                          options,
                          {scores.from_row(image.begin).column(column)},
                          order + column * batch.num_rows + image.begin,
                          num_rows};
    const auto choose = [&](int32_t n, int32_t row, double weight) {
      centres.set(image.begin + before + n, row, column, weight);
      set_bit(work.chosen, row);
    };
    int32_t chosen = 0;
    if (options.method == Method::oicr) {
      chosen = choose_one(pool, choose);
    } else if (options.method == Method::mist) {
      take_top_share(pool);
      find_winners(pool);
      chosen = choose_all(pool, choose);
    } else {
      take_top_cluster(pool);
      find_winners(pool);
      chosen = warp_of_thread() == 0 ? choose_best(pool, choose) : 0;
    }
    if (threadIdx.x == 0) {
      num_centres = before + chosen;
    }
    __syncthreads();
  });
  if (threadIdx.x == 0) {
    centres.counts[index] = num_centres;
  }
}

}  // namespace detector::proposal_clusters

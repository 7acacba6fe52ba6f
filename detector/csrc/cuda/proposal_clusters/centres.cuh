// The centres of each image: centres_kernel.
#pragma once

#include "greedy.cuh"
#include "top_ranking.cuh"

namespace detector::proposal_clusters {

// As they are found, from the place of an image's first row on.
struct Centres {
  int32_t* rows;     // (S, sum R) of the image
  int32_t* columns;  // (S, sum R) of the scores
  double* weights;   // (S, sum R)
  int32_t* counts;   // (S, B)

  __device__ void set(int64_t n, int32_t row, int32_t column, double weight) const {
    rows[n] = row;
    columns[n] = column;
    weights[n] = weight;
  }
};

// Where the bits of a graph go: into what is left of the shared memory or, if they do not fit there, into
// global memory. If they do not fit there either they have no place.
struct GraphSpace {
  uint32_t *shared, *global;
  int64_t shared_words, global_words;

  __device__ uint32_t* bits_for(int64_t num_nodes) const {
    const int64_t words = graph_words(num_nodes);
    return words <= shared_words ? shared : words <= global_words ? global : nullptr;
  }
};

// Each chooser calls choose(n, row, weight) for its n-th centre, n from 0, and returns the number of centres
// to thread 0.

struct Best {
  double weight;
  uint32_t key;
  int32_t index;
};

__device__ inline Best better(const Best& a, const Best& b) {
  return a.weight > b.weight || (a.weight == b.weight && a.key > b.key) ? a : b;
}

template <typename B, typename T>
__device__ Graph<B> make_graph(const Pool<B, T>& pool, int32_t num_nodes, B edge_iou,
                               const GraphSpace& space) {
  const Work<B> work = pool.work;
  __syncthreads();  // the nodes are listed
  for (int32_t i = threadIdx.x; i < num_nodes; i += kThreads) {
    work.box()[i] = box_at(pool.boxes, work.row()[i]);
  }
  __syncthreads();
  return {space.bits_for(num_nodes), work.box(), num_nodes, edge_iou};
}

// The highest key of the winners, by one warp, that the greedy choice does not come to, since max_centres
// nodes or fewer remain by then; 0 if there are none. The upper half of a key counts the nodes that went with
// it.
template <typename B>
__device__ uint32_t highest_dropped(Work<B> work, int32_t found, int64_t max_centres) {
  uint32_t first = 0;  // the key of the winner that is always kept
  for (int32_t i = lane_of_thread(); i < found; i += kWarp) {
    first = max(first, work.found()[i]);
  }
  first = warp_max(first);
  uint32_t dropped = 0;
  for (int64_t remaining = 0;;) {
    uint32_t last = first;
    for (int32_t i = lane_of_thread(); i < found; i += kWarp) {
      const uint32_t key = work.found()[i];
      last = key > dropped ? min(last, key) : last;
    }
    last = ~warp_max(~last);
    remaining += last >> 16;
    if (last == first || remaining > max_centres) {
      return dropped;
    }
    dropped = last;
  }
}

// PCL: the max_centres winners of most weight, which is the best score of the nodes that went with them. Of
// equals the first to win goes first.
template <typename B, typename T, typename Choose>
__device__ int32_t choose_best(const Pool<B, T>& pool, const Options& options, const GraphSpace& space,
                               const Choose& choose) {
  const Work<B> work = pool.work;
  const int32_t num_nodes = take_top_cluster(pool);
  const auto graph = make_graph(pool, num_nodes, static_cast<B>(options.edge_iou), space);
  const int32_t found = find_winners(work, graph, true);
  for (int32_t i = threadIdx.x; i < found; i += kThreads) {
    work.weight()[i] = 0;
  }
  __syncthreads();
  for (int32_t i = threadIdx.x; i < num_nodes; i += kThreads) {
    atomicMax(reinterpret_cast<long long*>(work.weight()) + work.owner()[i],
              __double_as_longlong(double(pool.scores[work.row()[i]])));
  }
  __syncthreads();
  if (warp_of_thread() != 0) {
    return 0;
  }
  const uint32_t dropped = highest_dropped(work, found, options.max_centres);
  for (int32_t n = 0; n < options.max_centres; ++n) {
    Best best{0, 0, -1};
    for (int32_t i = lane_of_thread(); i < found; i += kWarp) {
      if (work.found()[i] > dropped) {
        best = better(best, Best{__longlong_as_double(work.weight()[i]), work.found()[i], i});
      }
    }
    best = warp_best(best);
    if (best.index < 0) {
      return n;
    }
    __syncwarp();
    if (lane_of_thread() == 0) {
      choose(n, work.row()[node_of_key(best.key)], best.weight);
      work.found()[best.index] = 0;
    }
    __syncwarp();
  }
  return options.max_centres;
}

// MIST: all winners, best first. A winner's weight is its score.
template <typename B, typename T, typename Choose>
__device__ int32_t choose_all(const Pool<B, T>& pool, const Options& options, const GraphSpace& space,
                              const Choose& choose) {
  const Work<B> work = pool.work;
  const int32_t num_nodes = take_top_share(pool, options.top_share);
  const auto graph = make_graph(pool, num_nodes, static_cast<B>(options.edge_iou), space);
  const int32_t found = find_winners(work, graph, false);
  for (int32_t i = threadIdx.x; i < found; i += kThreads) {
    int32_t n = 0;
    for (int32_t other = 0; other < found; ++other) {
      n += work.found()[other] > work.found()[i];
    }
    const int32_t row = work.row()[node_of_key(work.found()[i])];
    choose(n, row, double(pool.scores[row]));
  }
  return found;
}

// OICR: the best row of the pool, the first of equals.
template <typename B, typename T, typename Choose>
__device__ int32_t choose_one(const Pool<B, T>& pool, const Choose& choose) {
  Best best{0, 0, -1};
  for (int32_t row = threadIdx.x; row < pool.num_rows; row += kThreads) {
    if (!has_bit(pool.work.chosen(), row)) {
      best = better(best, Best{double(pool.scores[row]), ~uint32_t(row), row});
    }
  }
  best = block_best(best);
  if (threadIdx.x == 0) {
    choose(0, best.index, best.weight);
  }
  return 1;
}

// Global memory for what shared memory cannot hold.
struct Scratch {
  char* work;           // Work of the images of each stream
  int64_t work_stride;  // bytes of a stream
  uint32_t* graph;      // a graph of each image of each stream
  int64_t graph_words;  // of one
};

// A block an image and stream, class after class.
template <typename B, typename T>
__global__ void __launch_bounds__(kThreads)
    centres_kernel(Matrix<B> boxes, Streams<T> streams, int64_t num_classes, Matrix<float> image_labels,
                   Batch batch, Options options, const uint16_t* order, Scratch scratch, int64_t shared_bytes,
                   Centres centres) {
  extern __shared__ __align__(64) char shared[];
  __shared__ int32_t num_centres;
  const int64_t stream = blockIdx.x / batch.num_images, index = blockIdx.x % batch.num_images;
  const Image image = image_at(batch, stream, index);
  const int32_t num_rows = image.num_rows;
  const int64_t work_bytes = Work<B>::bytes(num_rows, 1);
  const bool fits = work_bytes <= shared_bytes;
  const Work<B> work{
      fits ? shared : scratch.work + stream * scratch.work_stride + Work<B>::bytes(image.begin, index),
      num_rows};
  const int64_t shared_used = fits ? work_bytes : 0;
  const GraphSpace space{reinterpret_cast<uint32_t*>(shared + shared_used),
                         scratch.graph + int64_t(blockIdx.x) * scratch.graph_words,
                         (shared_bytes - shared_used) / int64_t(sizeof(uint32_t)), scratch.graph_words};
  for (int32_t word = threadIdx.x; word < num_words(num_rows); word += kThreads) {
    work.chosen()[word] = 0;
  }
  if (threadIdx.x == 0) {
    num_centres = 0;
  }
  __syncthreads();
  const Matrix<T> scores = streams[stream].from_row(image.begin);
  for_each_positive(image_labels.row(index), num_classes, [&](int64_t column) {
    const int32_t before = num_centres;
    __syncthreads();  // all have read it
    if (before == num_rows) {
      return;  // the pool is empty
    }
    const Pool<B, T> pool{work,
                          boxes.from_row(image.begin),
                          {scores.column(column)},
                          order + (stream * num_classes + column) * batch.num_rows + image.begin,
                          num_rows};
    const auto choose = [&](int32_t n, int32_t row, double weight) {
      centres.set(image.place + before + n, row, column, weight);
      set_bit(work.chosen(), row);
    };
    const int32_t chosen = options.method == Method::oicr   ? choose_one(pool, choose)
                           : options.method == Method::mist ? choose_all(pool, options, space, choose)
                                                            : choose_best(pool, options, space, choose);
    if (threadIdx.x == 0) {
      num_centres = before + chosen;
    }
    __syncthreads();
  });
  if (threadIdx.x == 0) {
    centres.counts[blockIdx.x] = num_centres;
  }
}

}  // namespace detector::proposal_clusters

// The centers of each image: proposal_clusters_centers_kernel.
#pragma once

#include "choose.cuh"

namespace detector::proposal_clusters {

// As they are found, from the place of an image's first row on.
struct Centers {
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

// Global memory for what shared memory cannot hold.
struct Scratch {
  char* means;           // of each block of each image of each stream
  int64_t means_stride;  // bytes of all images of a stream, for one block of a team
  char* nodes;           // of each image of each stream
  int64_t nodes_stride;  // bytes of a stream
  uint32_t* graph;       // a graph of each image of each stream
  int64_t graph_words;   // of one
};

// The sets come first in shared memory, then the 3-means and, in their place, the nodes and their graph.
template <typename B>
__device__ Work work_for(const Batch& batch, const Image& image, int64_t stream, int64_t index,
                         const Team& team, const Scratch& scratch, char* shared, int64_t shared_bytes) {
  const int64_t own_bytes = sets_bytes(image.num_rows, team.size), rest_bytes = shared_bytes - own_bytes;
  const bool means_fit = Means::bytes(image.num_rows, 1) <= rest_bytes;
  char* const rest = shared + own_bytes;
  char* const means = scratch.means + (stream * team.size + team.rank) * scratch.means_stride +
                      Means::bytes(image.begin, index);
  char* const nodes = scratch.nodes + stream * scratch.nodes_stride + Nodes<B>::bytes(image.begin, index);
  uint32_t* const graph = scratch.graph + (stream * batch.num_images + index) * scratch.graph_words;
  return {team,
          {reinterpret_cast<uint32_t*>(shared), int32_t(num_words(image.num_rows))},
          {means_fit ? rest : means, image.num_rows},
          {rest, rest_bytes, nodes, graph, scratch.graph_words}};
}

// A team of blocks an image and stream, class after class.
template <typename B, typename T>
__global__ void __launch_bounds__(kThreads)
    proposal_clusters_centers_kernel(Matrix<B> boxes, Streams<T> streams, int64_t num_classes,
                                     Matrix<float> image_labels, Batch batch, Options options,
                                     const uint16_t* order, Scratch scratch, int64_t shared_bytes,
                                     int32_t team_size, Centers centers) {
  extern __shared__ __align__(64) char shared[];
  __shared__ int32_t num_centers;
  __shared__ Pool<B, T> pool;  // in the registers of every thread it would take half of them
  const Team team{int32_t(blockIdx.x) % team_size, team_size};
  const int64_t image_of_stream = blockIdx.x / team_size;
  const int64_t stream = image_of_stream / batch.num_images, index = image_of_stream % batch.num_images;
  const Image image = image_at(batch, stream, index);
  const Work work = work_for<B>(batch, image, stream, index, team, scratch, shared, shared_bytes);
  for (int32_t word = threadIdx.x; word < work.sets.words; word += kThreads) {
    work.sets.chosen()[word] = 0;
  }
  if (threadIdx.x == 0) {
    num_centers = 0;
  }
  team.sync();  // all blocks are there, so that others can write to them
  for_each_positive(image_labels.row(index), num_classes, [&](int64_t column) {
    const int32_t before = num_centers;
    if (before == image.num_rows) {
      return;  // the pool is empty
    }
    if (threadIdx.x == 0) {
      pool = {work,
              boxes.from_row(image.begin),
              {streams[stream].from_row(image.begin).column(column)},
              order + (stream * num_classes + column) * batch.num_rows + image.begin,
              image.num_rows};
    }
    __syncthreads();
    const auto choose = [&](int32_t n, int32_t row, double weight) {
      centers.set(image.place + before + n, row, column, weight);
      for (int32_t other = 0; other < team.size; ++other) {
        set_bit(team.in_block(other, work.sets.chosen()), row);
      }
    };
    const int32_t chosen = options.method == Method::oicr   ? choose_one(pool, choose)
                           : options.method == Method::mist ? choose_all(pool, options, choose)
                                                            : choose_best(pool, options, choose);
    if (team.rank == 0 && threadIdx.x == 0) {
      for (int32_t other = 0; other < team.size; ++other) {
        *team.in_block(other, &num_centers) = before + chosen;
      }
    }
    team.sync();
  });
  if (team.rank == 0 && threadIdx.x == 0) {
    centers.counts[image_of_stream] = num_centers;
  }
}

}  // namespace detector::proposal_clusters

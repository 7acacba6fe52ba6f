// What the host decides before the launches: how many blocks make a team, and the space for what they work
// in.
#pragma once

#include "../launch.cuh"
#include "centers.cuh"

namespace detector::proposal_clusters {

// Bytes of what the kernels work in. What fits into shared memory for every image has 0.
struct Space {
  int64_t means_of_stream;  // for one block of a team
  int64_t nodes_of_stream;
  int64_t graph_of_image;
  int64_t order, centers;

  int64_t all(const Batch& batch, int64_t team_size) const {
    return batch.num_streams * (team_size * means_of_stream + nodes_of_stream) +
           batch.num_streams * batch.num_images * graph_of_image + order + centers;
  }
};

// The rows of the largest image. `counts`, if on the CPU, tells; if not it may have all rows.
inline int64_t largest_image(const Tensor& counts, const Batch& batch) {
  if (!counts.is_cpu()) {
    return std::min(batch.num_rows, kMaxRows);
  }
  const auto count = vector_view<int64_t>(counts);
  int64_t largest = 0;
  for (int64_t i = 0; i < counts.size(0); ++i) {
    largest = std::max(largest, count[i]);
  }
  return largest;
}

// Of a block of centers_kernel: what the largest image needs, or all there is.
template <typename B>
int64_t shared_bytes(Method method, int64_t largest) {
  constexpr int64_t static_shared = 4 << 10;  // what the kernel declares by itself, generously
  const int64_t most = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const int64_t graph = graph_words(largest, 1) * int64_t(sizeof(uint32_t));
  const int64_t rest =
      method == Method::oicr ? 0 : std::max(Means::bytes(largest, 1), Nodes<B>::bytes(largest, 1) + graph);
  return std::min(Sets::bytes(largest) + rest, most - static_shared);
}

// A graph that would take more than its share of memory is not kept: its bits are computed where they are
// needed, which is slow but needs no space.
template <typename B>
Space plan_space(Method method, int64_t largest, int64_t shared, const Batch& batch, int64_t num_classes,
                 int64_t team_size) {
  constexpr int64_t most_graphs = int64_t(1) << 28;
  const int64_t cells = batch.num_streams * batch.num_rows, teams = batch.num_streams * batch.num_images;
  Space space{0, 0, 0, 0, cells * int64_t(sizeof(double) + 2 * sizeof(int32_t)) + teams * 4};
  if (method == Method::oicr) {
    return space;
  }
  const int64_t rest = shared - Sets::bytes(largest), nodes = Nodes<B>::bytes(largest, 1);
  const int64_t graph = team_size * graph_words(largest, team_size) * int64_t(sizeof(uint32_t));
  if (method == Method::pcl && Means::bytes(largest, 1) > rest) {
    space.means_of_stream = Means::bytes(batch.num_rows, batch.num_images);
  }
  if (nodes > rest) {
    space.nodes_of_stream = Nodes<B>::bytes(batch.num_rows, batch.num_images);
  }
  if (nodes + graph / team_size > rest) {
    space.graph_of_image = std::min((graph + 7) / 8 * 8, most_graphs / std::max<int64_t>(teams, 1) / 8 * 8);
  }
  space.order = (num_classes * cells * int64_t(sizeof(uint16_t)) + 7) / 8 * 8;
  return space;
}

// How centers_kernel is launched.
struct TeamLaunch {
  cudaLaunchAttribute cluster{};
  cudaLaunchConfig_t config{};

  TeamLaunch(int64_t teams, int64_t team_size, int64_t shared, cudaStream_t stream) {
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {unsigned(team_size), 1, 1};
    config.gridDim = unsigned(teams * team_size);
    config.blockDim = kThreads;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = team_size > 1;
  }
  TeamLaunch(const TeamLaunch&) = delete;  // config points into this
};

// The blocks of a team: as many as can all be on the GPU at the same time.
template <typename Kernel>
int64_t team_size_for(Kernel* kernel, int64_t teams, int64_t shared) {
  cudaFuncAttributes compiled;
  STD_CUDA_CHECK(cudaFuncGetAttributes(&compiled, kernel));
  const int processors = device_attribute(cudaDevAttrMultiProcessorCount);
  if (compiled.ptxVersion < 90) {  // this GPU's code knows no clusters
    return 1;
  }
  int64_t size = kMostBlocks;
  for (int active = 0; size > 1; size /= 2) {
    if (teams * size <= processors) {
      const TeamLaunch launch(teams, size, shared, nullptr);
      STD_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&active, kernel, &launch.config));
      if (active >= teams) {
        break;
      }
    }
  }
  return size;
}

}  // namespace detector::proposal_clusters

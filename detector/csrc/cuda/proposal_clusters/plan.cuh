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

// The blocks of a team, and the bytes of shared memory that each has.
struct TeamSize {
  int64_t blocks, shared;
};

// What the largest image needs of shared memory, or all there is.
template <typename B>
int64_t shared_bytes(Method method, int64_t largest, int64_t team_size, int64_t most) {
  const int64_t graph = graph_words(largest, 1) * int64_t(sizeof(uint32_t));
  const int64_t rest =
      method == Method::oicr ? 0 : std::max(Means::bytes(largest, 1), Nodes<B>::bytes(largest, 1) + graph);
  return std::min(sets_bytes(largest, team_size) + rest, most);
}

// A graph that would take more than its share of memory is not kept: its bits are computed where they are
// needed, which is slow but needs no space.
template <typename B>
Space plan_space(Method method, int64_t largest, const TeamSize& team, const Batch& batch,
                 int64_t num_classes) {
  constexpr int64_t most_graphs = int64_t(1) << 28;
  const int64_t cells = batch.num_streams * batch.num_rows, teams = batch.num_streams * batch.num_images;
  Space space{0, 0, 0, 0, cells * int64_t(sizeof(double) + 2 * sizeof(int32_t)) + teams * 4};
  if (method == Method::oicr) {
    return space;
  }
  const int64_t rest = team.shared - sets_bytes(largest, team.blocks), nodes = Nodes<B>::bytes(largest, 1);
  const int64_t graph = team.blocks * graph_words(largest, team.blocks) * int64_t(sizeof(uint32_t));
  if (method == Method::pcl && Means::bytes(largest, 1) > rest) {
    space.means_of_stream = Means::bytes(batch.num_rows, batch.num_images);
  }
  if (nodes > rest) {
    space.nodes_of_stream = Nodes<B>::bytes(batch.num_rows, batch.num_images);
  }
  if (nodes + graph / team.blocks > rest) {
    space.graph_of_image = std::min((graph + 7) / 8 * 8, most_graphs / std::max<int64_t>(teams, 1) / 8 * 8);
  }
  space.order = (num_classes * cells * int64_t(sizeof(uint16_t)) + 7) / 8 * 8;
  return space;
}

// How proposal_clusters_centers_kernel is launched.
struct TeamLaunch {
  cudaLaunchAttribute cluster{};
  cudaLaunchConfig_t config{};

  TeamLaunch(int64_t teams, const TeamSize& size, cudaStream_t stream) {
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {unsigned(size.blocks), 1, 1};
    config.gridDim = unsigned(teams * size.blocks);
    config.blockDim = kThreads;
    config.dynamicSmemBytes = size.shared;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = size.blocks > 1;
  }
  TeamLaunch(const TeamLaunch&) = delete;  // config points into this
};

// As many blocks as can all be on the GPU at the same time. One has room for its sets on every GPU.
template <typename B, typename Kernel>
TeamSize plan_team(Kernel* kernel, Method method, int64_t largest, int64_t teams) {
  const CompiledKernel compiled = compiled_kernel(kernel);
  Gpu gpu = current_gpu();
  gpu.architecture = compiled.architecture, gpu.most_shared = compiled.most_shared;
  const auto with_blocks = [&](int64_t blocks) {
    return TeamSize{blocks, shared_bytes<B>(method, largest, blocks, compiled.most_shared)};
  };
  const auto all_run = [&](int64_t blocks) {
    const TeamLaunch launch(teams, with_blocks(blocks), nullptr);
    int active = 0;
    STD_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&active, kernel, &launch.config));
    return active >= teams;
  };
  return with_blocks(team_size({method, largest, teams, gpu, all_run}));
}

}  // namespace detector::proposal_clusters

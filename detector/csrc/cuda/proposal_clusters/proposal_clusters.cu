// Proposal clusters on a GPU, by three kernels (README.md). What was tried, for three streams of 2,000
// proposals on an H200, is in benchmarks/bench_clusters.py.
//
// Wrong values, which the host would have to wait for, give weights of NaN, so that the loss tells of them.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <utility>

#include "../launch.cuh"
#include "centers.cuh"
#include "order.cuh"
#include "plan.cuh"

namespace detector::proposal_clusters {
namespace {

// ---- assignment ----

constexpr int kAssignThreads = 256;

template <typename B, typename T>
__device__ bool is_valid_row(const Matrix<B>& boxes, const Matrix<T>& scores, const Vector<float>& labels,
                             int64_t num_classes, int64_t row) {
  bool valid = is_box(box_at(boxes, row));
  for (int64_t c = 0; c < num_classes; ++c) {
    const float label = labels[c];
    valid = valid && is_label(label) && (label == 0 || std::isfinite(Accumulate<T>(scores(row, c))));
  }
  return valid;
}

constexpr int kAssignCenters = 128;  // at a time

template <typename B>
struct NearestCenter {
  B iou = -1;
  int32_t center = -1, own = -1;  // own: the center that the row is
  bool covers_one = false;        // some center, by options.ignore_cover and cover_iou
};

// Block (s * (B + 1) + i, j) takes every gridDim.y-th stretch of image i's rows; image B has all rows if the
// counts are wrong.
template <typename B, typename T>
__global__ void __launch_bounds__(kAssignThreads)
    proposal_clusters_assign_kernel(Matrix<B> boxes, Streams<T> streams, int64_t num_classes,
                                    Matrix<float> image_labels, Batch batch, Options options, Centers centers,
                                    Outputs<T> out) {
  __shared__ Box<B> center_box[kAssignCenters];
  __shared__ int32_t center_row[kAssignCenters];
  const int64_t stream = blockIdx.x / (batch.num_images + 1), index = blockIdx.x % (batch.num_images + 1);
  const Image image = image_at(batch, stream, index);
  const bool left_over = index == batch.num_images;
  const int64_t num_rows = left_over && !image.valid ? batch.num_rows : image.num_rows;
  const int32_t num_centers =
      num_rows > 0 && !left_over ? centers.counts[stream * batch.num_images + index] : 0;
  const Matrix<B> image_boxes = boxes.from_row(image.begin);
  const Outputs<T> image_out = out.from(image.place);
  const int64_t step = int64_t(gridDim.y) * kAssignThreads;
  for (int64_t first = blockIdx.y * kAssignThreads; first < num_rows; first += step) {
    const int64_t r = first + threadIdx.x;
    const bool exists = r < num_rows;
    const Box<B> box = exists ? box_at(image_boxes, r) : Box<B>{};
    const B box_area = area(box);
    NearestCenter<B> nearest;
    for (int32_t begin = 0; begin < num_centers; begin += kAssignCenters) {
      const int32_t size = min(kAssignCenters, num_centers - begin);
      __syncthreads();  // those before have been read
      if (threadIdx.x < size) {
        const int32_t row = centers.rows[image.place + begin + threadIdx.x];
        center_row[threadIdx.x] = row;
        center_box[threadIdx.x] = box_at(image_boxes, row);
      }
      __syncthreads();
      for (int32_t n = 0; n < size; ++n) {
        const Box<B> center = center_box[n];
        const B center_area = area(center), overlap = iou(box, box_area, center, center_area);
        if (overlap > nearest.iou) {
          nearest.iou = overlap;
          nearest.center = begin + n;
        }
        nearest.own = center_row[n] == r ? begin + n : nearest.own;
        nearest.covers_one |= overlap >= static_cast<B>(options.cover_iou) &&
                              covers(box, center, center_area, static_cast<B>(options.ignore_cover));
      }
    }
    if (!exists) {
      continue;
    }
    const bool valid = !left_over && is_valid_row(boxes, streams[stream], image_labels.row(index),
                                                  num_classes, image.begin + r);
    const bool member = nearest.center >= 0 && nearest.iou >= static_cast<B>(options.member_iou);
    const bool whole = !member && options.ignore_cover > 0 && nearest.covers_one;
    const bool ignored = nearest.center < 0 || nearest.iou < static_cast<B>(options.ignore_iou) || whole;
    const auto weight = Accumulate<T>(ignored ? 0 : centers.weights[image.place + nearest.center]);
    image_out.labels[r] = member ? centers.columns[image.place + nearest.center] + 1 : 0;
    image_out.weights[r] = static_cast<T>(valid ? weight : Accumulate<T>(NAN));
    image_out.clusters[r] = member ? nearest.center : -1;
    image_out.centers[r] = nearest.own;
  }
}

// ---- the host ----

template <typename B, typename T>
void launch(const Tensor& boxes, const Tensor& scores, const Tensor& image_labels, const Tensor& counts,
            const Batch& batch, const Options& options, const Outputs<T>& out) {
  const int64_t num_images = batch.num_images, num_classes = scores.size(2),
                largest = largest_image(counts, batch);
  const int64_t teams = batch.num_streams * num_images, cells = batch.num_streams * batch.num_rows;
  const TeamSize team = plan_team<B>(proposal_clusters_centers_kernel<B, T>, options.method, largest, teams);
  const Space space = plan_space<B>(options.method, largest, team, batch, num_classes);
  const Tensor memory = allocate(boxes, {space.all(batch, team.blocks)}, ScalarType::Byte);
  auto* next = static_cast<char*>(memory.mutable_data_ptr());
  const auto take = [&](int64_t bytes) { return std::exchange(next, next + bytes); };
  const Scratch scratch{take(batch.num_streams * team.blocks * space.means_of_stream),
                        space.means_of_stream,
                        take(batch.num_streams * space.nodes_of_stream),
                        space.nodes_of_stream,
                        reinterpret_cast<uint32_t*>(take(teams * space.graph_of_image)),
                        space.graph_of_image / int64_t(sizeof(uint32_t))};
  auto* order = reinterpret_cast<uint16_t*>(take(space.order));
  auto* weights = reinterpret_cast<double*>(take(cells * int64_t(sizeof(double))));
  auto* rows = reinterpret_cast<int32_t*>(next);
  const Centers centers{rows, rows + cells, weights, rows + 2 * cells};

  const cudaStream_t stream = current_stream(boxes);
  const auto box_view = matrix_view<B>(boxes);
  const Streams<T> streams(scores);
  const auto label_view = matrix_view<float>(image_labels);
  const int64_t rows_an_image = batch.num_rows / std::max<int64_t>(num_images, 1) + 1;
  const auto grid_height = [](int64_t blocks) { return unsigned(std::clamp<int64_t>(blocks, 1, 65535)); };
  if (options.method != Method::oicr && num_images > 0) {
    constexpr int64_t classes_at_once = 8;  // of an image
    const dim3 order_grid(teams, grid_height(rows_an_image / kOrderRows + 1),
                          std::clamp<int64_t>(num_classes, 1, classes_at_once));
    launch_kernel(proposal_clusters_order_kernel<T>, order_grid, kOrderWarps * kWarp, 0, stream, streams,
                  num_classes, label_view, batch, order);
  }
  if (num_images > 0) {
    const TeamLaunch launch(teams, team, stream);
    explain_launch(reinterpret_cast<const void*>(proposal_clusters_centers_kernel<B, T>),
                   launch.config.gridDim, launch.config.blockDim, team.shared);
    STD_CUDA_CHECK(cudaLaunchKernelEx(&launch.config, proposal_clusters_centers_kernel<B, T>, box_view,
                                      streams, num_classes, label_view, batch, options, order, scratch,
                                      team.shared, int32_t(team.blocks), centers));
  }
  const dim3 assign_grid(batch.num_streams * (num_images + 1),
                         grid_height(rows_an_image / kAssignThreads + 1));
  launch_kernel(proposal_clusters_assign_kernel<B, T>, assign_grid, kAssignThreads, 0, stream, box_view,
                streams, num_classes, label_view, batch, options, centers, out);
}

struct Cuda {
  template <typename B, typename T>
  static void run(const Tensor& boxes, const Tensor& scores, const Tensor& image_labels, const Tensor& counts,
                  const Options& options, const Outputs<T>& out) {
    const Tensor counts_there = torch::stable::to(counts, boxes.device(), /*non_blocking=*/true);
    const Batch batch{vector_view<int64_t>(counts_there), scores.size(0), counts.size(0), boxes.size(0)};
    launch<B>(boxes, scores, image_labels, counts, batch, options, out);
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) { m.impl("proposal_clusters", TORCH_BOX(&clusters<Cuda>)); }

}  // namespace detector::proposal_clusters

// Proposal clusters on a GPU: at most four launches whatever the images and classes, and the host never
// waits.
//
//   graph_kernel    PCL, MIST   a bit for each pair of rows of an image: their IoU is greater than edge_iou
//   order_kernel    PCL, MIST   the rows of each positive class in the order of their scores
//   centres_kernel  a block an image: the centres, class after class
//   assign_kernel   every row to its nearest centre
//
// Wrong values, which the host would have to wait for, give weights of NaN, so that the loss tells of them.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <tuple>

#include "launch.cuh"
#include "proposal_clusters/centres.cuh"
#include "proposal_clusters/graph.cuh"
#include "proposal_clusters/order.cuh"

namespace detector::proposal_clusters {
namespace {

// ---- assignment ----

constexpr int kAssignThreads = 256;

template <typename T>
struct Outputs {
  int64_t* labels;
  T* weights;
  int64_t* clusters;
  int64_t* centres;
};

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

// Block (i, j) takes every gridDim.y-th stretch of image i's rows; i = num_images has all rows if the counts
// are wrong.
template <typename B, typename T>
__global__ void __launch_bounds__(kAssignThreads)
    assign_kernel(Matrix<B> boxes, Matrix<T> scores, int64_t num_classes, Matrix<float> image_labels,
                  Batch batch, Options options, Centres centres, Outputs<T> out) {
  const int64_t index = blockIdx.x;
  const Image image = image_at(batch, index);
  const bool left_over = index == batch.num_images;
  const int64_t num_rows = left_over && !image.valid ? batch.num_rows : image.num_rows;
  const int32_t num_centres = num_rows > 0 && !left_over ? centres.counts[index] : 0;
  const Matrix<B> image_boxes = boxes.from_row(image.begin);
  const int64_t step = int64_t(gridDim.y) * kAssignThreads;
  for (int64_t r = blockIdx.y * kAssignThreads + threadIdx.x; r < num_rows; r += step) {
    const int64_t row = image.begin + r;
    const Box<B> box = box_at(boxes, row);
    const B box_area = area(box);
    B highest = -1;
    int32_t nearest = -1, own = -1;
    for (int32_t n = 0; n < num_centres; ++n) {
      const int32_t centre_row = centres.rows[image.begin + n];
      const Box<B> centre = box_at(image_boxes, centre_row);
      const B overlap = iou(box, box_area, centre, area(centre));
      if (overlap > highest) {
        highest = overlap;
        nearest = n;
      }
      own = centre_row == r ? n : own;
    }
    const bool valid = !left_over && is_valid_row(boxes, scores, image_labels.row(index), num_classes, row);
    const bool member = nearest >= 0 && highest >= static_cast<B>(options.member_iou);
    const bool ignored = nearest < 0 || highest < static_cast<B>(options.ignore_iou);
    const auto weight = Accumulate<T>(ignored ? 0 : centres.weights[image.begin + nearest]);
    out.labels[row] = member ? centres.columns[image.begin + nearest] + 1 : 0;
    out.weights[row] = static_cast<T>(valid ? weight : Accumulate<T>(NAN));
    out.clusters[row] = member ? nearest : -1;
    out.centres[row] = own;
  }
}

// ---- the host ----

// Sizes of what the kernels work in, all in units of 8 bytes but the last.
struct Space {
  int64_t graph, order, work, centres;
  int64_t shared;  // bytes of a block of centres_kernel
};

// `counts`, if on the CPU, gives the graph exactly. If not the graph may be too small for the worst batch;
// then its bits are computed where they are needed, which is slow but needs no space.
Space plan_space(const Options& options, const Tensor& counts, int64_t num_rows, int64_t num_classes,
                 int device) {
  constexpr int64_t most_graph = int64_t(1) << 25;  // 256 MB
  constexpr int64_t most_shared = 132 << 10;        // 4,000 rows; the rest of the SM caches the graph
  const int64_t num_images = counts.size(0);
  int64_t graph = num_rows * num_words(num_rows), largest = std::min(num_rows, kMaxRows);
  if (counts.is_cpu()) {
    const auto count = vector_view<int64_t>(counts);
    graph = largest = 0;
    for (int64_t i = 0; i < num_images; ++i) {
      graph += graph_words(count[i]);
      largest = std::max(largest, count[i]);
    }
  }
  int shared_of_device = 0;
  STD_CUDA_CHECK(cudaDeviceGetAttribute(&shared_of_device, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  constexpr int64_t static_shared = 4 << 10;  // what the kernel declares by itself, generously
  const int64_t shared = std::min(
      {work_words(largest, 1) * int64_t(sizeof(int64_t)), most_shared, shared_of_device - static_shared});
  const bool needs_graph = options.method != Method::oicr;
  return {needs_graph ? std::min(graph, most_graph) : 0,
          needs_graph ? (num_classes * num_rows + 3) / 4 : 0,  // 16 bits each
          work_words(num_rows, num_images),
          num_rows + num_rows + (num_images + 1) / 2,  // weights; rows and columns; counts
          shared};
}

template <typename B, typename T>
void launch(const Tensor& boxes, const Tensor& scores, const Tensor& image_labels, const Batch& batch,
            const Options& options, const Space& space, const Outputs<T>& out) {
  const int64_t num_rows = batch.num_rows, num_images = batch.num_images, num_classes = scores.size(1);
  const Tensor scratch = torch::stable::new_empty(
      boxes, {space.graph + space.order + space.work + space.centres}, ScalarType::Long);
  auto* graph = static_cast<uint64_t*>(scratch.mutable_data_ptr());
  auto* order = reinterpret_cast<uint16_t*>(graph + space.graph);
  auto* work = reinterpret_cast<int64_t*>(graph + space.graph + space.order);
  auto* weights = reinterpret_cast<double*>(work + space.work);
  auto* rows = reinterpret_cast<int32_t*>(weights + num_rows);
  const Centres centres{rows, rows + num_rows, weights, rows + 2 * num_rows};

  const cudaStream_t stream = current_stream(boxes);
  const auto box_view = matrix_view<B>(boxes);
  const auto score_view = matrix_view<T>(scores);
  const auto label_view = matrix_view<float>(image_labels);
  const int64_t rows_an_image = num_rows / std::max<int64_t>(num_images, 1) + 1;
  const auto grid_height = [](int64_t blocks) { return unsigned(std::clamp<int64_t>(blocks, 1, 65535)); };
  if (options.method != Method::oicr && num_images > 0) {
    const int64_t tiles = (rows_an_image / kTileRows + 1) * (rows_an_image / (64 * kTileWords) + 1);
    const dim3 graph_grid(num_images, grid_height(tiles / kGraphWarps + 1));
    graph_kernel<B><<<graph_grid, kGraphWarps * kWarp, 0, stream>>>(
        box_view, batch, static_cast<B>(options.edge_iou), graph, space.graph);
    STD_CUDA_KERNEL_LAUNCH_CHECK();
    constexpr int64_t classes_at_once = 8;  // of an image
    const dim3 order_grid(num_images, grid_height(rows_an_image / kOrderRows + 1),
                          std::clamp<int64_t>(num_classes, 1, classes_at_once));
    order_kernel<T>
        <<<order_grid, kOrderWarps * kWarp, 0, stream>>>(score_view, num_classes, label_view, batch, order);
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  }
  if (num_images > 0) {
    STD_CUDA_CHECK(cudaFuncSetAttribute(centres_kernel<B, T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        int(space.shared)));
    centres_kernel<B, T><<<num_images, kThreads, space.shared, stream>>>(
        box_view, score_view, num_classes, label_view, batch, options, graph, space.graph, order, work,
        space.shared / int64_t(sizeof(int64_t)), centres);
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  }
  const dim3 assign_grid(num_images + 1, grid_height(rows_an_image / kAssignThreads + 1));
  assign_kernel<B, T><<<assign_grid, kAssignThreads, 0, stream>>>(box_view, score_view, num_classes,
                                                                  label_view, batch, options, centres, out);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

void refuse_bad_values(const Tensor& boxes, const Tensor& scores, const Tensor& image_labels,
                       const Tensor& counts) {
  check_values(on_host(boxes), on_host(scores), on_host(image_labels), on_host(counts));
}

std::tuple<Tensor, Tensor, Tensor, Tensor> clusters_cuda(const Tensor& boxes, const Tensor& scores,
                                                         const Tensor& image_labels, const Tensor& counts,
                                                         int64_t method, double edge_iou, int64_t max_centres,
                                                         double top_share, double member_iou,
                                                         double ignore_iou) {
  check_arguments(boxes, scores, image_labels, counts);
  if (counts.is_cpu()) {
    image_starts(counts, boxes.size(0));  // refuses wrong counts; costs nothing here
  }
  if (validate_values()) {
    refuse_bad_values(boxes, scores, image_labels, counts);
  }
  const auto guard = device_guard(boxes);
  const Options options{Method(method), edge_iou, max_centres, top_share, member_iou, ignore_iou};
  const auto column = [&](ScalarType type) {
    return torch::stable::new_empty(scores, {scores.size(0)}, type);
  };
  Tensor labels = column(ScalarType::Long), weights = column(scores.scalar_type());
  Tensor clusters = column(ScalarType::Long), centres = column(ScalarType::Long);
  if (boxes.size(0) == 0) {
    return {labels, weights, clusters, centres};
  }
  const Tensor counts_there = torch::stable::to(counts, boxes.device(), /*non_blocking=*/true);
  const Batch batch{vector_view<int64_t>(counts_there), counts.size(0), boxes.size(0)};
  const Space space = plan_space(options, counts, boxes.size(0), scores.size(1), boxes.get_device_index());
  dispatch_floating("proposal_clusters", "scores", scores.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const Outputs<T> out{static_cast<int64_t*>(labels.mutable_data_ptr()),
                         static_cast<T*>(weights.mutable_data_ptr()),
                         static_cast<int64_t*>(clusters.mutable_data_ptr()),
                         static_cast<int64_t*>(centres.mutable_data_ptr())};
    if (boxes.scalar_type() == ScalarType::Double) {
      launch<double>(boxes, scores, image_labels, batch, options, space, out);
    } else {
      launch<float>(boxes, scores, image_labels, batch, options, space, out);
    }
  });
  return {labels, weights, clusters, centres};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) { m.impl("proposal_clusters", TORCH_BOX(&clusters_cuda)); }

}  // namespace detector::proposal_clusters

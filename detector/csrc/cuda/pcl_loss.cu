// The PCL loss on a GPU: one launch each way, no host synchronization, no float atomics.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <vector>

#include "../pcl_loss.h"
#include "launch.cuh"
#include "reduce.cuh"

namespace detector::pcl_loss {
namespace {

constexpr int kForwardThreads = kWarp * kWarp;
constexpr int kBackwardWarps = 8;

struct Batch {
  Vector<int64_t> counts;  // data is null where all rows are one image
  int64_t num_images;
  int64_t num_rows;
};

struct Range {
  int64_t begin, end;
};

// The rows of an image; image num_images holds the rows that wrong counts leave over. Each warp sums for
// itself.
__device__ Range rows_of(const Batch& batch, int64_t image) {
  const int64_t all = batch.num_rows;
  if (batch.counts.data == nullptr) {
    return image == 0 ? Range{0, all} : Range{all, all};
  }
  const auto count = [&](int64_t i) { return min(max(batch.counts[i], int64_t(0)), all); };
  int64_t before = 0;
  for (int64_t i = lane_of_thread(); i < image; i += kWarp) {
    before += count(i);
  }
  const int64_t begin = min(warp_reduce(before, Sum{}), all);
  return {begin, image < batch.num_images ? min(begin + count(image), all) : all};
}

// One block an image, in three passes: every row alone; every cluster, by one warp that walks the rows in
// order; every member. `slopes` (sum R,) holds the members' probabilities between the first pass and the
// last; `table` (sum R,) is scratch for the slopes of the clusters, from the image's first row on.
template <typename T, typename A>
__global__ void __launch_bounds__(kForwardThreads)
    pcl_loss_forward_kernel(Matrix<T> probs, int64_t num_columns, Vector<int64_t> labels, Vector<T> weights,
                            Vector<int64_t> clusters, Batch batch, T* losses, A* slopes, A* table) {
  const Range range = rows_of(batch, blockIdx.x);
  const int64_t num_rows = range.end - range.begin;
  const A scale = A(1) / A(max(num_rows, int64_t(1)));
  const auto role = [&](int64_t r) { return role_of(labels[r], clusters[r], num_columns, num_rows); };

  A loss = 0;
  int64_t last_cluster = -1;
  for (int64_t r = range.begin + threadIdx.x; r < range.end; r += kForwardThreads) {
    switch (role(r)) {
      case Role::background: {
        const auto term = cluster_term(A(weights[r]), A(probs(r, 0)), A(1));
        loss += term.loss;
        slopes[r] = term.slope * scale;
        break;
      }
      case Role::member:
        slopes[r] = A(probs(r, labels[r]));
        last_cluster = max(last_cluster, clusters[r]);
        break;
      case Role::ignored:
        slopes[r] = 0;
    }
  }
  last_cluster = block_reduce(last_cluster, Max{});  // its barriers also publish `slopes` to the block

  for (int64_t n = warp_of_thread(); n <= last_cluster; n += kWarp) {
    A weight = 0, prob = 0, members = 0;
#pragma unroll 8  // the loads do not wait for each other, nor for the test
    for (int64_t r = range.begin + lane_of_thread(); r < range.end; r += kWarp) {
      const A weight_of_row = weights[r], prob_of_row = slopes[r];
      if (clusters[r] == n & role(r) == Role::member) {
        weight += weight_of_row;
        prob += prob_of_row;
        members += 1;
      }
    }
    weight = warp_reduce(weight, Sum{});
    prob = warp_reduce(prob, Sum{});
    members = warp_reduce(members, Sum{});
    if (lane_of_thread() == 0 && members > 0) {
      const auto term = cluster_term(weight, prob, members);
      loss += term.loss;
      table[range.begin + n] = term.slope * scale;
    }
  }
  loss = block_reduce(loss, Sum{});  // publishes `table` too
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = T(loss * scale);
  }

  for (int64_t r = range.begin + threadIdx.x; r < range.end; r += kForwardThreads) {
    if (role(r) == Role::member) {
      slopes[r] = table[range.begin + clusters[r]];
    }
  }
}

// Block (i, j) takes every gridDim.y-th stretch of image i's rows, one warp a row.
template <typename T, typename A>
__global__ void pcl_loss_backward_kernel(Vector<T> grad, Vector<int64_t> labels, Vector<A> slopes,
                                         Batch batch, int64_t num_columns, T* grad_probs) {
  const int64_t image = blockIdx.x;
  const Range range = rows_of(batch, image);
  const int64_t step = int64_t(gridDim.y) * kBackwardWarps;
  for (int64_t r = range.begin + blockIdx.y * kBackwardWarps + warp_of_thread(); r < range.end; r += step) {
    const int64_t label = image < batch.num_images ? labels[r] : -1;
    for (int64_t c = lane_of_thread(); c < num_columns; c += kWarp) {
      grad_probs[r * num_columns + c] = c == label ? T(A(grad[image]) * slopes[r]) : T(0);
    }
  }
}

Batch batch_of(const std::optional<Tensor>& counts, int64_t num_rows) {
  if (!counts) {
    return {{nullptr, 0}, 1, num_rows};
  }
  return {vector_view<int64_t>(*counts), counts->size(0), num_rows};
}

template <typename T>
void launch_forward(const Tensor& probs, const Tensor& labels, const Tensor& weights, const Tensor& clusters,
                    const Batch& batch, const Tensor& losses, const Tensor& slopes) {
  using A = Accumulate<T>;
  const Tensor table = allocate(slopes, {slopes.size(0)});
  launch_kernel(pcl_loss_forward_kernel<T, A>, batch.num_images, kForwardThreads, 0, current_stream(probs),
                matrix_view<T>(probs), probs.size(1), vector_view<int64_t>(labels), vector_view<T>(weights),
                vector_view<int64_t>(clusters), batch, losses.mutable_data_ptr<T>(),
                slopes.mutable_data_ptr<A>(), table.mutable_data_ptr<A>());
}

template <typename T>
void launch_backward(const Tensor& grad, const Tensor& labels, const Tensor& slopes, const Batch& batch,
                     const Tensor& grad_probs) {
  using A = Accumulate<T>;
  // One more image for rows left over; counts of no image have no data.
  const int64_t images = std::max<int64_t>(batch.num_images + (batch.counts.data != nullptr), 1);
  const int64_t stretches = batch.num_rows / (kBackwardWarps * images) + 1;
  const dim3 grid(images, std::min<int64_t>(stretches, 65535));
  launch_kernel(pcl_loss_backward_kernel<T, A>, grid, kBackwardWarps * kWarp, 0, current_stream(grad),
                vector_view<T>(grad), vector_view<int64_t>(labels), vector_view<A>(slopes), batch,
                grad_probs.size(1), grad_probs.mutable_data_ptr<T>());
}

std::tuple<Tensor, Tensor> forward(const Tensor& probs, const Tensor& labels, const Tensor& weights,
                                   const Tensor& clusters, const std::optional<Tensor>& counts) {
  check_arguments(probs, labels, weights, clusters, counts);
  if (validates_values(probs)) {
    forward_cpu(on_host(probs), on_host(labels), on_host(weights), on_host(clusters),
                counts ? std::make_optional(on_host(*counts)) : std::nullopt);
  }
  const auto guard = device_guard(probs);
  const Batch batch = batch_of(counts, probs.size(0));
  const auto [losses, slopes] = new_results(probs, counts);
  if (batch.num_images > 0) {
    dispatch_floating("pcl_loss", "probs", probs.scalar_type(), [&](auto zero) {
      launch_forward<decltype(zero)>(probs, labels, weights, clusters, batch, losses, slopes);
    });
  }
  return {losses, slopes};
}

Tensor backward(const Tensor& grad, const Tensor& probs, const Tensor& labels, const Tensor& slopes,
                const std::optional<Tensor>& counts) {
  check_backward_arguments(grad, probs, labels, slopes, counts);
  const auto guard = device_guard(probs);
  const Batch batch = batch_of(counts, probs.size(0));
  const Tensor grad_probs = allocate(probs, {probs.size(0), probs.size(1)});
  if (batch.num_rows > 0) {
    dispatch_floating("pcl_loss_backward", "probs", probs.scalar_type(), [&](auto zero) {
      launch_backward<decltype(zero)>(grad, labels, slopes, batch, grad_probs);
    });
  }
  return grad_probs;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("pcl_loss_forward", TORCH_BOX(&forward));
  m.impl("pcl_loss_backward", TORCH_BOX(&backward));
}

}  // namespace detector::pcl_loss

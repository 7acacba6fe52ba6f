// The PCL loss on the CPU. One thread walks an image in row order, so the sums never depend on the number of
// threads; they are taken in double, which costs nothing here.
#include "../pcl_loss.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <tuple>
#include <vector>

namespace detector::pcl_loss {
namespace {

// The first row of each image and, last, the number of rows: (B + 1,).
std::vector<int64_t> image_starts(const std::optional<Tensor>& counts, int64_t num_rows) {
  if (!counts) {
    return {0, num_rows};
  }
  std::vector<int64_t> starts{0};
  const auto count = vector_view<int64_t>(*counts);
  for (int64_t i = 0; i < counts->size(0); ++i) {
    if (count[i] < 0 || count[i] > num_rows - starts.back()) {
      fail("pcl_loss: counts[", i, "] is ", count[i], ", expected 0 to the ", num_rows - starts.back(),
           " rows of probs that are left");
    }
    starts.push_back(starts.back() + count[i]);
  }
  if (starts.back() != num_rows) {
    fail("pcl_loss: counts sum to ", starts.back(), ", but probs has ", num_rows, " rows");
  }
  return starts;
}

struct Cluster {
  double weight = 0, probs = 0, members = 0, slope = 0;
};

template <typename T>
double image_loss(const Matrix<T>& probs, const Vector<int64_t>& labels, const Vector<T>& weights,
                  const Vector<int64_t>& clusters, int64_t begin, int64_t end, Accumulate<T>* slopes) {
  const double rows = end - begin;
  std::vector<Cluster> table(end - begin);
  double loss = 0;
  for (int64_t r = begin; r < end; ++r) {
    const double weight = weights[r], prob = probs(r, labels[r]);
    if (clusters[r] == -1) {
      const auto term = cluster_term(weight, prob, 1.0, rows);
      loss += term.loss;
      slopes[r] = term.slope;
    } else {
      Cluster& cluster = table[clusters[r]];
      cluster.weight += weight;
      cluster.probs += prob;
      cluster.members += 1;
    }
  }
  for (Cluster& cluster : table) {
    if (cluster.members > 0) {
      const auto term = cluster_term(cluster.weight, cluster.probs, cluster.members, rows);
      loss += term.loss;
      cluster.slope = term.slope;
    }
  }
  for (int64_t r = begin; r < end; ++r) {
    if (clusters[r] != -1) {
      slopes[r] = table[clusters[r]].slope;
    }
  }
  return loss;
}

std::tuple<Tensor, Tensor> forward(const Tensor& probs, const Tensor& labels, const Tensor& weights,
                                   const Tensor& clusters, const std::optional<Tensor>& counts) {
  check_arguments(probs, labels, weights, clusters, counts);
  check_values(probs, labels, weights, clusters, counts);
  const auto starts = image_starts(counts, probs.size(0));
  const int64_t num_images = starts.size() - 1;
  const auto batch_shape = counts ? std::vector<int64_t>{num_images} : std::vector<int64_t>{};
  Tensor losses = torch::stable::new_empty(probs, batch_shape);
  Tensor slopes = torch::stable::new_empty(probs, {probs.size(0)}, accumulate_type(probs.scalar_type()));
  dispatch_floating("pcl_loss", "probs", probs.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    auto* loss = static_cast<T*>(losses.mutable_data_ptr());
    auto* slope = static_cast<Accumulate<T>*>(slopes.mutable_data_ptr());
    torch::stable::parallel_for(0, num_images, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        loss[i] = static_cast<T>(image_loss(matrix_view<T>(probs), vector_view<int64_t>(labels),
                                            vector_view<T>(weights), vector_view<int64_t>(clusters),
                                            starts[i], starts[i + 1], slope));
      }
    });
  });
  return {losses, slopes};
}

// Row r of the gradient is zero but for grad * slope in the column of its label.
template <typename T>
void backward_rows(const Vector<T>& grad, const Vector<int64_t>& labels, const Vector<Accumulate<T>>& slopes,
                   const std::vector<int64_t>& starts, int64_t num_columns, int64_t begin, int64_t end,
                   T* grad_probs) {
  std::fill(grad_probs + begin * num_columns, grad_probs + end * num_columns, T(0));
  int64_t image = std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin() - 1;
  for (int64_t r = begin; r < end; ++r) {
    while (r >= starts[image + 1]) {
      ++image;
    }
    if (const int64_t label = labels[r]; 0 <= label && label < num_columns) {
      grad_probs[r * num_columns + label] = static_cast<T>(Accumulate<T>(grad[image]) * slopes[r]);
    }
  }
}

Tensor backward(const Tensor& grad, const Tensor& probs, const Tensor& labels, const Tensor& slopes,
                const std::optional<Tensor>& counts) {
  check_backward_arguments(grad, probs, labels, slopes, counts);
  const int64_t num_rows = probs.size(0), num_columns = probs.size(1);
  const auto starts = image_starts(counts, num_rows);
  Tensor grad_probs = torch::stable::new_empty(probs, {num_rows, num_columns});
  dispatch_floating("pcl_loss_backward", "probs", probs.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    auto* output = static_cast<T*>(grad_probs.mutable_data_ptr());
    constexpr int64_t grain = 4096;  // rows; fewer are written faster than a second thread wakes
    torch::stable::parallel_for(0, num_rows, grain, [&](int64_t begin, int64_t end) {
      backward_rows(vector_view<T>(grad), vector_view<int64_t>(labels), vector_view<Accumulate<T>>(slopes),
                    starts, num_columns, begin, end, output);
    });
  });
  return grad_probs;
}

// `label_of` (R,) remembers the label of each cluster of the image; every entry starts as -1.
void check_assignment(int64_t row, int64_t label, int64_t cluster, int64_t image,
                      std::vector<int64_t>& label_of) {
  const int64_t num_rows = label_of.size();
  if (cluster < -1 || cluster >= num_rows) {
    fail("pcl_loss: clusters[", row, "] is ", cluster, ", expected -1 (background) or a cluster of image ",
         image, ", which has ", num_rows, " rows: 0 to ", num_rows - 1);
  }
  if (cluster == -1) {
    if (label != 0) {
      fail("pcl_loss: labels[", row, "] is ", label, ", expected 0, because clusters[", row,
           "] is -1 (background)");
    }
    return;
  }
  if (label == 0) {
    fail("pcl_loss: labels[", row, "] is 0 (background), expected a class, because clusters[", row, "] is ",
         cluster);
  }
  int64_t& expected = label_of[cluster];
  if (expected != -1 && expected != label) {
    fail("pcl_loss: labels[", row, "] is ", label, ", expected ", expected,
         " as in the other members of cluster ", cluster, " of image ", image);
  }
  expected = label;
}

template <typename T>
void check_numbers(int64_t row, int64_t label, const Matrix<T>& probs, int64_t num_columns,
                   const Vector<T>& weights) {
  if (label < 0 || label >= num_columns) {
    fail("pcl_loss: labels[", row, "] is ", label, ", expected 0 (background) to ", num_columns - 1);
  }
  if (const double prob = probs(row, label); !std::isfinite(prob)) {
    fail("pcl_loss: probs[", row, ", ", label, "] is ", prob, ", expected a finite number");
  }
  if (const double weight = weights[row]; !std::isfinite(weight)) {
    fail("pcl_loss: weights[", row, "] is ", weight, ", expected a finite number");
  }
}

}  // namespace

void check_values(const Tensor& probs, const Tensor& labels, const Tensor& weights, const Tensor& clusters,
                  const std::optional<Tensor>& counts) {
  const auto starts = image_starts(counts, probs.size(0));
  const auto label = vector_view<int64_t>(labels), cluster = vector_view<int64_t>(clusters);
  dispatch_floating("pcl_loss", "probs", probs.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    for (size_t image = 0; image + 1 < starts.size(); ++image) {
      std::vector<int64_t> label_of(starts[image + 1] - starts[image], -1);
      for (int64_t r = starts[image]; r < starts[image + 1]; ++r) {
        check_numbers(r, label[r], matrix_view<T>(probs), probs.size(1), vector_view<T>(weights));
        check_assignment(r, label[r], cluster[r], image, label_of);
      }
    }
  });
}

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) {
  m.impl("pcl_loss_forward", TORCH_BOX(&forward));
  m.impl("pcl_loss_backward", TORCH_BOX(&backward));
}

}  // namespace detector::pcl_loss

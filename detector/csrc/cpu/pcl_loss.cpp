// The PCL loss on the CPU. One thread walks an image in row order, so the bits never depend on the number of
// threads; sums are in double, which costs nothing here. Values are checked on the way.
#include "../pcl_loss.h"

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <vector>

#include "parallel.h"

namespace detector::pcl_loss {
namespace {

constexpr int64_t kGrain = 8192;  // rows; fewer are done before a second thread wakes

// Of the images or, without counts, of all rows.
std::vector<int64_t> starts_of(const std::optional<Tensor>& counts, int64_t num_rows) {
  return counts ? image_starts("pcl_loss", "probs", *counts, num_rows) : std::vector<int64_t>{0, num_rows};
}

struct Cluster {
  int64_t label = 0, members = 0;
  double weight = 0, prob = 0, slope = 0;
};

// The rows of one image.
template <typename T>
struct Image {
  Matrix<T> probs;
  Vector<int64_t> labels;
  Vector<T> weights;
  Vector<int64_t> clusters;
  int64_t num_columns, index, begin, end;

  int64_t num_rows() const { return end - begin; }

  int64_t num_clusters() const {
    int64_t last = -1;
    for (int64_t r = begin; r < end; ++r) {
      if (clusters[r] < -1 || clusters[r] >= num_rows()) {
        fail("pcl_loss: clusters[", r, "] is ", clusters[r],
             ", expected -1 (background) or a cluster of image ", index, ", which has ", num_rows(),
             " rows: 0 to ", num_rows() - 1);
      }
      last = std::max(last, clusters[r]);
    }
    return last + 1;
  }

  // phi_{r,label}
  double prob_of(int64_t r) const {
    const int64_t label = labels[r];
    if (label < 0 || label >= num_columns) {
      fail("pcl_loss: labels[", r, "] is ", label, ", expected 0 (background) to ", num_columns - 1);
    }
    const double prob = probs(r, label);
    const bool valid = 0 <= prob && prob <= 1;  // no NaN
    if (!valid) {
      const bool rounding = prob > 1 && prob < 1.001;  // which would be printed as 1
      fail("pcl_loss: probs[", r, ", ", label, "] is ", rounding ? joined("1 + ", prob - 1) : joined(prob),
           ", expected a probability from 0 to 1");
    }
    return prob;
  }

  double weight_of(int64_t r) const {
    const double weight = weights[r];
    if (!std::isfinite(weight)) {
      fail("pcl_loss: weights[", r, "] is ", weight, ", expected a finite number");
    }
    return weight;
  }

  void check_background(int64_t r) const {
    if (labels[r] != 0) {
      fail("pcl_loss: labels[", r, "] is ", labels[r], ", expected 0, because clusters[", r,
           "] is -1 (background)");
    }
  }

  void check_member(int64_t r, const Cluster& cluster) const {
    if (labels[r] == 0) {
      fail("pcl_loss: labels[", r, "] is 0 (background), expected a class, because clusters[", r, "] is ",
           clusters[r]);
    }
    if (cluster.members > 0 && cluster.label != labels[r]) {
      fail("pcl_loss: labels[", r, "] is ", labels[r], ", expected ", cluster.label,
           " as in the other members of cluster ", clusters[r], " of image ", index);
    }
  }
};

template <typename T, typename A = Accumulate<T>>
double image_loss(const Image<T>& image, A* slopes) {
  const A scale = A(1) / A(std::max<int64_t>(image.num_rows(), 1));
  std::vector<Cluster> table(image.num_clusters());
  double loss = 0;
  for (int64_t r = image.begin; r < image.end; ++r) {
    const double prob = image.prob_of(r), weight = image.weight_of(r);
    if (image.clusters[r] == -1) {
      image.check_background(r);
      const auto term = cluster_term(A(weight), A(prob), A(1));
      loss += term.loss;
      slopes[r] = term.slope * scale;
    } else {
      Cluster& cluster = table[image.clusters[r]];
      image.check_member(r, cluster);
      cluster.label = image.labels[r];
      cluster.members += 1;
      cluster.weight += weight;
      cluster.prob += prob;
    }
  }
  for (Cluster& cluster : table) {
    if (cluster.members > 0) {
      const auto term = cluster_term(cluster.weight, cluster.prob, double(cluster.members));
      loss += term.loss;
      cluster.slope = term.slope * scale;
    }
  }
  for (int64_t r = image.begin; r < image.end; ++r) {
    if (image.clusters[r] != -1) {
      slopes[r] = A(table[image.clusters[r]].slope);
    }
  }
  return loss * scale;
}

// Row r of the gradient is zero but for grad * slope in the column of its label.
template <typename T, typename A = Accumulate<T>>
void backward_rows(const Vector<T>& grad, const Vector<int64_t>& labels, const Vector<A>& slopes,
                   const std::vector<int64_t>& starts, int64_t num_columns, int64_t begin, int64_t end,
                   T* grad_probs) {
  std::fill(grad_probs + begin * num_columns, grad_probs + end * num_columns, T(0));
  int64_t image = std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin() - 1;
  for (int64_t r = begin; r < end; ++r) {
    while (r >= starts[image + 1]) {
      ++image;
    }
    if (const int64_t label = labels[r]; 0 <= label && label < num_columns) {
      grad_probs[r * num_columns + label] = T(A(grad[image]) * slopes[r]);
    }
  }
}

Tensor backward(const Tensor& grad, const Tensor& probs, const Tensor& labels, const Tensor& slopes,
                const std::optional<Tensor>& counts) {
  check_backward_arguments(grad, probs, labels, slopes, counts);
  const int64_t num_rows = probs.size(0), num_columns = probs.size(1);
  const auto starts = starts_of(counts, num_rows);
  const Tensor grad_probs = allocate(probs, {num_rows, num_columns});
  dispatch_floating("pcl_loss_backward", "probs", probs.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    auto* output = grad_probs.mutable_data_ptr<T>();
    parallel_for(num_rows, kGrain, [&](int64_t begin, int64_t end) {
      backward_rows(vector_view<T>(grad), vector_view<int64_t>(labels), vector_view<Accumulate<T>>(slopes),
                    starts, num_columns, begin, end, output);
    });
  });
  return grad_probs;
}

}  // namespace

std::tuple<Tensor, Tensor> forward_cpu(const Tensor& probs, const Tensor& labels, const Tensor& weights,
                                       const Tensor& clusters, const std::optional<Tensor>& counts) {
  check_arguments(probs, labels, weights, clusters, counts);
  const int64_t num_rows = probs.size(0);
  const auto starts = starts_of(counts, num_rows);
  const int64_t num_images = starts.size() - 1;
  const auto results = new_results(probs, counts);
  const auto& losses = std::get<0>(results);  // no structured binding: clang 15 captures none in a lambda
  const auto& slopes = std::get<1>(results);
  dispatch_floating("pcl_loss", "probs", probs.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    auto* loss = losses.mutable_data_ptr<T>();
    auto* slope = slopes.mutable_data_ptr<Accumulate<T>>();
    const int64_t images_of_grain = 1 + kGrain * num_images / (num_rows + 1);
    parallel_for(num_images, images_of_grain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const Image<T> image{matrix_view<T>(probs),
                             vector_view<int64_t>(labels),
                             vector_view<T>(weights),
                             vector_view<int64_t>(clusters),
                             probs.size(1),
                             i,
                             starts[i],
                             starts[i + 1]};
        loss[i] = T(image_loss(image, slope));
      }
    });
  });
  return results;
}

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) {
  m.impl("pcl_loss_forward", TORCH_BOX(&forward_cpu));
  m.impl("pcl_loss_backward", TORCH_BOX(&backward));
}

}  // namespace detector::pcl_loss

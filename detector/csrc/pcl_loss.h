// The PCL loss of one image (Tang et al., PCL: Proposal Cluster Learning, arXiv 1807.03342), for both
// devices:
//
//   L = -(1/R) [ sum over clusters n of S_n log p_n  +  sum over background rows r of w_r log phi_{r,0} ]
//
// Cluster n has the weight S_n = sum of its members' weights and the probability p_n = mean of its members'
// phi_{r,label}. A background row is a cluster of one, so one formula serves both.
#pragma once

#include <cmath>
#include <optional>
#include <tuple>

#include "memory.h"

namespace detector::pcl_loss {

constexpr double kMinProbability = 1e-9;  // log of less is log of this, and has no gradient

enum class Role { background, member, ignored };

// Ignored: a bad label or cluster. The CPU refuses those, which a GPU cannot do without making the host wait.
C10_HOST_DEVICE inline Role role_of(int64_t label, int64_t cluster, int64_t num_columns, int64_t num_rows) {
  if (cluster == -1) {
    return label == 0 ? Role::background : Role::ignored;
  }
  const bool valid = 0 <= cluster && cluster < num_rows && 1 <= label && label < num_columns;
  return valid ? Role::member : Role::ignored;
}

template <typename A>
struct Term {
  A loss;   // what the cluster adds to R L
  A slope;  // R dL / dphi_{r,label}, the same for each of its rows
};

// weight = S_n, prob = sum of the members' probabilities = M_n p_n. A NaN passes through the clamp.
template <typename A>
C10_HOST_DEVICE Term<A> cluster_term(A weight, A prob, A members) {
  const A mean = prob / members;
  if (mean < A(kMinProbability)) {
    return {-weight * std::log(A(kMinProbability)), A(0)};
  }
  return {-weight * std::log(mean), -weight / prob};
}

inline void check_counts(const char* op, const Tensor& counts, const Tensor& probs) {
  check_rank(op, "counts", counts, 1);
  check_dtype(op, "counts", counts, ScalarType::Long);
  check_device(op, "counts", counts, "probs", probs);
}

// Shapes, dtypes and devices; costs nothing, so it is done on every call.
inline void check_arguments(const Tensor& probs, const Tensor& labels, const Tensor& weights,
                            const Tensor& clusters, const std::optional<Tensor>& counts) {
  constexpr const char* op = "pcl_loss";
  dispatch_floating(op, "probs", probs.scalar_type(), [](auto) {});  // before weights are compared with it
  check_rank(op, "probs", probs, 2);
  if (probs.size(1) < 1) {
    fail(op, ": probs has shape ", shape_text(probs),
         ", expected (R, C + 1) with the background in column 0");
  }
  check_argument(op, "labels", labels, {probs.size(0)}, ScalarType::Long, "probs", probs);
  check_argument(op, "weights", weights, {probs.size(0)}, probs.scalar_type(), "probs", probs);
  check_argument(op, "clusters", clusters, {probs.size(0)}, ScalarType::Long, "probs", probs);
  if (counts) {
    check_counts(op, *counts, probs);
  }
}

inline void check_backward_arguments(const Tensor& grad, const Tensor& probs, const Tensor& labels,
                                     const Tensor& slopes, const std::optional<Tensor>& counts) {
  constexpr const char* op = "pcl_loss_backward";
  check_rank(op, "probs", probs, 2);
  check_argument(op, "labels", labels, {probs.size(0)}, ScalarType::Long, "probs", probs);
  check_argument(op, "slopes", slopes, {probs.size(0)}, accumulate_type(probs.scalar_type()), "probs", probs);
  if (counts) {
    check_counts(op, *counts, probs);
    check_shape(op, "grad", grad, counts->sizes());
  } else {
    check_rank(op, "grad", grad, 0);
  }
  check_dtype(op, "grad", grad, probs.scalar_type());
  check_device(op, "grad", grad, "probs", probs);
}

// Losses (B,), or () without counts, and slopes (R,).
inline std::tuple<Tensor, Tensor> new_results(const Tensor& probs, const std::optional<Tensor>& counts) {
  return {allocate(probs, counts ? counts->sizes() : Lengths{}),
          allocate(probs, {probs.size(0)}, accumulate_type(probs.scalar_type()))};
}

// The CPU kernel, which refuses bad values: the GPU's way to validate is to run it too.
std::tuple<Tensor, Tensor> forward_cpu(const Tensor& probs, const Tensor& labels, const Tensor& weights,
                                       const Tensor& clusters, const std::optional<Tensor>& counts);

}  // namespace detector::pcl_loss

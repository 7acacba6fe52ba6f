// RoI align on a GPU, without float atomics or host synchronization.
#include <torch/csrc/stable/library.h>

#include "../../roi_align.h"
#include "../roi/gather.cuh"
#include "backward.cuh"
#include "mean.cuh"

namespace detector::roi_align {
namespace {

struct Cuda {
  template <typename T, typename A>
  static void forward(const Tensor& input, const Tensor& boxes, const Sizes& sizes,
                      const Sampling<A>& sampling, bool channels_last, const Tensor& output) {
    const roi::Output<T> to{output.mutable_data_ptr<T>(), nullptr, channels_last};
    roi::gather<T>(input, boxes, sizes, Mean<A>{sampling}, to);
  }

  template <typename T, typename A>
  static void backward(const Tensor& grad, const Tensor& boxes, const Sizes& sizes,
                       const Sampling<A>& sampling, bool channels_last, const Tensor& output) {
    launch_backward<T>(grad, boxes, sizes, sampling, channels_last, output);
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("roi_align_forward", TORCH_BOX(&forward<Cuda>));
  m.impl("roi_align_backward", TORCH_BOX(&backward<Cuda>));
}

}  // namespace detector::roi_align

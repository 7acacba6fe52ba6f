// Depthwise convolution on a GPU: for each pass the fast kernels of the memory format are tried first; the
// generic kernel handles the remaining cases.
#include <torch/csrc/stable/library.h>

#include "../../depthwise_conv2d.h"
#include "../launch.cuh"
#include "generic.cuh"
#include "kernels.cuh"

namespace detector::depthwise_conv2d {
namespace {

class CudaKernels {
 public:
  explicit CudaKernels(const Tensor& like)
      : like_(like), guard_(like.get_device_index()), stream_(current_stream(like)) {}

  static bool needs_channels_last(const Problem&) { return false; }

  template <typename T>
  void forward(const Problem& p, bool channels_last, const T* input, const T* weight, const T* bias,
               T* output) const {
    bool done = false;
    if constexpr (!std::is_same_v<T, double>) {
      done = channels_last ? forward_channels_last(p, input, weight, bias, output, stream_)
                           : forward_contiguous(p, input, weight, bias, output, stream_);
    }
    if (!done) {
      forward_generic(p, channels_last, input, weight, bias, output, stream_);
    }
  }

  template <typename T>
  void grad_input(const Problem& p, bool channels_last, const T* grad, const T* weight, T* result) const {
    bool done = false;
    if constexpr (!std::is_same_v<T, double>) {
      done = channels_last ? grad_input_channels_last(p, grad, weight, result, stream_)
                           : grad_input_contiguous(p, grad, weight, result, stream_);
    }
    if (!done) {
      grad_input_generic(p, channels_last, grad, weight, result, stream_);
    }
  }

  template <typename T>
  void grad_weight(const Problem& p, bool channels_last, const T* input, const T* grad, T* result) const {
    std::vector<Tensor> scratch;  // freed when all is launched: the allocator keeps the order of the stream
    const Allocate new_scratch = [&](int64_t count) {
      scratch.push_back(allocate(like_, {count}, ScalarType::Float));
      return static_cast<float*>(scratch.back().mutable_data_ptr());
    };
    bool done = false;
    if constexpr (!std::is_same_v<T, double>) {
      done = channels_last ? grad_weight_channels_last(p, input, grad, result, new_scratch, stream_)
                           : grad_weight_contiguous(p, input, grad, result, new_scratch, stream_);
    }
    if (!done) {
      grad_weight_generic(p, channels_last, input, grad, result, stream_);
    }
  }

 private:
  Tensor like_;
  torch::stable::accelerator::DeviceGuard guard_;
  cudaStream_t stream_;
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("depthwise_conv2d_forward", TORCH_BOX(&forward<CudaKernels>));
  m.impl("depthwise_conv2d_grad_input", TORCH_BOX(&grad_input<CudaKernels>));
  m.impl("depthwise_conv2d_grad_weight", TORCH_BOX(&grad_weight<CudaKernels>));
}

}  // namespace detector::depthwise_conv2d

// Depthwise convolution on a GPU. ../../depthwise_conv2d_plan.h says which kernel computes a pass.
#include <torch/csrc/stable/library.h>

#include "../../depthwise_conv2d_plan.h"
#include "../launch.cuh"
#include "../pack.cuh"
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
    // Contiguous tensors read their bias one by one.
    const bool aligned = is_aligned(input) && is_aligned(output) && (!channels_last || is_aligned(bias));
    const GpuKernel kernel = kernel_for<T>(Pass::kForward, p, channels_last, aligned);
    if constexpr (!std::is_same_v<T, double>) {
      if (kernel != kGeneric) {
        return channels_last
                   ? forward_channels_last(p, kernel == kRows, input, weight, bias, output, stream_)
                   : forward_contiguous(p, kernel == kTensorCores, input, weight, bias, output, stream_);
      }
    }
    forward_generic(p, channels_last, input, weight, bias, output, stream_);
  }

  template <typename T>
  void grad_input(const Problem& p, bool channels_last, const T* grad, const T* weight, T* result) const {
    const bool aligned = is_aligned(grad) && is_aligned(result);
    const GpuKernel kernel = kernel_for<T>(Pass::kGradInput, p, channels_last, aligned);
    if constexpr (!std::is_same_v<T, double>) {
      if (kernel != kGeneric) {
        return channels_last
                   ? grad_input_channels_last(p, kernel == kRows, grad, weight, result, stream_)
                   : grad_input_contiguous(p, kernel == kTensorCores, grad, weight, result, stream_);
      }
    }
    grad_input_generic(p, channels_last, grad, weight, result, stream_);
  }

  template <typename T>
  void grad_weight(const Problem& p, bool channels_last, const T* input, const T* grad, T* result) const {
    std::vector<Tensor> scratch;  // freed when all is launched: the allocator keeps the order of the stream
    const Allocate new_scratch = [&](int64_t count) {
      scratch.push_back(allocate(like_, {count}, ScalarType::Float));
      return static_cast<float*>(scratch.back().mutable_data_ptr());
    };
    const bool aligned = is_aligned(input) && is_aligned(grad);
    const GpuKernel kernel = kernel_for<T>(Pass::kGradWeight, p, channels_last, aligned);
    if constexpr (!std::is_same_v<T, double>) {
      if (kernel != kGeneric) {
        return channels_last
                   ? grad_weight_channels_last(p, kernel == kRows, input, grad, result, new_scratch, stream_)
                   : grad_weight_contiguous(p, kernel == kTensorCores, input, grad, result, new_scratch,
                                            stream_);
      }
    }
    grad_weight_generic(p, channels_last, input, grad, result, stream_);
  }

 private:
  template <typename T>
  static GpuKernel kernel_for(Pass pass, const Problem& p, bool channels_last, bool aligned) {
    // All files are compiled for the same GPUs, so that one kernel tells for all.
    const int architecture = compiled_kernel(depthwise_generic_forward_kernel<T, int>).architecture;
    return gpu_kernel({pass, p, sizeof(T), channels_last, aligned, {architecture, 0, 0, 0}});
  }

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

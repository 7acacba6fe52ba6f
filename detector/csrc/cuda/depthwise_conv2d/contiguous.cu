// The fast kernels for contiguous tensors: for kernels of 3, 5 or 7 square with strides 1 or 2.
#include "contiguous_grad_weight.cuh"
#include "contiguous_images.cuh"
#include "kernels.cuh"
#include "tensor_cores_forward.cuh"
#include "tensor_cores_grad_weight.cuh"

namespace detector::depthwise_conv2d {

// Calls body(kernel, stride), both std::integral_constant, for a problem that the kernels take.
template <typename Body>
void dispatch_contiguous(const Problem& p, const Body& body) {
  with_kernel(p.kernel_h, [&](auto kernel) {
    p.stride_h == 1 ? body(kernel, std::integral_constant<int, 1>{})
                    : body(kernel, std::integral_constant<int, 2>{});
  });
}

template <int K, int S, typename T>
void run_forward(const Problem& p, bool tensor_cores, bool turned, const T* input, const T* weight,
                 const T* bias, T* output, cudaStream_t stream) {
  if constexpr (S == 1 && K >= 5 && sizeof(T) == 2) {
    if (tensor_cores) {
      return launch_tensor_core_forward<K>(p, turned, input, weight, bias, output, stream);
    }
  }
  launch_contiguous_images<Convolution<K, S>>(p, turned, input, weight, bias, output, stream);
}

template <typename T>
void forward_contiguous(const Problem& p, bool tensor_cores, const T* input, const T* weight, const T* bias,
                        T* output, cudaStream_t stream) {
  dispatch_contiguous(p, [&](auto kernel, auto stride) {
    run_forward<kernel, stride>(p, tensor_cores, false, input, weight, bias, output, stream);
  });
}

template <typename T>
void grad_input_contiguous(const Problem& p, bool tensor_cores, const T* grad, const T* weight, T* result,
                           cudaStream_t stream) {
  dispatch_contiguous(p, [&](auto kernel, auto stride) {
    const T* no_bias = nullptr;
    if constexpr (stride == 1) {
      run_forward<kernel, 1>(transposed(p), tensor_cores, true, grad, weight, no_bias, result, stream);
    } else {
      launch_contiguous_images<HalvedTranspose<kernel>>(transposed(p), false, grad, weight, no_bias, result,
                                                        stream);
    }
  });
}

template <typename T>
void grad_weight_contiguous(const Problem& p, bool tensor_cores, const T* input, const T* grad, T* result,
                            const Allocate& allocate, cudaStream_t stream) {
  dispatch_contiguous(p, [&](auto kernel, auto stride) {
    if constexpr (stride == 1 && kernel >= 5 && sizeof(T) == 2) {
      if (tensor_cores) {
        return launch_tensor_core_grad_weight<kernel>(p, input, grad, result, allocate, stream);
      }
    }
    launch_contiguous_grad_weight<kernel, stride>(p, input, grad, result, allocate, stream);
  });
}

#define INSTANTIATE(T)                                                                                    \
  template void forward_contiguous(const Problem&, bool, const T*, const T*, const T*, T*, cudaStream_t); \
  template void grad_input_contiguous(const Problem&, bool, const T*, const T*, T*, cudaStream_t);        \
  template void grad_weight_contiguous(const Problem&, bool, const T*, const T*, T*, const Allocate&,     \
                                       cudaStream_t);

INSTANTIATE(float)
INSTANTIATE(Half)
INSTANTIATE(BFloat16)

}  // namespace detector::depthwise_conv2d

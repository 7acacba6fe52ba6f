// The fast kernels for contiguous tensors. Each returns false where it has none for a problem: other kernels
// than 3, 5 or 7 square, strides other than 1 or 2, dilation, double precision.
#include "contiguous_grad_weight.cuh"
#include "contiguous_images.cuh"
#include "kernels.cuh"
#include "tensor_cores_forward.cuh"
#include "tensor_cores_grad_weight.cuh"

namespace detector::depthwise_conv2d {

// Calls body(kernel, stride), both std::integral_constant, where there are fast kernels.
template <typename Body>
bool dispatch_contiguous(const Problem& p, const Body& body) {
  const bool regular = p.kernel_h == p.kernel_w && p.stride_h == p.stride_w && p.stride_h <= 2 &&
                       p.dilation_h == 1 && p.dilation_w == 1 && p.height > 0 && p.width > 0 && strips_fit(p);
  return regular && with_kernel(p.kernel_h, [&](auto kernel) {
           return p.stride_h == 1 ? body(kernel, std::integral_constant<int, 1>{})
                                  : body(kernel, std::integral_constant<int, 2>{});
         });
}

// benchmarks/cases/depthwise_conv2d.py has the times that choose.
template <int K, int S, typename T>
void run_forward(const Problem& p, bool turned, const T* input, const T* weight, const T* bias, T* output,
                 cudaStream_t stream) {
  if constexpr (S == 1 && K >= 5 && sizeof(T) == 2) {
    constexpr int smallest = K == 7 ? 0 : 32;  // of smaller planes too much of the tiles is empty
    if (p.height >= smallest && p.width >= smallest &&
        launch_tensor_core_forward<K>(p, turned, input, weight, bias, output, stream)) {
      return;
    }
  }
  launch_contiguous_images<Convolution<K, S>>(p, turned, input, weight, bias, output, stream);
}

template <typename T>
bool forward_contiguous(const Problem& p, const T* input, const T* weight, const T* bias, T* output,
                        cudaStream_t stream) {
  return dispatch_contiguous(p, [&](auto kernel, auto stride) {
    run_forward<kernel, stride>(p, false, input, weight, bias, output, stream);
    return true;
  });
}

// The problem whose input is the output of p, and reversed: where the stride is 1, its forward pass with the
// turned kernel is grad_input of p.
inline Problem transposed(const Problem& p) {
  Problem t = p;
  t.height = p.out_height, t.width = p.out_width;
  t.out_height = p.height, t.out_width = p.width;
  t.pad_h = p.kernel_h - 1 - p.pad_h, t.pad_w = p.kernel_w - 1 - p.pad_w;
  return t;
}

template <typename T>
bool grad_input_contiguous(const Problem& p, const T* grad, const T* weight, T* result, cudaStream_t stream) {
  return p.multiplier == 1 && dispatch_contiguous(p, [&](auto kernel, auto stride) {
           const T* no_bias = nullptr;
           if constexpr (stride == 1) {
             run_forward<kernel, 1>(transposed(p), true, grad, weight, no_bias, result, stream);
             return true;
           } else {
             if (p.pad_h != kernel / 2 || p.pad_w != kernel / 2) {
               return false;
             }
             launch_contiguous_images<HalvedTranspose<kernel>>(transposed(p), false, grad, weight, no_bias,
                                                               result, stream);
             return true;
           }
         });
}

template <typename T>
bool grad_weight_contiguous(const Problem& p, const T* input, const T* grad, T* result,
                            const Allocate& allocate, cudaStream_t stream) {
  return dispatch_contiguous(p, [&](auto kernel, auto stride) {
    if constexpr (stride == 1 && kernel >= 5 && sizeof(T) == 2) {
      if (launch_tensor_core_grad_weight<kernel>(p, input, grad, result, allocate, stream)) {
        return true;
      }
    }
    launch_contiguous_grad_weight<kernel, stride>(p, input, grad, result, allocate, stream);
    return true;
  });
}

#define INSTANTIATE(T)                                                                              \
  template bool forward_contiguous(const Problem&, const T*, const T*, const T*, T*, cudaStream_t); \
  template bool grad_input_contiguous(const Problem&, const T*, const T*, T*, cudaStream_t);        \
  template bool grad_weight_contiguous(const Problem&, const T*, const T*, T*, const Allocate&, cudaStream_t);

INSTANTIATE(float)
INSTANTIATE(Half)
INSTANTIATE(BFloat16)

}  // namespace detector::depthwise_conv2d

// The fast kernels, each for float, Half and BFloat16; they are compiled in two files, contiguous.cu and
// channels_last.cu, as in one they kept a build waiting. ../../depthwise_conv2d_plan.h says what they take;
// `tensor_cores` and `rows` choose between the two kernels of a format.
#pragma once

#include <functional>
#include <type_traits>

#include "../../depthwise_conv2d_plan.h"

namespace detector::depthwise_conv2d {

// Calls body with the size of a square kernel as a constant: 3, 5 or 7.
template <typename Body>
void with_kernel(int64_t size, const Body& body) {
  switch (size) {
    case 3:
      return body(std::integral_constant<int, 3>{});
    case 5:
      return body(std::integral_constant<int, 5>{});
    case 7:
      return body(std::integral_constant<int, 7>{});
    default:
      fail("depthwise_conv2d: no kernel is compiled for ", size, " square, expected 3, 5 or 7");
  }
}

// Gives scratch for so many partial sums, which lives until the kernels are done.
using Allocate = std::function<float*(int64_t)>;

template <typename T>
void forward_contiguous(const Problem& p, bool tensor_cores, const T* input, const T* weight, const T* bias,
                        T* output, cudaStream_t stream);
template <typename T>
void grad_input_contiguous(const Problem& p, bool tensor_cores, const T* grad, const T* weight, T* result,
                           cudaStream_t stream);
template <typename T>
void grad_weight_contiguous(const Problem& p, bool tensor_cores, const T* input, const T* grad, T* result,
                            const Allocate& allocate, cudaStream_t stream);

template <typename T>
void forward_channels_last(const Problem& p, bool rows, const T* input, const T* weight, const T* bias,
                           T* output, cudaStream_t stream);
template <typename T>
void grad_input_channels_last(const Problem& p, bool rows, const T* grad, const T* weight, T* result,
                              cudaStream_t stream);
template <typename T>
void grad_weight_channels_last(const Problem& p, bool rows, const T* input, const T* grad, T* result,
                               const Allocate& allocate, cudaStream_t stream);

}  // namespace detector::depthwise_conv2d

// The fast kernels, each for float, Half and BFloat16; they are compiled in two files, contiguous.cu and
// channels_last.cu, as in one they kept a build waiting. Each returns false where it has none for a problem.
#pragma once

#include <functional>

#include "../../depthwise_conv2d.h"

namespace detector::depthwise_conv2d {

// Gives scratch for so many partial sums, which lives until the kernels are done.
using Allocate = std::function<float*(int64_t)>;

template <typename T>
bool forward_contiguous(const Problem& p, const T* input, const T* weight, const T* bias, T* output,
                        cudaStream_t stream);
template <typename T>
bool grad_input_contiguous(const Problem& p, const T* grad, const T* weight, T* result, cudaStream_t stream);
template <typename T>
bool grad_weight_contiguous(const Problem& p, const T* input, const T* grad, T* result,
                            const Allocate& allocate, cudaStream_t stream);

template <typename T>
bool forward_channels_last(const Problem& p, const T* input, const T* weight, const T* bias, T* output,
                           cudaStream_t stream);
template <typename T>
bool grad_input_channels_last(const Problem& p, const T* grad, const T* weight, T* result,
                              cudaStream_t stream);
template <typename T>
bool grad_weight_channels_last(const Problem& p, const T* input, const T* grad, T* result,
                               const Allocate& allocate, cudaStream_t stream);

}  // namespace detector::depthwise_conv2d

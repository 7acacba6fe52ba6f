// The passes of depthwise convolution on the CPU, each for float, double, Half and BFloat16. They are
// compiled in two files, planes.cpp and pixels.cpp, as in one they kept a build waiting.
#pragma once

#include "../../depthwise_conv2d.h"

namespace detector::depthwise_conv2d {

// Contiguous planes.
template <typename T>
void forward_planes(const Problem& p, const T* input, const T* weight, const T* bias, T* output);
template <typename T>
void grad_input_planes(const Problem& p, const T* grad, const T* weight, T* result);
template <typename T>
void grad_weight_planes(const Problem& p, const T* input, const T* grad, T* result);

// Channels last.
template <typename T>
void forward_pixels(const Problem& p, const T* input, const T* weight, const T* bias, T* output);
template <typename T>
void grad_input_pixels(const Problem& p, const T* grad, const T* weight, T* result);
template <typename T>
void grad_weight_pixels(const Problem& p, const T* input, const T* grad, T* result);

}  // namespace detector::depthwise_conv2d

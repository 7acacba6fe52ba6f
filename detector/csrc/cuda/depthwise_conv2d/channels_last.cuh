// The fast kernels for channels-last tensors. Each returns false where it has none for a problem.
#pragma once

#include "../../depthwise_conv2d.h"

namespace detector::depthwise_conv2d {

template <typename T>
bool forward_channels_last(const Problem&, const T*, const T*, const T*, T*, cudaStream_t) {
  return false;
}

template <typename T>
bool grad_input_channels_last(const Problem&, const T*, const T*, T*, cudaStream_t) {
  return false;
}

// allocate(count) gives scratch for `count` partial sums, which lives until the kernels are done.
template <typename T, typename Allocate>
bool grad_weight_channels_last(const Problem&, const T*, const T*, T*, const Allocate&, cudaStream_t) {
  return false;
}

}  // namespace detector::depthwise_conv2d

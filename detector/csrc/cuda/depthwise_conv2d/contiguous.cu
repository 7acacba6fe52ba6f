// Depthwise convolution of contiguous planes on a GPU: a file of its own, so that it compiles beside the
// other.
#include "contiguous.cuh"

namespace detector::depthwise_conv2d {

#define INSTANTIATE(T)                                                                              \
  template bool forward_contiguous(const Problem&, const T*, const T*, const T*, T*, cudaStream_t); \
  template bool grad_input_contiguous(const Problem&, const T*, const T*, T*, cudaStream_t);        \
  template bool grad_weight_contiguous(const Problem&, const T*, const T*, T*, const Allocate&, cudaStream_t);

INSTANTIATE(float)
INSTANTIATE(Half)
INSTANTIATE(BFloat16)

}  // namespace detector::depthwise_conv2d

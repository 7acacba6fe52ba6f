// Depthwise convolution of channels-last tensors on the CPU: a file of its own, so that it compiles beside
// the other.
#include "pixels.h"

namespace detector::depthwise_conv2d {

#define INSTANTIATE(T)                                                            \
  template void forward_pixels(const Problem&, const T*, const T*, const T*, T*); \
  template void grad_input_pixels(const Problem&, const T*, const T*, T*);        \
  template void grad_weight_pixels(const Problem&, const T*, const T*, T*);

INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Half)
INSTANTIATE(BFloat16)

}  // namespace detector::depthwise_conv2d

// Depthwise convolution of contiguous planes on the CPU: a file of its own, so that it compiles beside the
// other.
#include "planes.h"

namespace detector::depthwise_conv2d {

#define INSTANTIATE(T)                                                            \
  template void forward_planes(const Problem&, const T*, const T*, const T*, T*); \
  template void grad_input_planes(const Problem&, const T*, const T*, T*);        \
  template void grad_weight_planes(const Problem&, const T*, const T*, T*);

INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Half)
INSTANTIATE(BFloat16)

}  // namespace detector::depthwise_conv2d

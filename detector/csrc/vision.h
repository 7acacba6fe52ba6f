// The dispatch header: every op of detector._C, once, by name and schema.
//
// vision.cpp turns this list into the library `detector` and into the Python module, so detector._C.NAME and
// torch.ops.detector.NAME are one op. cpu/OP.cpp and cuda/OP.cu register the kernels. A new op is a new line
// here.
#pragma once

// clang-format off
#define DETECTOR_OPS(OP)                                                                                              \
  /* probs (R, C+1), labels (R,), weights (R,), clusters (R,), counts (B,) -> losses (B,) or (), slopes (R,) */       \
  OP(pcl_loss_forward,                                                                                                \
     "(Tensor probs, Tensor labels, Tensor weights, Tensor clusters, Tensor? counts) -> (Tensor, Tensor)")            \
  /* grad (B,) or (), probs (R, C+1), labels (R,), slopes (R,), counts (B,) -> gradient of probs (R, C+1) */          \
  OP(pcl_loss_backward,                                                                                               \
     "(Tensor grad, Tensor probs, Tensor labels, Tensor slopes, Tensor? counts) -> Tensor")
// clang-format on

// The dispatch header: every op of detector._C, once, by name and schema. A comment gives the shapes.
//
// vision.cpp turns this list into the library `detector` and into the Python module, so detector._C.NAME and
// torch.ops.detector.NAME are one op. cpu/OP.cpp and cuda/OP.cu register the kernels.
#pragma once

// clang-format off
#define DETECTOR_OPS(OP) \
  /* (R, C+1), (R,), (R,), (R,), (B,) -> losses (B,) or (), slopes (R,) */ \
  OP(pcl_loss_forward, \
     "(Tensor probs, Tensor labels, Tensor weights, Tensor clusters, Tensor? counts) -> (Tensor, Tensor)") \
  /* (B,) or (), (R, C+1), (R,), (R,), (B,) -> gradient of probs (R, C+1) */ \
  OP(pcl_loss_backward, \
     "(Tensor grad, Tensor probs, Tensor labels, Tensor slopes, Tensor? counts) -> Tensor") \
  /* (R, 4), (R, C), (B, C), (B,) -> labels, weights, clusters, centres, all (R,) */ \
  OP(proposal_clusters, \
     "(Tensor boxes, Tensor scores, Tensor image_labels, Tensor counts, int method, float edge_iou, " \
     "int max_centres, float top_share, float member_iou, float ignore_iou) " \
     "-> (Tensor, Tensor, Tensor, Tensor)") \
  /* (N, C, H, W), (C m, 1, kh, kw), (C m,), pairs of sizes -> (N, C m, OH, OW) */ \
  OP(depthwise_conv2d_forward, \
     "(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation) " \
     "-> Tensor") \
  /* (N, C m, OH, OW), (C m, 1, kh, kw), C, (H, W) -> gradient of input (N, C, H, W) */ \
  OP(depthwise_conv2d_grad_input, \
     "(Tensor grad, Tensor weight, SymInt channels, SymInt[] size, SymInt[] stride, SymInt[] padding, " \
     "SymInt[] dilation) -> Tensor") \
  /* (N, C, H, W), (N, C m, OH, OW), (kh, kw) -> gradient of weight (C m, 1, kh, kw) */ \
  OP(depthwise_conv2d_grad_weight, \
     "(Tensor input, Tensor grad, SymInt[] kernel, SymInt[] stride, SymInt[] padding, SymInt[] dilation) " \
     "-> Tensor")
// clang-format on

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
  /* RoI ops take and give features (N, C, H, W) and pooled values (R, C, PH, PW); with channels_last what */ \
  /* they give, and the gradient that they take, is (N, H, W, C) or (R, PH, PW, C). boxes are (R, 5). */ \
  /* -> pooled values, the cells of the maxima */ \
  OP(roi_pool_forward, \
     "(Tensor input, Tensor boxes, int pooled_height, int pooled_width, float spatial_scale, " \
     "bool channels_last) -> (Tensor, Tensor)") \
  /* -> gradient of input */ \
  OP(roi_pool_backward, \
     "(Tensor grad, Tensor argmax, Tensor boxes, SymInt images, SymInt height, SymInt width, " \
     "bool channels_last) -> Tensor") \
  /* -> pooled values */ \
  OP(roi_align_forward, \
     "(Tensor input, Tensor boxes, int pooled_height, int pooled_width, float spatial_scale, " \
     "int sampling_ratio, bool aligned, bool channels_last) -> Tensor") \
  /* -> gradient of input */ \
  OP(roi_align_backward, \
     "(Tensor grad, Tensor boxes, SymInt images, SymInt height, SymInt width, float spatial_scale, " \
     "int sampling_ratio, bool aligned, bool channels_last) -> Tensor")
// clang-format on

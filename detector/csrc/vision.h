// The dispatch header: every op of detector._C, once, by name and schema. A comment gives the shapes.
//
// vision.cpp turns this list into the library `detector` and into the Python module, so detector._C.NAME and
// torch.ops.detector.NAME are one op. cpu/OP.cpp and cuda/OP.cu register the kernels, or OP/OP.cpp and
// OP/OP.cu where an op has a folder; the README.md there says which kernel runs when.
#pragma once

// clang-format off
#define DETECTOR_OPS(OP) \
  /* (R, C+1), (R,), (R,), (R,), (B,) -> losses (B,) or (), slopes (R,) */ \
  OP(pcl_loss_forward, \
     "(Tensor probs, Tensor labels, Tensor weights, Tensor clusters, Tensor? counts) -> (Tensor, Tensor)") \
  /* (B,) or (), (R, C+1), (R,), (R,), (B,) -> gradient of probs (R, C+1) */ \
  OP(pcl_loss_backward, \
     "(Tensor grad, Tensor probs, Tensor labels, Tensor slopes, Tensor? counts) -> Tensor") \
  /* (R, 4), (S, R, C), (B, C), (B,) -> labels, weights, clusters, centers, all (S, R) */ \
  OP(proposal_clusters, \
     "(Tensor boxes, Tensor scores, Tensor image_labels, Tensor counts, int method, float edge_iou, " \
     "int max_centers, float top_share, float member_iou, float ignore_iou, " \
     "float ignore_cover, float cover_iou) " \
     "-> (Tensor, Tensor, Tensor, Tensor)") \
  /* (3, H, W) each; color space, k and measures of each strategy -> boxes (R, 4) of each image */ \
  OP(selective_search, \
     "(Tensor[] images, int[] strategies, int min_size, int max_boxes, int seed) -> Tensor[]") \
  /* (N, 4), (N,), (N,) -> indices of the kept boxes, best first (K,) */ \
  OP(nms, "(Tensor boxes, Tensor scores, Tensor? idxs, float iou_threshold) -> Tensor") \
  /* (N, 4), (N,), (N,) -> whether each is kept (N,), their number () */ \
  OP(nms_mask, "(Tensor boxes, Tensor scores, Tensor? idxs, float iou_threshold) -> (Tensor, Tensor)") \
  /* (N, 5) by descending score, (N,) -> whether each is kept (N,) */ \
  OP(nms_rotated, "(Tensor boxes, Tensor? idxs, float iou_threshold) -> Tensor") \
  /* (N, 4), (N,), where each group starts and N (G + 1,), threshold or sigma -> decayed scores (N,) */ \
  OP(soft_nms, \
     "(Tensor boxes, Tensor scores, Tensor starts, bool gaussian, float parameter, float min_score) -> Tensor") \
  /* any shape -> the same */ \
  OP(quick_gelu_forward, "(Tensor input) -> Tensor") \
  /* any shape, twice -> the same */ \
  OP(quick_gelu_backward, "(Tensor grad, Tensor input) -> Tensor") \
  /* (N, C, H, W) -> (N, C, height, width); a scale of 0 stands for height / H and width / W */ \
  OP(upsample_bilinear2d_forward, \
     "(Tensor input, SymInt height, SymInt width, int mode, float scale_height, float scale_width) -> Tensor") \
  /* the reverse: height and width are the input's */ \
  OP(upsample_bilinear2d_backward, \
     "(Tensor grad, SymInt height, SymInt width, int mode, float scale_height, float scale_width) -> Tensor") \
  /* (N, 8, F), (N, 3) -> (N, F) */ \
  OP(trilinear_interpolate_forward, "(Tensor feats, Tensor points) -> Tensor") \
  /* (N, F), (N, 3), (N, 8, F) where points need a gradient -> gradients of feats, points, or (0,) */ \
  OP(trilinear_interpolate_backward, \
     "(Tensor grad, Tensor points, Tensor? feats, bool needs_feats) -> (Tensor, Tensor)") \
  /* (N, I) or (T, N, I), (3S, S+I), (3S,), (N, S), (N, S) -> h (..., N, S), the last c (N, S) and, for the */ \
  /* backward pass, every c (T, N, S) or (0,), gates (..., N, 3S), [h, x] */ \
  OP(lltm_forward, \
     "(Tensor input, Tensor weight, Tensor bias, Tensor h, Tensor c) " \
     "-> (Tensor, Tensor, Tensor, Tensor, Tensor)") \
  /* gradients of h (..., N, S) and of the last c (N, S) -> of the five arguments, or (0,) */ \
  OP(lltm_backward, \
     "(Tensor? grad_h, Tensor? grad_c, Tensor weight, Tensor bias, Tensor cs, Tensor gates, Tensor xh, " \
     "bool needs_input, bool needs_weight, bool needs_bias, bool needs_h) " \
     "-> (Tensor, Tensor, Tensor, Tensor, Tensor)") \
  /* RoI ops take and give features (N, C, H, W) and pooled values (R, C, PH, PW). boxes are (R, 5). */ \
  /* -> pooled values, the cells of the maxima */ \
  OP(roi_pool_forward, \
     "(Tensor input, Tensor boxes, int pooled_height, int pooled_width, float spatial_scale) " \
     "-> (Tensor, Tensor)") \
  /* -> gradient of input */ \
  OP(roi_pool_backward, \
     "(Tensor grad, Tensor argmax, Tensor boxes, SymInt images, SymInt height, SymInt width, " \
     "float spatial_scale) -> Tensor") \
  /* With channels_last what roi_align gives, and the gradient that it takes, is (N, H, W, C) or */ \
  /* (R, PH, PW, C). -> pooled values */ \
  OP(roi_align_forward, \
     "(Tensor input, Tensor boxes, int pooled_height, int pooled_width, float spatial_scale, " \
     "int sampling_ratio, bool aligned, bool channels_last) -> Tensor") \
  /* -> gradient of input */ \
  OP(roi_align_backward, \
     "(Tensor grad, Tensor boxes, SymInt images, SymInt height, SymInt width, float spatial_scale, " \
     "int sampling_ratio, bool aligned, bool channels_last) -> Tensor") \
  /* (N, H, W, C), (R, 6) -> (R, PH, PW, C) */ \
  OP(roi_align_rotated_forward, \
     "(Tensor input, Tensor boxes, int pooled_height, int pooled_width, float spatial_scale, " \
     "int sampling_ratio) -> Tensor") \
  /* (R, PH, PW, C), (R, 6) -> gradient of input (N, H, W, C) */ \
  OP(roi_align_rotated_backward, \
     "(Tensor grad, Tensor boxes, SymInt images, SymInt height, SymInt width, float spatial_scale, " \
     "int sampling_ratio) -> Tensor") \
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

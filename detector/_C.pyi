"""The ops of the compiled extension; csrc/vision.h gives the shapes, and detector.layers documents each."""

from collections.abc import Sequence

from torch import Tensor

def pcl_loss_forward(
    probs: Tensor, labels: Tensor, weights: Tensor, clusters: Tensor, counts: Tensor | None
) -> tuple[Tensor, Tensor]: ...
def pcl_loss_backward(
    grad: Tensor, probs: Tensor, labels: Tensor, slopes: Tensor, counts: Tensor | None
) -> Tensor: ...
def proposal_clusters(
    boxes: Tensor,
    scores: Tensor,
    image_labels: Tensor,
    counts: Tensor,
    method: int,
    edge_iou: float,
    max_centers: int,
    top_share: float,
    member_iou: float,
    ignore_iou: float,
    ignore_cover: float,
    cover_iou: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
def selective_search(
    images: Sequence[Tensor], strategies: Sequence[int], min_size: int, max_boxes: int, seed: int
) -> list[Tensor]: ...
def nms(boxes: Tensor, scores: Tensor, idxs: Tensor | None, iou_threshold: float) -> Tensor: ...
def nms_mask(
    boxes: Tensor, scores: Tensor, idxs: Tensor | None, iou_threshold: float
) -> tuple[Tensor, Tensor]: ...
def nms_rotated(boxes: Tensor, idxs: Tensor | None, iou_threshold: float) -> Tensor: ...
def soft_nms(
    boxes: Tensor, scores: Tensor, starts: Tensor, gaussian: bool, parameter: float, min_score: float
) -> Tensor: ...
def quick_gelu_forward(input: Tensor) -> Tensor: ...
def quick_gelu_backward(grad: Tensor, input: Tensor) -> Tensor: ...
def upsample_bilinear2d_forward(
    input: Tensor, height: int, width: int, mode: int, scale_height: float, scale_width: float
) -> Tensor: ...
def upsample_bilinear2d_backward(
    grad: Tensor, height: int, width: int, mode: int, scale_height: float, scale_width: float
) -> Tensor: ...
def trilinear_interpolate_forward(feats: Tensor, points: Tensor) -> Tensor: ...
def trilinear_interpolate_backward(
    grad: Tensor, points: Tensor, feats: Tensor | None, needs_feats: bool
) -> tuple[Tensor, Tensor]: ...
def lltm_forward(
    input: Tensor, weight: Tensor, bias: Tensor, h: Tensor, c: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]: ...
def lltm_backward(
    grad_h: Tensor | None,
    grad_c: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    cs: Tensor,
    gates: Tensor,
    xh: Tensor,
    needs_input: bool,
    needs_weight: bool,
    needs_bias: bool,
    needs_h: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]: ...
def roi_pool_forward(
    input: Tensor, boxes: Tensor, pooled_height: int, pooled_width: int, spatial_scale: float
) -> tuple[Tensor, Tensor]: ...
def roi_pool_backward(
    grad: Tensor, argmax: Tensor, boxes: Tensor, images: int, height: int, width: int, spatial_scale: float
) -> Tensor: ...
def roi_align_forward(
    input: Tensor,
    boxes: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
    channels_last: bool,
) -> Tensor: ...
def roi_align_backward(
    grad: Tensor,
    boxes: Tensor,
    images: int,
    height: int,
    width: int,
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
    channels_last: bool,
) -> Tensor: ...
def roi_align_rotated_forward(
    input: Tensor,
    boxes: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sampling_ratio: int,
) -> Tensor: ...
def roi_align_rotated_backward(
    grad: Tensor,
    boxes: Tensor,
    images: int,
    height: int,
    width: int,
    spatial_scale: float,
    sampling_ratio: int,
) -> Tensor: ...
def depthwise_conv2d_forward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor: ...
def depthwise_conv2d_grad_input(
    grad: Tensor,
    weight: Tensor,
    channels: int,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor: ...
def depthwise_conv2d_grad_weight(
    input: Tensor,
    grad: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor: ...

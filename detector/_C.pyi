"""The compiled ops, as csrc/vision.h lists them; `import torch` comes first. Use them by detector.layers."""

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
    max_centres: int,
    top_share: float,
    member_iou: float,
    ignore_iou: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
def roi_pool_forward(
    input: Tensor,
    boxes: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    channels_last: bool,
) -> tuple[Tensor, Tensor]: ...
def roi_pool_backward(
    grad: Tensor,
    argmax: Tensor,
    boxes: Tensor,
    images: int,
    height: int,
    width: int,
    channels_last: bool,
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

"""The compiled ops, as csrc/vision.h lists them; `import torch` comes first. Use them by detector.layers."""

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
    max_centres: int,
    top_share: float,
    member_iou: float,
    ignore_iou: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
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

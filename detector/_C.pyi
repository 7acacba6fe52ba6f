"""The compiled ops, as csrc/vision.h lists them. Call them by detector.layers, which checks and explains."""

from torch import Tensor

def pcl_loss_forward(
    probs: Tensor, labels: Tensor, weights: Tensor, clusters: Tensor, counts: Tensor | None
) -> tuple[Tensor, Tensor]: ...
def pcl_loss_backward(
    grad: Tensor, probs: Tensor, labels: Tensor, slopes: Tensor, counts: Tensor | None
) -> Tensor: ...

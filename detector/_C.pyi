"""The compiled ops, as csrc/vision.h lists them; `import torch` comes first. Use them by detector.layers."""

from torch import Tensor

def pcl_loss_forward(
    probs: Tensor, labels: Tensor, weights: Tensor, clusters: Tensor, counts: Tensor | None
) -> tuple[Tensor, Tensor]: ...
def pcl_loss_backward(
    grad: Tensor, probs: Tensor, labels: Tensor, slopes: Tensor, counts: Tensor | None
) -> Tensor: ...

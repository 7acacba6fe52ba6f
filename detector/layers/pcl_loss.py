"""The PCL loss: cross entropy on proposal clusters. The kernels are csrc/cpu/pcl_loss.cpp and csrc/cuda/pcl_loss.cu."""

import torch
from torch import Tensor, nn

from detector.layers._extension import load_extension

_C = load_extension()


def pcl_loss(
    probs: Tensor, labels: Tensor, weights: Tensor, clusters: Tensor, counts: Tensor | None = None
) -> Tensor:
    r"""The proposal cluster loss of one image or, with `counts`, of each image of a batch.

    .. math::
        L = -\frac{1}{R} \Big[ \sum_n S_n \log p_n + \sum_{r\,\text{background}} w_r \log \phi_{r,0} \Big]

    Cluster n has the weight S_n, the sum of its members' weights, and the probability p_n, the mean of its members'
    probabilities phi of their class. Logarithms are of max(p, 1e-9); below that the gradient is zero. R counts every
    proposal of the image; no proposals give exactly 0. Source: Tang et al., "PCL: Proposal Cluster Learning for Weakly
    Supervised Object Detection", https://arxiv.org/abs/1807.03342.

    The gradient goes to `probs` alone; `labels`, `weights` and `clusters` are constants. There is no second derivative.
    Equal inputs give equal bits. On a GPU the host never waits, and with `counts` on the GPU, or None, the call can be
    captured in a CUDA graph.

    Args:
        probs (Tensor[R, C + 1]): class probabilities of each proposal, background in column 0; float64, float32,
            float16 or bfloat16 (the last three compute in float32). Any strides. In a batch, images follow in order.
        labels (Tensor[R]): int64, the class 1..C of a cluster member, 0 for background.
        weights (Tensor[R]): in the dtype of `probs`.
        clusters (Tensor[R]): int64, the cluster of each member, numbered within its image from 0 and below the number
            of the image's proposals; -1 for background. The members of a cluster have one label.
        counts (Tensor[B], optional): int64, proposals per image, on any device. Without it all rows are one image.

    Returns:
        Tensor: the loss, () without `counts` and (B,) with it, in the dtype of `probs`.

    Raises:
        RuntimeError: on a wrong shape, dtype or device; and on the CPU, or with the environment variable
            DETECTOR_VALIDATE=1, on values that contradict the above or are not finite. Without it a GPU ignores a row
            whose label or cluster is impossible and rows past the sum of `counts`, and lets NaN through.
    """
    if counts is not None:
        counts = counts.to(probs.device, non_blocking=True)
    losses, _ = _C.pcl_loss_forward(probs, labels, weights, clusters, counts)
    return losses.to(probs.dtype)  # under autocast the op computes in float32


class PCLLoss(nn.Module):
    """See :func:`pcl_loss`."""

    def forward(
        self, probs: Tensor, labels: Tensor, weights: Tensor, clusters: Tensor, counts: Tensor | None = None
    ) -> Tensor:
        return pcl_loss(probs, labels, weights, clusters, counts)


def pcl_loss_compat(
    pcl_probs: Tensor,
    labels: Tensor,
    cls_loss_weights: Tensor,
    gt_assignment: Tensor,
    pc_labels: Tensor,
    pc_probs: Tensor,
    pc_count: Tensor,
    img_cls_loss_weights: Tensor,
    im_labels: Tensor,
) -> Tensor:
    """The PCL loss from the nine tensors of the original PCL code, for one image, with a true gradient.

    Vectors may be (N,) or (1, N), and integers may come as floats, as there. Only classes with `im_labels` != 0 count.

    Args:
        pcl_probs (Tensor[R, C + 1]): class probabilities, background in column 0.
        labels (Tensor[R]): class of each proposal, 0 for background.
        cls_loss_weights (Tensor[R]): weights; those of background rows are used.
        gt_assignment (Tensor[R]): cluster of each proposal that is not background.
        pc_labels (Tensor[N]): class of each cluster; it agrees with `labels`, which are read instead.
        pc_probs (Tensor[N]): mean probability of each cluster's members; computed from `pcl_probs` instead, because a
            gradient must pass through it.
        pc_count (Tensor[N]): members of each cluster.
        img_cls_loss_weights (Tensor[N]): weight of each cluster.
        im_labels (Tensor[C + 1]): nonzero for the classes that the image shows, background included.

    Returns:
        Tensor: the loss, ().
    """
    labels = labels.flatten().long()
    background = labels == 0
    clusters = gt_assignment.flatten().long().masked_fill(background, -1)
    of_cluster = (
        img_cls_loss_weights.flatten() / pc_count.flatten()
    )  # (N,): pcl_loss sums over the members again
    of_member = torch.cat([of_cluster, of_cluster.new_zeros(1)])[clusters]  # (R,): -1 reads the last
    weights = torch.where(background, cls_loss_weights.flatten(), of_member)
    weights = weights.where(im_labels.flatten()[labels] != 0, 0)
    return pcl_loss(pcl_probs, labels, weights.to(pcl_probs.dtype), clusters)


def _setup_context(ctx, inputs: tuple, output: tuple) -> None:
    probs, labels, _, _, counts = inputs
    _, slopes = output
    ctx.mark_non_differentiable(slopes)
    # probs is saved to tie the gradient to it: a second derivative must reach _no_second_derivative.
    ctx.save_for_backward(probs, labels, slopes, counts)


def _backward(ctx, grad: Tensor, _grad_slopes: Tensor | None) -> tuple[Tensor | None, None, None, None, None]:
    if not ctx.needs_input_grad[0]:
        return None, None, None, None, None
    probs, labels, slopes, counts = ctx.saved_tensors
    return _C.pcl_loss_backward(grad, probs, labels, slopes, counts), None, None, None, None


def _no_second_derivative(ctx, grad: Tensor) -> None:
    raise NotImplementedError("pcl_loss has no second derivative: differentiate it once (create_graph=False)")


@torch.library.register_fake("detector::pcl_loss_forward")
def _fake_forward(probs, labels, weights, clusters, counts):
    slope_dtype = torch.float64 if probs.dtype == torch.float64 else torch.float32
    losses = probs.new_empty(() if counts is None else counts.shape)
    return losses, probs.new_empty(labels.shape, dtype=slope_dtype)


@torch.library.register_fake("detector::pcl_loss_backward")
def _fake_backward(grad, probs, labels, slopes, counts):
    return probs.new_empty(probs.shape)


torch.library.register_autograd("detector::pcl_loss_forward", _backward, setup_context=_setup_context)
torch.library.register_autograd("detector::pcl_loss_backward", _no_second_derivative)
for _device_type in ("cpu", "cuda"):
    torch.library.register_autocast("detector::pcl_loss_forward", _device_type, torch.float32)

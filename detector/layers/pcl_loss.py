"""The PCL loss: cross entropy on proposal clusters. Kernels: csrc/cpu/pcl_loss.cpp, csrc/cuda/pcl_loss.cu."""

import torch
from torch import Tensor, nn

from detector.layers._autograd import differentiable
from detector.layers._extension import load_extension
from detector.layers._fake import has_values, register_fake

_C = load_extension()


def pcl_loss(
    probs: Tensor, labels: Tensor, weights: Tensor, clusters: Tensor, counts: Tensor | None = None
) -> Tensor:
    r"""Proposal cluster loss of one image or, with `counts`, of each image of a batch.

    .. math::
        L = -\frac{1}{R} \Big[ \sum_n S_n \log p_n + \sum_{r\,\text{background}} w_r \log \phi_{r,0} \Big]

    S_n is the sum of the weights of the members of cluster n, and p_n the mean of their probabilities of the
    cluster's class. Probabilities are clamped to at least 1e-9, below which the gradient is zero. R is the
    number of proposals of the image; an image without proposals has loss 0. Source: Tang et al., "PCL:
    Proposal Cluster Learning for Weakly Supervised Object Detection", https://arxiv.org/abs/1807.03342.

    Only `probs` receives a gradient; second derivatives are not supported. Results are bitwise reproducible.
    On a GPU the call does not synchronize with the host. It can be captured in a CUDA graph if `counts` is
    None or on the GPU.

    Args:
        probs (Tensor[R, C + 1]): class probabilities of the proposals of all images, background in column 0;
            float64, float32, float16 or bfloat16 (half precision computes in float32), any strides.
        labels (Tensor[R]): int64, class 1..C for members of a cluster, 0 for background.
        weights (Tensor[R]): in the dtype of `probs`.
        clusters (Tensor[R]): int64, index of the proposal's cluster within its image, less than the number of
            its proposals; -1 for background. All members of a cluster have the same label.
        counts (Tensor[B], optional): int64, proposals per image, on any device; None: a single image.

    Returns:
        Tensor: the loss, () or with `counts` (B,), in the dtype of `probs`.

    Raises:
        RuntimeError: on a wrong shape, dtype or device. Invalid or non-finite values, and probabilities of
            the labels outside [0, 1], raise on the CPU, and on a GPU if the environment variable
            DETECTOR_VALIDATE is 1. Otherwise a GPU ignores rows with an invalid label or cluster and rows
            past the sum of `counts`, and applies the formula to every probability: one above 1 makes its
            term negative.
    """
    if counts is not None:
        counts = counts.to(probs.device, non_blocking=probs.is_cuda)
    losses, _ = _forward(probs, labels, weights, clusters, counts)
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
    """PCL loss of one image with the argument list of the original PCL implementation.

    As in the original, vectors may be (N,) or (1, N), integers may be stored as floats, and classes with
    `im_labels` 0 are ignored. `pc_labels` and `pc_probs` are not used: cluster means are recomputed from
    `pcl_probs`, so that the gradient passes through them.

    Args:
        pcl_probs (Tensor[R, C + 1]): class probabilities, background in column 0; receives the gradient.
        labels (Tensor[R]): class of each proposal, 0 for background.
        cls_loss_weights (Tensor[R]): weights of the proposals, used for background only.
        gt_assignment (Tensor[R]): cluster of each proposal, used for members only.
        pc_labels (Tensor[N]): class of each cluster.
        pc_probs (Tensor[N]): mean probability of each cluster.
        pc_count (Tensor[N]): number of members of each cluster.
        img_cls_loss_weights (Tensor[N]): weight of each cluster.
        im_labels (Tensor[C + 1]): nonzero for classes present in the image, including background.

    Returns:
        Tensor: the loss, ().

    Raises:
        RuntimeError: on a wrong number of elements; and as :func:`pcl_loss`.
    """
    if pcl_probs.dim() != 2:
        shape = tuple(pcl_probs.shape)
        raise RuntimeError(f"pcl_loss_compat: pcl_probs has shape {shape}, expected (R, C + 1)")
    proposals, columns = pcl_probs.shape
    for name, tensor, expected in (
        ("labels", labels, proposals),
        ("cls_loss_weights", cls_loss_weights, proposals),
        ("gt_assignment", gt_assignment, proposals),
        ("pc_count", pc_count, img_cls_loss_weights.numel()),
        ("im_labels", im_labels, columns),
    ):
        if tensor.numel() != expected:
            raise RuntimeError(f"pcl_loss_compat: {name} has {tensor.numel()} elements, expected {expected}")
    labels, assignment, background = labels.flatten(), gt_assignment.flatten(), labels.flatten() == 0
    num_clusters = pc_count.numel()
    _check_indices("labels", labels, ~background, columns)
    _check_indices("gt_assignment", assignment, ~background, num_clusters)
    labels, clusters = labels.long(), assignment.long()
    # pcl_loss ignores rows with a cluster that does not exist, which a GPU accepts.
    clusters = clusters.where((clusters >= 0) & (clusters < num_clusters), proposals)
    clusters = clusters.masked_fill(background, -1)
    # Split each cluster's weight evenly among its members; pcl_loss sums them again.
    parts = img_cls_loss_weights.flatten() / pc_count.flatten()  # (N,)
    parts = torch.cat([parts, parts.new_zeros(1)])[clusters.clamp(max=num_clusters)]  # (R,); of none: zero
    weights = torch.where(background, cls_loss_weights.flatten(), parts)
    weights = weights.where(im_labels.flatten()[labels.clamp(0, columns - 1)] != 0, 0)
    return pcl_loss(pcl_probs, labels, weights.to(pcl_probs.dtype), clusters)


def _check_indices(name: str, values: Tensor, used: Tensor, end: int) -> None:
    """On the CPU in eager mode, raise on the first used value that is no integer from 0 to end - 1."""
    if not has_values(values):
        return
    bad = used & ~((values == values.long()) & (values >= 0) & (values < end))  # also NaN
    if bad.any():
        row = int(bad.int().argmax())
        found = f"{name}[{row}] is {values[row].item():g}"
        raise RuntimeError(f"pcl_loss_compat: {found}, expected an integer from 0 to {end - 1}")


def _setup_context(ctx, inputs: tuple, output: tuple) -> None:
    probs, labels, _, _, counts = inputs
    _, slopes = output  # (sum R,): dL/dprobs in the column of each row's label; every other column is 0
    ctx.mark_non_differentiable(slopes)
    ctx.set_materialize_grads(False)  # avoids allocating a gradient of zeros for slopes
    ctx.save_for_backward(probs, labels, slopes, counts)


def _backward(ctx, grad: Tensor | None, _grad_slopes: None) -> tuple[Tensor | None, None, None, None, None]:
    if grad is None or not ctx.needs_input_grad[0]:
        return None, None, None, None, None
    return _grad_probs(grad, *ctx.saved_tensors), None, None, None, None


def _no_second_derivative(ctx, grad: Tensor) -> None:
    raise NotImplementedError("pcl_loss has no second derivative; differentiate it only once")


@register_fake("pcl_loss_forward")
def _fake_forward(probs, labels, weights, clusters, counts):
    slopes_dtype = torch.float64 if probs.dtype == torch.float64 else torch.float32
    losses = probs.new_empty(() if counts is None else counts.shape)
    return losses, probs.new_empty(labels.shape, dtype=slopes_dtype)


# The backward op reads only the shape of probs. It takes the tensor so that autograd records the dependency
# and a second derivative raises an error instead of being zero.
@register_fake("pcl_loss_backward")
def _fake_backward(grad, probs, labels, slopes, counts):
    return probs.new_empty(probs.shape)


_forward = differentiable(_C.pcl_loss_forward, _backward, _setup_context, autocast=torch.float32)
_grad_probs = differentiable(_C.pcl_loss_backward, _no_second_derivative)

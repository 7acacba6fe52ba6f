"""Soft non-maximum suppression. Kernels: csrc/cpu/soft_nms.cpp, csrc/cuda/soft_nms.cu."""

from typing import Literal

import torch
from torch import Tensor

from detector.layers._extension import load_extension
from detector.layers._fake import register_fake
from detector.layers.nms import as_int64

_C = load_extension()


@torch.no_grad()
def soft_nms(
    boxes: Tensor,
    scores: Tensor,
    idxs: Tensor | None = None,
    *,
    method: Literal["linear", "gaussian"] = "linear",
    iou_threshold: float = 0.3,
    sigma: float = 0.5,
    min_score: float = 0.001,
) -> tuple[Tensor, Tensor]:
    r"""Lower the scores of boxes that overlap better ones, instead of removing the boxes.

    The box with the highest score is taken, ties by ascending index, and the scores of the other boxes are
    multiplied by a factor of their IoU with it:

    .. math::
        \text{linear: } 1 - \mathrm{IoU} \text{ where } \mathrm{IoU} > \text{iou\_threshold, else } 1 \qquad
        \text{gaussian: } \exp(-\mathrm{IoU}^2 / \sigma)

    This is repeated with the boxes that are left until no score is at least `min_score`. Source: Bodla et
    al., "Soft-NMS - Improving Object Detection With One Line of Code", https://arxiv.org/abs/1704.04503.

    Not differentiable. Results are bitwise reproducible on one device. The size of the result depends on the
    values. On a GPU one block takes each group, so the time grows with the size of the largest group.

    Args:
        boxes (Tensor[N, 4]): xyxy; float64, float32, float16 or bfloat16 (half precision computes in
            float32), any strides.
        scores (Tensor[N]): finite, 0 or more, in the dtype of `boxes`.
        idxs (Tensor[N], optional): the group of each box, for example its class, any real dtype; a box only
            lowers the scores of its own group. Default: one group.
        method: "linear" or "gaussian".
        iou_threshold: of the method "linear", from 0 to 1.
        sigma: of the method "gaussian", positive.
        min_score: boxes whose lowered score is below are dropped; 0 or more.

    Returns:
        Tensor[K]: int64, indices of the boxes by descending lowered score, ties by ascending index.
        Tensor[K]: their lowered scores, in the dtype of `scores`.

    Raises:
        ValueError: on another method, or an option that is out of range.
        RuntimeError: on a wrong shape, dtype or device. A NaN in a box and a negative or non-finite score
            raise on the CPU; that in a box also on a GPU if the environment variable DETECTOR_VALIDATE is 1.
            Otherwise on a GPU such a box overlaps no other, a box with a NaN score is dropped, and the
            results for negative and infinite scores are undefined.
    """
    if method not in ("linear", "gaussian"):
        raise ValueError(f"soft_nms: method is {method!r}, expected 'linear' or 'gaussian'")
    if not (0 <= iou_threshold <= 1 and 0 < sigma < float("inf") and 0 <= min_score < float("inf")):
        raise ValueError(
            f"soft_nms: iou_threshold is {iou_threshold}, sigma is {sigma} and min_score is {min_score};"
            " expected a number from 0 to 1, a positive number and a number of 0 or more"
        )
    gaussian = method == "gaussian"
    options = (gaussian, sigma if gaussian else iou_threshold, min_score)
    dtype = torch.float64 if boxes.dtype == torch.float64 else torch.float32
    wide_boxes, wide_scores = (t.to(dtype) if t.is_floating_point() else t for t in (boxes, scores))
    lowered = _lowered_scores(wide_boxes, wide_scores, idxs, options)
    order = lowered.argsort(descending=True, stable=True)
    order = order[lowered[order] >= min_score]
    return order, lowered[order].to(scores.dtype)


def _lowered_scores(boxes: Tensor, scores: Tensor, idxs: Tensor | None, options: tuple) -> Tensor:
    """The score (N,) that each box is taken with, or what is left of it below the lowest score."""
    # The op checks the shape. Under torch.export len() would make a constant of it.
    size = boxes.shape[0] if boxes.dim() else 0
    if idxs is None:
        starts = torch.arange(2, device=boxes.device) * size
        return _C.soft_nms(boxes, scores, starts, *options)
    idxs = as_int64(idxs)
    for name, tensor in (("scores", scores), ("idxs", idxs)):  # the op gets sorted copies of both
        if tensor.shape != boxes.shape[:1]:
            raise RuntimeError(f"soft_nms: {name} has shape {tuple(tensor.shape)}, expected ({size},)")
        if tensor.device != boxes.device:
            raise RuntimeError(f"soft_nms: {name} is on {tensor.device}, but boxes is on {boxes.device}")
    if idxs.is_complex():
        raise RuntimeError(f"soft_nms: idxs is {idxs.dtype}, expected a real dtype")
    groups, order = idxs.sort(stable=True)
    counts = torch.unique_consecutive(groups, return_counts=True)[1]
    starts = torch.nn.functional.pad(counts.cumsum(0), (1, 0))  # (G + 1,)
    lowered = _C.soft_nms(boxes[order], scores[order], starts, *options)
    return torch.empty_like(lowered).index_copy_(0, order, lowered)


@register_fake("soft_nms")
def _fake_soft_nms(boxes, scores, starts, gaussian, parameter, min_score):
    return scores.new_empty(scores.shape)

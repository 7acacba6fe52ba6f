"""Pseudo labels of proposals. Kernels: csrc/cpu/proposal_clusters, csrc/cuda/proposal_clusters."""

from collections import Counter
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from detector.layers._extension import load_extension
from detector.layers._fake import has_values, register_fake
from detector.layers._vmap import with_examples
from detector.structures import box_area, box_intersection, box_iou

_C = load_extension()

METHODS = ("pcl", "oicr", "mist")  # numbered as in csrc/proposal_clusters.h


class ProposalClusters(NamedTuple):
    """Pseudo labels of the proposals of a batch; cluster indices start at 0 in each image.

    All fields are (sum R,) or, for the scores of S streams, (S, sum R).
    """

    labels: Tensor  # int64: 1..C for members of a cluster, 0 for background
    weights: Tensor  # dtype of the scores: weight of the nearest center, 0 if ignored
    clusters: Tensor  # int64: cluster of a member, -1 for background
    centers: Tensor  # int64: the cluster of which the proposal is the center, else -1


@torch.no_grad()
def proposal_clusters(
    boxes: Tensor,
    scores: Tensor,
    image_labels: Tensor,
    counts: Tensor,
    *,
    method: Literal["pcl", "oicr", "mist"],
    graph_iou: float = 0.4,
    max_centers: int = 5,
    nms_iou: float = 0.2,
    top_share: float = 0.15,
    member_iou: float = 0.5,
    ignore_iou: float = 0.1,
    ignore_cover: float = 0.0,
    cover_iou: float = 0.0,
) -> ProposalClusters:
    """Assign pseudo labels and weights to the proposals of a batch of images with image-level labels.

    Each positive class of an image, in class order, selects cluster centers among the proposals that no
    earlier class has selected:

    - "pcl" (Tang et al., https://arxiv.org/abs/1807.03342) takes the proposals in the highest-scoring cluster
      of an optimal 3-means of the scores, and connects those whose IoU is greater than `graph_iou`. It
      repeatedly makes the proposal with the most neighbors a center and removes it with its neighbors, until
      at most `max_centers` proposals remain. A center's weight is the highest score in its group. The
      `max_centers` centers with the highest weights are kept.
    - "oicr" (Tang et al., https://arxiv.org/abs/1704.00138) takes the highest-scoring proposal. The weight is
      its score.
    - "mist" (Ren et al., https://arxiv.org/abs/2004.04725) takes the top `top_share` of the proposals by
      score, rounded up, and applies greedy non-maximum suppression at `nms_iou`. The weights are the scores.

    Each proposal is then assigned to the center with which its IoU is highest. If that IoU is at least
    `member_iou` the proposal gets the class of the center, else it is background. Its weight is that of the
    center, or 0 (ignored) if the IoU is less than `ignore_iou`. If `ignore_cover` is positive, a background
    proposal is also ignored if it covers at least that fraction of the area of some center of its image and
    their IoU is at least `cover_iou`: it may be the whole object of which the center is a part. An image
    without a positive class has no clusters and weights of 0.

    Ties are resolved in favor of the first proposal, the first center and, in the 3-means, the smallest top
    cluster. Results are bitwise reproducible and equal on the CPU and on a GPU. Not differentiable. On a GPU
    the call does not synchronize with the host, the number of launches is fixed, and the call can be captured
    in a CUDA graph if all tensors are on the GPU.

    Args:
        boxes (Tensor[sum R, 4]): xyxy proposals of all images, concatenated; float32 or float64.
        scores (Tensor[sum R, C] or Tensor[S, sum R, C]): class probabilities, clamped internally to
            [1e-9, 1 - 1e-9]; float64, float32, float16 or bfloat16 (half precision computes in float32); any
            strides. The S streams are clustered independently of each other.
        image_labels (Tensor[B, C]): 1 if the class is present in the image, else 0; any dtype.
        counts (Tensor[B]): int64, number of proposals of each image, at most 65,535; they sum to sum R. On
            any device; with boxes on a GPU, counts on the CPU reduce the memory for the graphs.
        method: how centers are selected.

    Raises:
        RuntimeError: on a wrong shape, dtype or device, `max_centers` less than 1, or a fraction that is not
            from 0 to 1. Non-finite scores, boxes with x2 < x1 or y2 < y1, labels other than 0 and 1 and
            inconsistent counts raise on the CPU, and on a GPU if the environment variable DETECTOR_VALIDATE
            is 1. Otherwise a GPU sets the weights of the affected rows to NaN, so that the loss is NaN.
        ValueError: on an unknown method, or the IoU of its edges, `graph_iou` or `nms_iou`, outside [0, 1].
    """
    if method not in METHODS:
        raise ValueError(f"proposal_clusters: method is {method!r}, expected one of {', '.join(METHODS)}")
    # The op checks the other options; this one has two names here.
    edge, edge_iou = ("nms_iou", nms_iou) if method == "mist" else ("graph_iou", graph_iou)
    if not 0 <= edge_iou <= 1:  # also true for NaN
        raise ValueError(f"proposal_clusters: {edge} is {edge_iou:g}, expected 0 to 1")
    outputs = _C.proposal_clusters(
        boxes,
        scores[None] if scores.dim() == 2 else scores,
        image_labels.to(boxes.device, torch.float32, non_blocking=boxes.is_cuda),
        counts if counts.device.type == "cpu" else counts.to(boxes.device),
        METHODS.index(method),
        edge_iou,
        max_centers,
        top_share,
        member_iou,
        ignore_iou,
        ignore_cover,
        cover_iou,
    )
    return ProposalClusters(*((output[0] for output in outputs) if scores.dim() == 2 else outputs))


@torch.no_grad()
def assign_to_seeds(
    boxes: Tensor,
    rows: Tensor,
    classes: Tensor,
    weights: Tensor,
    *,
    member_iou: float = 0.5,
    ignore_iou: float = 0.1,
    ignore_cover: float = 0.0,
    cover_iou: float = 0.0,
) -> ProposalClusters:
    """Assign pseudo labels to the proposals of one image, given its cluster centers ("seeds").

    The assignment is that of :func:`proposal_clusters`, in plain PyTorch, for centers selected by another
    rule. Memory is O(R S).

    Args:
        boxes (Tensor[R, 4]): the proposals, xyxy; float32 or float64.
        rows (Tensor[S]): int64, distinct indices of the proposals that are the centers of clusters 0..S-1.
        classes (Tensor[S]): int64, the class of each center, 0..C-1.
        weights (Tensor[S]): floating point, the weight of each center.
        member_iou, ignore_iou, ignore_cover, cover_iou: as in :func:`proposal_clusters`.

    Raises:
        RuntimeError: on a wrong shape, dtype or device, or a fraction that is not from 0 to 1; and, on the
            CPU in eager mode, if `rows` are not distinct proposals, a class is negative, or a box is not
            finite or has x2 < x1 or y2 < y1.
    """
    _check_seeds(boxes, rows, classes, weights)
    fractions = {"member_iou": member_iou, "ignore_iou": ignore_iou}
    for name, value in (fractions | {"ignore_cover": ignore_cover, "cover_iou": cover_iou}).items():
        if not 0 <= value <= 1:  # also NaN
            raise RuntimeError(f"assign_to_seeds: {name} is {value:g}, expected 0 to 1")
    if has_values(rows):
        _check_seed_values(boxes, rows, classes)
    # Sizes are read from shapes: under torch.export len() would make constants of them.
    unassigned = torch.full(boxes.shape[:1], -1, device=boxes.device)  # (R,)
    if rows.shape[0] == 0:
        labels = torch.zeros_like(unassigned)
        return ProposalClusters(labels, labels.to(weights.dtype), unassigned, unassigned)
    seeds = boxes[rows]
    overlaps = box_iou(boxes, seeds)  # (R, S)
    overlap = overlaps.amax(dim=1)
    nearest = (overlaps == overlap[:, None]).int().argmax(dim=1)  # (R,), the first maximum
    member = overlap >= member_iou
    ignored = overlap < ignore_iou
    if ignore_cover > 0:
        area = box_area(seeds)  # (S,)
        covering = (box_intersection(boxes, seeds) >= ignore_cover * area) & (area > 0)
        ignored |= ~member & (covering & (overlaps >= cover_iou)).any(dim=1)
    return ProposalClusters(
        labels=torch.where(member, classes[nearest] + 1, 0),
        weights=torch.where(ignored, 0, weights[nearest]),
        clusters=torch.where(member, nearest, -1),
        centers=unassigned.index_put((rows,), torch.arange(rows.shape[0], device=boxes.device)),
    )


def _check_seeds(boxes: Tensor, rows: Tensor, classes: Tensor, weights: Tensor) -> None:
    if boxes.dim() != 2 or boxes.shape[1] != 4:
        raise RuntimeError(f"assign_to_seeds: boxes has shape {tuple(boxes.shape)}, expected (R, 4)")
    if boxes.dtype not in (torch.float32, torch.float64):
        raise RuntimeError(
            f"assign_to_seeds: boxes is {boxes.dtype}, expected torch.float32 or torch.float64"
        )
    if rows.dim() != 1:
        raise RuntimeError(f"assign_to_seeds: rows has shape {tuple(rows.shape)}, expected 1 dimension")
    for name, tensor in (("rows", rows), ("classes", classes), ("weights", weights)):
        if tensor.shape != rows.shape:
            found, expected = tuple(tensor.shape), tuple(rows.shape)
            raise RuntimeError(f"assign_to_seeds: {name} has shape {found}, expected {expected}, as rows")
        if tensor.device != boxes.device:
            raise RuntimeError(
                f"assign_to_seeds: {name} is on {tensor.device}, but boxes is on {boxes.device}"
            )
        if tensor is not weights and tensor.dtype != torch.int64:
            raise RuntimeError(f"assign_to_seeds: {name} is {tensor.dtype}, expected torch.int64")
    if not weights.is_floating_point():
        raise RuntimeError(f"assign_to_seeds: weights is {weights.dtype}, expected a floating dtype")


def _check_seed_values(boxes: Tensor, rows: Tensor, classes: Tensor) -> None:
    for row, times in Counter(rows.tolist()).items():
        if times > 1 or not 0 <= row < len(boxes):
            found, last = f"{row} twice" if times > 1 else row, len(boxes) - 1
            raise RuntimeError(
                f"assign_to_seeds: rows has {found}, expected distinct numbers from 0 to {last}"
            )
    if (classes < 0).any():
        raise RuntimeError(f"assign_to_seeds: classes has {classes.min()}, expected 0 or more")
    valid = boxes.isfinite().all(dim=1) & (boxes[:, 2:] >= boxes[:, :2]).all(dim=1)
    if not valid.all():
        row = int(valid.int().argmin())
        raise RuntimeError(
            f"assign_to_seeds: boxes[{row}] is {tuple(boxes[row].tolist())}, expected finite x1 <= x2 and"
            " y1 <= y2"
        )


@register_fake("proposal_clusters", on_cpu=frozenset({"counts"}))
def _fake(boxes, scores, image_labels, counts, *options):
    rows = scores.shape[:2]  # (S, sum R)
    labels, clusters, centers = (scores.new_empty(rows, dtype=torch.int64) for _ in range(3))
    return labels, scores.new_empty(rows), clusters, centers


@torch.library.register_vmap("detector::proposal_clusters")
def _vmap(info, in_dims, *arguments):
    """One call with the images of all examples."""
    size = info.batch_size
    tensors = (with_examples(t, d, size) for t, d in zip(arguments[:4], in_dims[:4], strict=True))
    boxes, scores, image_labels, counts = tensors
    outputs = _C.proposal_clusters(
        boxes.flatten(0, 1),
        scores.transpose(0, 1).flatten(1, 2),
        image_labels.flatten(0, 1),
        counts.flatten(),
        *arguments[4:],
    )
    return tuple(output.unflatten(1, (size, boxes.shape[1])) for output in outputs), (1,) * len(outputs)

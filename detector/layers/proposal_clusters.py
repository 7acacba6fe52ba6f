"""Pseudo labels from scores. Kernels: csrc/cpu/proposal_clusters.cpp, csrc/cuda/proposal_clusters.cu."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from detector.layers._extension import load_extension
from detector.layers._fake import register_fake
from detector.structures import box_area, box_intersection, box_iou

_C = load_extension()

METHODS = ("pcl", "oicr", "mist")  # numbered as in csrc/proposal_clusters.h


class ProposalClusters(NamedTuple):
    """Pseudo labels of the proposals of a batch, row by row; clusters count from 0 in each image.

    All are (sum R,) or, for scores of S streams, (S, sum R).
    """

    labels: Tensor  # int64: 1..C for members of a cluster, 0 for background
    weights: Tensor  # dtype of the scores: weight of the nearest center, 0 where ignored
    clusters: Tensor  # int64: cluster of a member, -1 for background
    centers: Tensor  # int64: the cluster whose center this proposal is, -1 for all others


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
    """Which proposals of each image of a batch are taken for an object, for which, and how surely.

    The positive classes of an image choose centers among its proposals, in class order; a chosen proposal is
    out of the pool of later classes.

    - "pcl" (Tang et al., https://arxiv.org/abs/1807.03342) takes the highest cluster of the optimal 3-means
      of the pool's scores and joins two proposals of it whose IoU is greater than `graph_iou`. The proposal
      of the most remaining neighbors becomes a center and takes them with it, until `max_centers` or fewer
      remain. A center's weight is the best score among those it took; the `max_centers` of most weight stay.
    - "oicr" (Tang et al., https://arxiv.org/abs/1704.00138) takes the best proposal. Its score is its weight.
    - "mist" (Ren et al., https://arxiv.org/abs/2004.04725) takes what greedy non-maximum suppression at
      `nms_iou` leaves of the best `top_share` of the pool, rounded up. Their scores are their weights.

    A proposal whose IoU with its nearest center is at least `member_iou` gets that center's class; below, it
    is background. Either way it gets the center's weight, or 0 if the IoU is less than `ignore_iou`. With an
    `ignore_cover` above 0, background that covers at least that share of the area of some center of its image
    gets 0 too, as it may be the whole of which the center is a part, but not where their IoU is less than
    `cover_iou`, as it is too large for that. An image without a positive class has no clusters, and weights
    of 0.

    Ties go to the first proposal, to the first center and, in the 3-means, to the smaller top cluster. Equal
    inputs give equal bits, on the CPU and on a GPU. No gradient flows. On a GPU the host never waits, the
    number of launches is fixed, and the call can be captured in a CUDA graph if all tensors are on the GPU.

    Args:
        boxes (Tensor[sum R, 4]): xyxy boxes of the images, one image after another; float32 or float64.
        scores (Tensor[sum R, C] or Tensor[S, sum R, C]): class probabilities, clamped here to
            [1e-9, 1 - 1e-9]; float64, float32, float16 or bfloat16 (half precision computes in float32). Any
            strides. Those of several streams, each clustered by itself, share the work on the boxes.
        image_labels (Tensor[B, C]): 1 where the image shows the class, else 0; any dtype.
        counts (Tensor[B]): int64, proposals of each image, 65,535 at most; their sum is sum R. On any device;
            for boxes on a GPU those on the CPU save memory, as the space for the graphs is known.
        method: how centers are chosen.

    Raises:
        RuntimeError: on a wrong shape, dtype or device. On the CPU, and on a GPU with the environment
            variable DETECTOR_VALIDATE=1, also on scores that are not finite, boxes with x2 < x1 or y2 < y1,
            labels other than 0 and 1, and counts that do not fit. Else a GPU gives their rows weights of NaN,
            which the loss shows.
        ValueError: on an unknown method, a `max_centers` below 1, a `top_share` that is not above 0 and at
            most 1, and an IoU or `ignore_cover` outside [0, 1].
    """
    if method not in METHODS:
        raise ValueError(f"proposal_clusters: method is {method!r}, expected one of {', '.join(METHODS)}")
    if not max_centers >= 1:
        raise ValueError(f"proposal_clusters: max_centers is {max_centers}, expected at least 1")
    if not 0 < top_share <= 1:
        raise ValueError(f"proposal_clusters: top_share is {top_share}, expected more than 0 and at most 1")
    fractions = {
        "graph_iou": graph_iou,
        "nms_iou": nms_iou,
        "member_iou": member_iou,
        "ignore_iou": ignore_iou,
        "ignore_cover": ignore_cover,
        "cover_iou": cover_iou,
    }
    for name, value in fractions.items():
        if not 0 <= value <= 1:  # so written, NaN is refused too
            raise ValueError(f"proposal_clusters: {name} is {value}, expected 0 to 1")
    outputs = _C.proposal_clusters(
        boxes,
        scores[None] if scores.dim() == 2 else scores,
        image_labels.to(boxes.device, torch.float32, non_blocking=boxes.is_cuda),
        counts if counts.device.type == "cpu" else counts.to(boxes.device),
        METHODS.index(method),
        nms_iou if method == "mist" else graph_iou,
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
    """Pseudo labels of the proposals of one image from its seeds, as :func:`proposal_clusters` gives them.

    In plain PyTorch: for seeds that another rule has chosen. It takes R x S memory.

    Args:
        boxes (Tensor[R, 4]): the proposals, xyxy.
        rows (Tensor[S]): int64, the proposals that are seeds, the centers of clusters 0..S-1; each once.
        classes (Tensor[S]): int64, the class of each seed, 0..C-1.
        weights (Tensor[S]): floating point, the weight of each seed.
        member_iou, ignore_iou, ignore_cover, cover_iou: of :func:`proposal_clusters`.
    """
    nothing = torch.full((len(boxes),), -1, device=boxes.device)  # (R,)
    if len(rows) == 0:
        labels = torch.zeros_like(nothing)
        return ProposalClusters(labels, labels.to(weights.dtype), nothing, nothing)
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
        centers=nothing.index_put((rows,), torch.arange(len(rows), device=boxes.device)),
    )


@register_fake("proposal_clusters", on_cpu=frozenset({"counts"}))
def _fake(boxes, scores, image_labels, counts, *options):
    rows = scores.shape[:2]  # (S, sum R)
    labels, clusters, centers = (scores.new_empty(rows, dtype=torch.int64) for _ in range(3))
    return labels, scores.new_empty(rows), clusters, centers

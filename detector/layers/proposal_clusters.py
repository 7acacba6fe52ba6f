"""Pseudo labels from scores. Kernels: csrc/cpu/proposal_clusters.cpp, csrc/cuda/proposal_clusters.cu."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from detector.layers._extension import load_extension

_C = load_extension()

METHODS = ("pcl", "oicr", "mist")  # numbered as in csrc/proposal_clusters.h


class ProposalClusters(NamedTuple):
    """Pseudo labels of the proposals of a batch; rows as in the boxes given, cluster ids local to an image."""

    labels: Tensor  # (sum R,) int64: 1..C for members of a cluster, 0 for background
    weights: Tensor  # (sum R,) dtype of the scores: weight of the nearest centre, 0 where ignored
    clusters: Tensor  # (sum R,) int64: cluster of a member, -1 for background
    centres: Tensor  # (sum R,) int64: the cluster whose centre this proposal is, -1 for all others


@torch.no_grad()
def proposal_clusters(
    boxes: Tensor,
    scores: Tensor,
    image_labels: Tensor,
    counts: Tensor,
    *,
    method: Literal["pcl", "oicr", "mist"],
    graph_iou: float = 0.4,
    max_centres: int = 5,
    nms_iou: float = 0.2,
    top_share: float = 0.15,
    member_iou: float = 0.5,
    ignore_iou: float = 0.1,
) -> ProposalClusters:
    """Which proposals of each image of a batch are taken for an object, for which, and how surely.

    The positive classes of an image choose centres among its proposals, in class order; a chosen proposal is out of
    the pool of later classes:

    - "pcl" (Tang et al., https://arxiv.org/abs/1807.03342): of the optimal 3-means of the class's scores the highest
      cluster is taken, with an edge between proposals whose IoU exceeds `graph_iou`. The proposal with the most
      remaining neighbours becomes a centre and takes them with it, until `max_centres` or fewer remain. Its weight
      is the best score among them, and the `max_centres` centres of most weight stay.
    - "oicr" (Tang et al., https://arxiv.org/abs/1704.00138): the best proposal; its weight is its score.
    - "mist" (Ren et al., https://arxiv.org/abs/2004.04725): what greedy non-maximum suppression at `nms_iou` leaves
      of the best `top_share` of the pool; their weights are their scores.

    A proposal whose IoU with its nearest centre is at least `member_iou` gets that centre's class; below, it is
    background. Either way it has the centre's weight, or 0 if the IoU is less than `ignore_iou`. An image without a
    positive class has no clusters and weights of 0. Ties go to the lower proposal, the earlier centre and, in the
    3-means, to the smaller top cluster; equal inputs give equal bits, on the CPU and on a GPU.

    Args:
        boxes (Tensor[sum R, 4]): xyxy boxes of all images, in order; float32 or float64.
        scores (Tensor[sum R, C]): class probabilities, clamped here to [1e-9, 1 - 1e-9]; float64, float32, float16
            or bfloat16 (half types compute in float32), any strides. No gradient goes to them.
        image_labels (Tensor[B, C]): 1 where the image shows the class, else 0.
        counts (Tensor[B]): int64, proposals of each image, on any device; their sum is sum R.
        method: how centres are chosen.

    Raises:
        RuntimeError: on a wrong shape, dtype or device, and on values that contradict the above.
        ValueError: on an unknown method or a `max_centres` below 1.
    """
    if method not in METHODS:
        raise ValueError(f"proposal_clusters: method is {method!r}, expected one of {', '.join(METHODS)}")
    if max_centres < 1:
        raise ValueError(f"proposal_clusters: max_centres is {max_centres}, expected at least 1")
    device = boxes.device
    if boxes.is_cuda:  # until there is a CUDA kernel: the host waits, still faster than PyTorch there
        boxes, scores = boxes.cpu(), scores.cpu()
    outputs = _C.proposal_clusters(
        boxes,
        scores,
        image_labels.to(boxes.device, torch.float32),
        counts.to(boxes.device),
        METHODS.index(method),
        nms_iou if method == "mist" else graph_iou,
        max_centres,
        top_share,
        member_iou,
        ignore_iou,
    )
    return ProposalClusters(*(output.to(device) for output in outputs))


@torch.library.register_fake("detector::proposal_clusters")
def _fake(
    boxes,
    scores,
    image_labels,
    counts,
    method,
    edge_iou,
    max_centres,
    top_share,
    member_iou,
    ignore_iou,
):
    rows = scores.shape[:1]
    numbers = scores.new_empty(rows, dtype=torch.int64)
    return numbers, scores.new_empty(rows), torch.empty_like(numbers), torch.empty_like(numbers)

"""Baseline for proposal clusters: scikit-learn, numpy and a Python loop over classes."""

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from detector.layers import ProposalClusters


def pairwise_iou(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """(N, M) for boxes (N, 4) and others (M, 4)."""
    width = np.minimum(boxes[:, None, 2], others[:, 2]) - np.maximum(boxes[:, None, 0], others[:, 0])
    height = np.minimum(boxes[:, None, 3], others[:, 3]) - np.maximum(boxes[:, None, 1], others[:, 1])
    shared = width.clip(min=0) * height.clip(min=0)
    areas = [(b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]) for b in (boxes, others)]
    return shared / np.maximum(areas[0][:, None] + areas[1] - shared, 1e-9)


def class_centers(boxes: np.ndarray, scores: np.ndarray, max_centers: int) -> tuple[list[int], list[float]]:
    """Rows and weights of the PCL centers among boxes (R, 4) with scores (R,)."""
    means = KMeans(n_clusters=3, n_init=10, random_state=0).fit(scores[:, None])
    top = np.flatnonzero(means.labels_ == means.cluster_centers_.argmax())
    joined = pairwise_iou(boxes[top], boxes[top]) > 0.4
    remaining = len(top)
    rows, weights = [], []
    while not rows or remaining > max_centers:
        node = joined.sum(axis=1).argmax()
        group = np.flatnonzero(joined[node])
        rows.append(top[node])
        weights.append(scores[top[group]].max())
        joined[group] = False
        joined[:, group] = False
        remaining -= len(group)
    best = np.argsort(weights)[::-1][:max_centers]
    return [rows[i] for i in best], [weights[i] for i in best]


def cluster_image(boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    """Labels, weights, clusters and centers, each (R,), of one image with a positive class."""
    rows, classes, weights = [], [], []
    pool = np.arange(len(boxes))
    for c in np.flatnonzero(labels):
        found, found_weights = class_centers(boxes[pool], scores[pool, c], max_centers=5)
        rows += list(pool[found])
        classes += [c] * len(found)
        weights += found_weights
        pool = np.delete(pool, found)
    overlaps = pairwise_iou(boxes, boxes[rows])
    nearest, highest = overlaps.argmax(axis=1), overlaps.max(axis=1)
    member = highest >= 0.5
    centers = np.full(len(boxes), -1)
    centers[rows] = np.arange(len(rows))
    return [
        np.where(member, np.array(classes)[nearest] + 1, 0),
        np.where(highest < 0.1, 0, np.array(weights)[nearest]).astype(np.float32),
        np.where(member, nearest, -1),
        centers,
    ]


def proposal_clusters(
    boxes: Tensor, scores: Tensor, image_labels: Tensor, counts: Tensor
) -> ProposalClusters:
    """PCL clusters of a batch, computed on the CPU. Each image must have a positive class."""
    sizes = counts.tolist()
    scores = scores.clamp(1e-9, 1 - 1e-9).cpu()
    images = zip(boxes.cpu().split(sizes), scores.split(sizes), image_labels.cpu(), strict=True)
    parts = [cluster_image(b.numpy(), s.numpy(), y.numpy()) for b, s, y in images]
    fields = (torch.from_numpy(np.concatenate(field)).to(boxes.device) for field in zip(*parts, strict=True))
    return ProposalClusters(*fields)


def cluster_streams(boxes: Tensor, scores: Tensor, image_labels: Tensor, counts: Tensor) -> ProposalClusters:
    """Cluster scores (S, sum R, C), one stream at a time."""
    streams = [proposal_clusters(boxes, stream, image_labels, counts) for stream in scores]
    return ProposalClusters(*(torch.stack(field) for field in zip(*streams, strict=True)))

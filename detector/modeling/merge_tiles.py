"""Merges the detections in the tiles of a large picture.

Neighboring tiles overlap, so an object may be found in several of them, or as a part where an edge cuts it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from detector.layers import batched_nms
from detector.structures import Detections, box_area, box_intersection

_NEAR = 2.0  # pixels: a box that ends this near to an inner edge of its tile counts as cut
_COVERED = 0.7  # least share of a cut box in an uncut one of its class to be a part of it
_AGREE = 0.5  # least IoU, in the overlap of two tiles, of two cut boxes that are parts of one object
_RIVAL = 0.3  # least share of a box's score that another one needs to replace it or be joined to it
_OUTWARD = torch.tensor([-1.0, -1.0, 1.0, 1.0])


def merge_tiles(found: Sequence[Detections], tiles: Tensor, *, nms_threshold: float) -> Detections:
    """The detections of a picture, best first, on the CPU.

    1. A cut box is dropped if an uncut one of its class, from another tile, covers it and reaches the edges
       that cut it, or if it is a slice of up to 2 pixels.
    2. The remaining cut boxes that agree in the overlap of their tiles are joined, at most one per tile, to
       the box around all of them, with the best of their scores.
    3. Non-maximum suppression in each class, as within a tile.

    Objects that touch stay apart if tiles overlap: each is whole in a tile, or its parts agree with each
    other and no others.

    Args:
        found: the detections in each tile, on the CPU, in pixels of the picture.
        tiles: (T, 4) xyxy int64. The last is the whole picture, whose edges cut no box.
        nms_threshold: of two boxes of a class whose IoU is greater, the lower-scored is dropped.
    """
    rows = torch.arange(len(tiles)).repeat_interleave(
        torch.tensor([len(detections) for detections in found])
    )  # (D,)
    boxes, scores, labels = (
        torch.cat([getattr(detections, name) for detections in found])
        for name in ("boxes", "scores", "labels")
    )
    every, own = Detections(found[0].image_id, boxes, scores, labels), tiles.float()[rows]
    cuts = ((boxes - own).abs() <= _NEAR) & (own != tiles[-1])  # (D, 4), by which edges
    whole, parts = (~cuts.any(dim=1)).nonzero()[:, 0], cuts.any(dim=1).nonzero()[:, 0]
    parts = parts[(boxes[parts, 2:] - boxes[parts, :2]).amin(dim=1) > _NEAR]
    parts = parts[~_covered(every[parts], rows[parts], cuts[parts], tiles, every[whole])]
    group = _group(every[parts], rows[parts], cuts[parts], tiles)
    joined = _around(every[parts], group)
    single = group.bincount(minlength=len(joined))[group] == 1
    several = group.bincount(minlength=len(joined)) > 1
    alone = parts[single]
    alone = alone[~_covered(every[alone], rows[alone], cuts[alone], tiles, joined[several])]
    kept = [every[whole], joined[several], every[alone]]
    boxes, scores, labels = (
        torch.cat([getattr(detections, name) for detections in kept])
        for name in ("boxes", "scores", "labels")
    )
    keep = batched_nms(boxes, scores, labels, nms_threshold)  # best first
    return Detections(every.image_id, boxes, scores, labels)[keep]


def _covered(parts: Detections, rows: Tensor, cuts: Tensor, tiles: Tensor, whole: Detections) -> Tensor:
    """(P,) bool, whether a box of `whole` replaces a cut box.

    Args:
        rows: (P,) int64, the tile of each part.
        cuts: (P, 4) bool, which of its edges cut the part.
    """
    covered = torch.zeros(len(parts), dtype=torch.bool)
    for row in rows.unique().tolist():  # tile by tile, to bound the memory
        own, tile = (rows == row).nonzero()[:, 0], tiles[row].float()
        near = whole[box_intersection(whole.boxes, tile[None])[:, 0] > 0]
        some = parts[own]
        grown = near.boxes + _NEAR * _OUTWARD  # (N, 4), since a part may be as thin as boxes are inexact
        inside = box_intersection(some.boxes, grown) >= _COVERED * box_area(some.boxes)[:, None]
        reaches = grown * _OUTWARD >= tile * _OUTWARD
        over = (reaches | ~cuts[own][:, None]).all(dim=2)  # (P, N)
        rivals = near.scores >= _RIVAL * some.scores[:, None]
        same = some.labels[:, None] == near.labels
        covered[own] = (inside & over & rivals & same).any(dim=1)
    return covered


def _group(parts: Detections, rows: Tensor, cuts: Tensor, tiles: Tensor) -> Tensor:
    """(P,) int64, the number of the object that each cut box is a part of, from 0, the best part first."""
    partners: list[list[int]] = [[] for _ in range(len(parts))]
    for first, second in _agreeing(parts, rows, cuts, tiles).tolist():
        partners[first].append(second)
    scores, of_tile, groups = parts.scores.tolist(), rows.tolist(), [-1] * len(parts)
    count = 0
    for best in parts.scores.argsort(descending=True, stable=True).tolist():
        if groups[best] >= 0:
            continue
        members, seen = [best], {of_tile[best]}
        for member in members:  # which grows
            for other in sorted(partners[member], key=lambda row: -scores[row]):
                likely = scores[other] >= _RIVAL * scores[best]
                if likely and groups[other] < 0 and of_tile[other] not in seen:
                    members.append(other)
                    seen.add(of_tile[other])
        for member in members:
            groups[member] = count
        count += 1
    return torch.tensor(groups, dtype=torch.int64)


def _agreeing(parts: Detections, rows: Tensor, cuts: Tensor, tiles: Tensor) -> Tensor:
    """Pairs (N, 2) of parts that agree in the overlap of their tiles; each pair in both orders.

    If tiles do not overlap, they and the cut sides of boxes are enlarged a little, so that they do.
    """
    overlap = bool((box_intersection(tiles[:1], tiles[1:-1]) > 0).any())  # of the first one, and so of all
    large, boxes = tiles.float(), parts.boxes  # (T, 4), (P, 4)
    if not overlap:
        large = large + _NEAR * _OUTWARD
        boxes = large[rows].where(cuts, boxes)
    pairs = [torch.zeros(0, 2, dtype=torch.int64)]
    for row in rows.unique().tolist():
        in_reach = (box_intersection(boxes, large[row : row + 1])[:, 0] > 0) & (rows != row)
        own, others = (rows == row).nonzero()[:, 0], in_reach.nonzero()[:, 0]
        common = _clip(large[rows[others]], large[row])  # (N, 4)
        first, second = _clip(boxes[own][:, None], common), _clip(boxes[others], common)  # (P, N, 4), (N, 4)
        shared = _area(_clip(first, second))
        agree = shared >= _AGREE * (_area(first) + _area(second) - shared)  # (P, N)
        agree &= (shared > 0) & (parts.labels[own][:, None] == parts.labels[others])
        found = agree.nonzero()
        pairs.append(torch.stack([own[found[:, 0]], others[found[:, 1]]], dim=1))
    return torch.cat(pairs)


def _around(parts: Detections, group: Tensor) -> Detections:
    """The box around the parts of each group, with the best score of them."""
    count = int(group.max()) + 1 if len(group) else 0
    first, last = parts.boxes.split(2, dim=1)
    columns = group[:, None].expand(-1, 2)
    corner = first.new_zeros(count, 2)
    low = corner.scatter_reduce(0, columns, first, "amin", include_self=False)
    high = corner.scatter_reduce(0, columns, last, "amax", include_self=False)
    scores = first.new_zeros(count).scatter_reduce(0, group, parts.scores, "amax")
    labels = torch.zeros(count, dtype=torch.int64).scatter(0, group, parts.labels)
    return Detections(parts.image_id, torch.cat([low, high], dim=1), scores, labels)


def _clip(boxes: Tensor, limits: Tensor) -> Tensor:
    """Boxes (..., 4) clipped to limits (..., 4); inverted if they do not overlap."""
    low = torch.maximum(boxes[..., :2], limits[..., :2])
    return torch.cat([low, torch.minimum(boxes[..., 2:], limits[..., 2:])], dim=-1)


def _area(boxes: Tensor) -> Tensor:
    """Areas (...) of boxes (..., 4), 0 of inverted ones."""
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(dim=-1)

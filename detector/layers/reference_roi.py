"""Reference implementations of RoI pooling and RoI align in plain PyTorch, one box at a time."""

import torch
from torch import Tensor

from detector.layers._sizes import Size, as_pair
from detector.layers.roi_boxes import Boxes, as_rois

LOWEST = torch.finfo(torch.float32).min  # the initial value of a maximum


def roi_pool(
    input: Tensor,
    boxes: Boxes,
    output_size: Size,
    spatial_scale: float = 1.0,
) -> Tensor:
    """See :func:`detector.layers.roi_pool`."""
    rois = boxes if isinstance(boxes, Tensor) else as_rois(boxes, input)
    rois = rois.cpu()  # division is less accurate on a GPU
    height, width = as_pair("roi_pool", "output_size", output_size)
    pooled = []
    for image, *corners in zip(rois[:, 0].tolist(), *(rois[:, 1:] * spatial_scale).T, strict=True):
        x1, y1, x2, y2 = (_round(corner) for corner in corners)
        rows = _bins(y1, y2, height, input.shape[2])
        columns = _bins(x1, x2, width, input.shape[3])
        bins = [_maximum(input[int(image), :, r, c]) for r in rows for c in columns]
        pooled.append(torch.stack(bins, dim=1).unflatten(1, (height, width)))  # (C, PH, PW)
    return torch.stack(pooled) if pooled else input.new_zeros(0, input.shape[1], height, width)


def _round(coordinate: Tensor) -> Tensor:
    """Round half away from zero; torch.round rounds half to even."""
    whole = coordinate.trunc()
    return whole + coordinate.sign() * ((coordinate - whole).abs() >= 0.5)


def _bins(first: Tensor, last: Tensor, number: int, size: int) -> list[slice]:
    length = (last - first + 1).clamp(min=1) / number
    edges = torch.arange(number + 1, dtype=length.dtype, device=length.device) * length
    starts = (edges[:-1].floor() + first).clamp(0, size).int().tolist()
    ends = (edges[1:].ceil() + first).clamp(0, size).int().tolist()
    return [slice(start, end) for start, end in zip(starts, ends, strict=True)]


def _maximum(cells: Tensor) -> Tensor:
    """The maximum of (C, h, w) in each channel, 0 if there are no cells; the gradient goes to the first."""
    cells = cells.flatten(1)
    if cells.shape[1] == 0:
        return cells.sum(dim=1)  # zeros with a gradient
    comparable = cells.detach().nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    best = cells.gather(1, comparable.argmax(dim=1, keepdim=True))[:, 0]
    return best.where(best > LOWEST, LOWEST)


def roi_align(
    input: Tensor,
    boxes: Boxes,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """See :func:`detector.layers.roi_align`."""
    rois = boxes if isinstance(boxes, Tensor) else as_rois(boxes, input)
    rois = rois.cpu()  # division is less accurate on a GPU
    height, width = as_pair("roi_align", "output_size", output_size)
    offset = 0.5 if aligned else 0.0
    pooled = []
    for image, *corners in zip(rois[:, 0].tolist(), *(rois[:, 1:] * spatial_scale - offset).T, strict=True):
        x1, y1, x2, y2 = corners
        rows, samples_y = _weights(y1, y2, height, input.shape[2], sampling_ratio, aligned)
        columns, samples_x = _weights(x1, x2, width, input.shape[3], sampling_ratio, aligned)
        total = rows.to(input) @ input[int(image)] @ columns.to(input).T  # (C, PH, PW)
        pooled.append(total / max(samples_y * samples_x, 1))
    return torch.stack(pooled) if pooled else input.new_zeros(0, input.shape[1], height, width)


def _weights(
    start: Tensor, end: Tensor, number: int, size: int, sampling_ratio: int, aligned: bool
) -> tuple[Tensor, int]:
    """Weights of the cells in each bin along one axis, (number, size), and the number of samples per bin."""
    length = end - start if aligned else (end - start).clamp(min=1)
    bin_size = length / number
    samples = sampling_ratio if sampling_ratio > 0 else max(int(bin_size.ceil()), 0)
    bins = torch.arange(number, dtype=start.dtype, device=start.device)[:, None]
    in_bin = torch.arange(samples, dtype=start.dtype, device=start.device) + 0.5
    at = start + bins * bin_size + in_bin * bin_size / max(samples, 1)  # (number, samples)
    inside = (at >= -1) & (at <= size)
    at = at.clamp(0, size - 1)
    low = at.floor().long()
    high = (low + 1).clamp(max=size - 1)
    share = at - low
    weights = start.new_zeros(number, size)
    weights.scatter_add_(1, low, (1 - share).where(inside, 0))
    weights.scatter_add_(1, high, share.where(inside, 0))
    return weights, samples

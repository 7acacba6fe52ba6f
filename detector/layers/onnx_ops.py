"""Translations of our ops to ONNX; needs onnxscript."""

import operator
from collections.abc import Callable

import torch
from onnxscript import opset18 as op

import detector.layers  # noqa: F401  torch.ops.detector
from detector.utils.errors import UserError


def translations() -> dict[Callable, Callable]:
    """A function for each op with a counterpart in ONNX, which writes it.

    For `torch.onnx.export(..., dynamo=True, custom_translation_table=translations())`.
    """
    ops = torch.ops.detector
    return {
        ops.roi_align_forward.default: _roi_align,
        ops.roi_pool_forward.default: _roi_pool,
        ops.nms.default: _nms,
        torch.ops.aten.group_norm.default: _group_norm,
        operator.le: _at_most,
    }


def _at_most(size, bound):
    """torch compares sizes with bounds beyond int64, which ONNX cannot write, and does not use the result."""
    return op.LessOrEqual(size, min(bound, 2**63 - 1) if isinstance(bound, int) else bound)


def _group_norm(input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True):
    """Means of rows, then of their means: ONNX Runtime's InstanceNormalization, which torch writes, adds the
    values of a group one by one, in float32, and is off by 1e-4 in large images.
    """
    shape = op.Shape(input)
    sides = op.Slice(shape, [2], [4], [0])
    groups = op.Concat(
        op.Slice(shape, [0], [1], [0]), op.Constant(value_ints=[num_groups, -1]), sides, axis=0
    )
    values = op.Reshape(input, groups)  # (B, groups, C / groups, H, W)
    centered = op.Sub(values, _mean_of_group(values))
    variance = _mean_of_group(op.Mul(centered, centered))
    normalized = op.Reshape(op.Div(centered, op.Sqrt(op.Add(variance, op.Constant(value_float=eps)))), shape)
    if weight is not None:
        normalized = op.Mul(normalized, op.Unsqueeze(weight, [1, 2]))
    if bias is not None:
        normalized = op.Add(normalized, op.Unsqueeze(bias, [1, 2]))
    return normalized


def _mean_of_group(values):
    for axis in (4, 3, 2):
        values = op.ReduceMean(values, [axis], keepdims=1)
    return values


def _roi_align(input, boxes, pooled_height, pooled_width, scale, sampling_ratio, aligned, channels_last):
    if channels_last:
        raise UserError("ONNX's RoiAlign supports no features in channels-last memory format")
    image = op.Cast(op.Squeeze(op.Slice(boxes, [0], [1], [1]), [1]), to=7)  # (R,) int64
    return op.RoiAlign(
        input,
        op.Slice(boxes, [1], [5], [1]),
        image,
        mode="avg",
        output_height=pooled_height,
        output_width=pooled_width,
        spatial_scale=scale,
        sampling_ratio=max(sampling_ratio, 0),
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )


def _roi_pool(input, boxes, pooled_height, pooled_width, scale):
    size = (pooled_height, pooled_width)
    pooled = op.MaxRoiPool(input, boxes, pooled_shape=size, spatial_scale=scale)
    return pooled, pooled  # the second, the places of the maxima, is only for the gradient


def _nms(boxes, scores, idxs, iou_threshold):
    # ONNX drops scores of at most a threshold: minus infinity is raised above it.
    rows = op.Unsqueeze(op.Max(scores, op.Constant(value_float=-1e38)), [0])  # (1, N)
    if idxs is not None:  # from 0: (groups, N), where a box of another group scores less than any
        groups = op.ReduceMax(op.Concat(idxs, op.Constant(value_ints=[0]), axis=0), keepdims=1)
        of_group = op.OneHot(idxs, op.Add(groups, [1]), op.Constant(value_ints=[0, 1]), axis=0)
        rows = op.Where(op.Cast(of_group, to=9), rows, op.Constant(value_float=-3e38))
    # ONNX swaps the corners of an inverted box, which here is empty.
    first, last = op.Slice(boxes, [0], [2], [1]), op.Slice(boxes, [2], [4], [1])
    kept = op.NonMaxSuppression(
        op.Unsqueeze(op.Concat(first, op.Max(first, last), axis=1), [0]),
        op.Unsqueeze(rows, [0]),
        op.Constant(value_ints=[2**31 - 1]),  # boxes of a group are kept at most
        op.Constant(value_floats=[iou_threshold]),
        op.Constant(value_floats=[-2e38]),
    )
    kept = op.Reshape(op.Slice(kept, [2], [3], [1]), [-1])  # of (image, class, box)
    if idxs is None:
        return kept
    number = op.Shape(kept)  # they come group by group: sort them by score, and boxes of one score by index
    kept, _ = op.TopK(kept, number, largest=0)
    _, order = op.TopK(op.Gather(scores, kept), number)
    return op.Gather(kept, order)

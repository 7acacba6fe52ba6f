"""Non-maximum suppression of rotated boxes. Kernels: csrc/cpu/nms_rotated.cpp, csrc/cuda/nms_rotated.cu."""

import torch
from torch import Tensor

from detector.layers._extension import load_extension
from detector.layers._fake import register_fake
from detector.layers.nms import as_int64

_C = load_extension()


def nms_rotated(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Greedy non-maximum suppression of rotated boxes, as detectron2's `nms_rotated`.

    As ``nms``, but the IoU is that of two rotated rectangles (a box is suppressed if
    it is strictly greater than the threshold, as in detectron2 on a GPU). A box of zero or negative
    width or height suppresses no other box and is kept. The result is the same on both devices unless an IoU
    is within rounding of the threshold. Not differentiable. The size of the result depends on the values. On
    a GPU N^2 / 8 bytes of memory are used.

    Args:
        boxes (Tensor[N, 5]): (center x, center y, width, height, angle) in degrees; a positive angle turns
            the box counter-clockwise in the image. float64, float32, float16 or bfloat16, any strides; half
            precision computes in float32.
        scores (Tensor[N]): any real dtype.
        iou_threshold: from 0 to 1.

    Returns:
        Tensor[K]: int64, indices of the kept boxes by descending score, ties by ascending index.

    Raises:
        RuntimeError: on a wrong shape, dtype, device or threshold. A NaN in a box raises on the CPU, and on a
            GPU if the environment variable DETECTOR_VALIDATE is 1; otherwise, on a GPU, the box suppresses no
            other and is kept. A NaN score ranks above all others.
    """
    return _keep(boxes, scores, None, iou_threshold)


def batched_nms_rotated(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """:func:`nms_rotated` within each group of boxes, as detectron2's `batched_nms_rotated`.

    The kernels compare group indices; detectron2 instead moves each group to another place, which loses
    precision.

    Args:
        boxes (Tensor[N, 5]): as in `nms_rotated`.
        scores (Tensor[N]): as in `nms_rotated`.
        idxs (Tensor[N]): the group of each box, for example its class; any real dtype.
        iou_threshold: from 0 to 1.

    Returns:
        Tensor[K]: int64, indices of the kept boxes of all groups by descending score, ties by ascending
        index.
    """
    return _keep(boxes, scores, as_int64(idxs), iou_threshold)


def _keep(boxes: Tensor, scores: Tensor, idxs: Tensor | None, iou_threshold: float) -> Tensor:
    for name, tensor in (("scores", scores), ("idxs", scores if idxs is None else idxs)):
        if tensor.shape != boxes.shape[:1]:
            found, expected = tuple(tensor.shape), tuple(boxes.shape[:1])
            raise RuntimeError(f"nms_rotated: {name} has shape {found}, expected {expected}")
        if tensor.device != boxes.device:
            raise RuntimeError(f"nms_rotated: {name} is on {tensor.device}, but boxes is on {boxes.device}")
    if scores.is_complex():  # the op, which does not get them, cannot check them
        raise RuntimeError(f"nms_rotated: scores is {scores.dtype}, expected a real dtype")
    if boxes.dtype in (torch.float16, torch.bfloat16):
        boxes = boxes.float()
    order = scores.argsort(descending=True, stable=True)
    kept = _C.nms_rotated(boxes[order], None if idxs is None else idxs[order], iou_threshold)
    return order[kept]


@register_fake("nms_rotated")
def _fake_nms_rotated(boxes, idxs, iou_threshold):
    return boxes.new_empty(boxes.shape[:1], dtype=torch.bool)

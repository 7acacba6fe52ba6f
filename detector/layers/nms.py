"""Non-maximum suppression. Kernels: csrc/cpu/nms.cpp, csrc/cuda/nms.cu."""

import torch
from torch import Tensor

from detector.layers._extension import load_extension
from detector.layers._fake import register_fake

_C = load_extension()


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The boxes that greedy non-maximum suppression keeps, as `torchvision.ops.nms`, index for index.

    In descending order of score, equal scores by ascending index, a box is kept unless its IoU with a kept
    box is greater than `iou_threshold`. Boxes are continuous, (x2 - x1) wide; one of no or of negative width
    or height suppresses nothing and is kept. The arithmetic is that of torchvision on the CPU, operation for
    operation, on both devices: both give the same indices, bit-equal IoUs included.

    The size of the result depends on the values, so on a GPU the host waits for it; `nms_mask` does not.
    Under torch.compile it is an unbacked size, which one graph (fullgraph=True) takes only with
    `torch._dynamo.config.capture_dynamic_output_shape_ops = True`. No gradient flows. Memory is linear in N.

    Args:
        boxes (Tensor[N, 4]): xyxy; float64, float32, float16 or bfloat16 (half precision computes in
            float32), any strides.
        scores (Tensor[N]): in the dtype of `boxes`.
        iou_threshold: from 0 to 1.

    Returns:
        Tensor[K]: int64, indices of the kept boxes by descending score, equal scores by ascending index.

    Raises:
        RuntimeError: on a wrong shape, dtype, device or threshold, and on a GPU from 2^31 boxes on. On the
            CPU, and on a GPU with the environment variable DETECTOR_VALIDATE=1, also on NaN. Else on a GPU a
            box with a NaN suppresses nothing and is kept, and a score of NaN is above all others.
    """
    return _C.nms(boxes, scores, None, iou_threshold)


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """`nms` within each group of boxes, as `torchvision.ops.batched_nms`.

    The kernels compare groups, where torchvision, for few boxes, moves groups apart by an offset that costs
    the coordinates bits. See :func:`nms` for all else.

    Args:
        boxes (Tensor[N, 4]): as in `nms`.
        scores (Tensor[N]): as in `nms`.
        idxs (Tensor[N]): the group of each box, its class for example: any integers, negative ones too.
        iou_threshold: from 0 to 1.

    Returns:
        Tensor[K]: int64, indices of the kept boxes of all groups by descending score, equal scores by
        ascending index. (torchvision leaves the order of equal scores open.)
    """
    return _C.nms(boxes, scores, _as_int64(idxs), iou_threshold)


def nms_mask(
    boxes: Tensor, scores: Tensor, iou_threshold: float, idxs: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`nms` or, with `idxs`, `batched_nms`, in a form of which no size depends on the values.

    On a GPU the host never waits, the number of launches depends on N alone, and the call can be captured in
    a CUDA graph. See :func:`nms` for the arguments and errors.

    Returns:
        Tensor[N]: bool, whether each box is kept, in the order of `boxes`.
        Tensor: int64, (), how many are.
    """
    return _C.nms_mask(boxes, scores, None if idxs is None else _as_int64(idxs), iou_threshold)


def _as_int64(idxs: Tensor) -> Tensor:
    """Narrower integers widened; the op refuses all else."""
    return idxs if idxs.is_floating_point() or idxs.is_complex() else idxs.long()


@register_fake("nms")
def _fake_nms(boxes, scores, idxs, iou_threshold):
    num_kept = torch.library.get_ctx().new_dynamic_size()
    return boxes.new_empty(num_kept, dtype=torch.int64)


@register_fake("nms_mask")
def _fake_nms_mask(boxes, scores, idxs, iou_threshold):
    return boxes.new_empty(scores.shape, dtype=torch.bool), boxes.new_empty((), dtype=torch.int64)


for _device_type in ("cpu", "cuda"):  # as torchvision: boxes and scores of two dtypes both become float32
    for _op in ("detector::nms", "detector::nms_mask"):
        torch.library.register_autocast(_op, _device_type, torch.float32)

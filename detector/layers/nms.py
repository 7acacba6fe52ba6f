"""Non-maximum suppression. Kernels: csrc/cpu/nms.cpp, csrc/cuda/nms."""

import torch
from torch import Tensor

from detector.layers._extension import load_extension
from detector.layers._fake import register_fake
from detector.layers._vmap import with_examples

_C = load_extension()


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Greedy non-maximum suppression, with the same result as `torchvision.ops.nms`.

    Boxes are visited in descending order of score, ties by ascending index. A box is kept unless its IoU with
    a box kept earlier is greater than `iou_threshold`. The width of a box is x2 - x1. A box of zero or
    negative width or height suppresses no other box and is kept. Both devices perform the same floating-point
    operations as torchvision on the CPU and therefore return the same indices.

    The size of the result depends on the values, so on a GPU the host has to synchronize; `nms_mask` avoids
    this. Under torch.compile the size is unbacked, and fullgraph=True requires
    `torch._dynamo.config.capture_dynamic_output_shape_ops = True`. Not differentiable. Memory is linear in N.

    Args:
        boxes (Tensor[N, 4]): xyxy; float64, float32, float16 or bfloat16 (half precision computes in
            float32), any strides.
        scores (Tensor[N]): in the dtype of `boxes`.
        iou_threshold: from 0 to 1.

    Returns:
        Tensor[K]: int64, indices of the kept boxes by descending score, ties by ascending index.

    Raises:
        RuntimeError: on a wrong shape, dtype, device or threshold, and on a GPU for 2^31 boxes or more. NaN
            values raise on the CPU, and on a GPU if the environment variable DETECTOR_VALIDATE is 1.
            Otherwise, on a GPU, a box with a NaN suppresses no other box and is kept, and a NaN score ranks
            above all others.
    """
    return _C.nms(boxes, scores, None, iou_threshold)


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """Non-maximum suppression within each group of boxes, as in `torchvision.ops.batched_nms`.

    The kernels compare group indices. torchvision instead offsets the coordinates of each group when there
    are few boxes, which loses precision. See :func:`nms` for everything else.

    Args:
        boxes (Tensor[N, 4]): as in `nms`.
        scores (Tensor[N]): as in `nms`.
        idxs (Tensor[N]): the group of each box, for example its class; any real dtype.
        iou_threshold: from 0 to 1.

    Returns:
        Tensor[K]: int64, indices of the kept boxes of all groups by descending score, ties by ascending
        index. (torchvision does not define the order of ties.)
    """
    if idxs is None and boxes.numel() == 0:  # as torchvision, whatever the shape of the boxes
        return torch.empty([0], dtype=torch.int64, device=boxes.device)
    return _C.nms(boxes, scores, as_int64(idxs), iou_threshold)


def nms_mask(
    boxes: Tensor, scores: Tensor, iou_threshold: float, idxs: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`nms` or, with `idxs`, `batched_nms`, with outputs of fixed size.

    On a GPU the call does not synchronize with the host, the number of launches depends only on N, and the
    call can be captured in a CUDA graph. See :func:`nms` for the arguments and errors.

    Returns:
        Tensor[N]: bool, whether each box is kept, in the order of `boxes`.
        Tensor: int64, (), the number of kept boxes.
    """
    return _C.nms_mask(boxes, scores, None if idxs is None else as_int64(idxs), iou_threshold)


def as_int64(idxs: Tensor) -> Tensor:
    """Group indices as int64; floating-point ones become the ranks of their values.

    Raises:
        TypeError: it is no tensor.
    """
    if not isinstance(idxs, Tensor):
        raise TypeError(f"idxs is {type(idxs).__name__}, expected a Tensor")
    if idxs.is_floating_point():
        values = idxs.double()
        return torch.searchsorted(values.sort()[0], values)
    return idxs if idxs.is_complex() else idxs.long()  # the op rejects complex numbers


@register_fake("nms")
def _fake_nms(boxes, scores, idxs, iou_threshold):
    num_kept = torch.library.get_ctx().new_dynamic_size()
    return boxes.new_empty(num_kept, dtype=torch.int64)


@register_fake("nms_mask")
def _fake_nms_mask(boxes, scores, idxs, iou_threshold):
    return boxes.new_empty(scores.shape, dtype=torch.bool), boxes.new_empty((), dtype=torch.int64)


@torch.library.register_vmap("detector::nms")
def _vmap_nms(info, in_dims, boxes, scores, idxs, iou_threshold):
    raise RuntimeError("nms: examples may keep different numbers of boxes, so vmap needs nms_mask instead")


@torch.library.register_vmap("detector::nms_mask")
def _vmap_nms_mask(info, in_dims, boxes, scores, idxs, iou_threshold):
    """One call in which the boxes of each example are groups of their own."""
    size = info.batch_size
    boxes, scores = (with_examples(t, d, size) for t, d in zip((boxes, scores), in_dims[:2], strict=True))
    groups = torch.arange(size, device=boxes.device)[:, None] * scores.shape[1]  # (size, 1)
    if idxs is not None:  # their ranks, of which there are at most as many as boxes
        idxs = with_examples(idxs, in_dims[2], size).contiguous()
        groups = groups + torch.searchsorted(idxs.sort(dim=1)[0], idxs)
    groups = groups.expand(scores.shape).flatten()
    mask, _ = _C.nms_mask(boxes.flatten(0, 1), scores.flatten(), groups, iou_threshold)
    mask = mask.view(scores.shape)
    return (mask, mask.sum(dim=1)), (0, 0)


for _device_type in ("cpu", "cuda"):  # as in torchvision: boxes and scores are cast to float32
    for _op in ("detector::nms", "detector::nms_mask"):
        torch.library.register_autocast(_op, _device_type, torch.float32)

"""Differentiable ops with CPU and CUDA kernels, and re-exports of related ops of torch and torchvision.

Only torch is required. Ops of torchvision are imported on first use.
"""

from typing import TYPE_CHECKING, Any

from torch.nn.functional import smooth_l1_loss

from detector.layers.depthwise_conv2d import DepthwiseConv2d, depthwise_conv2d
from detector.layers.explain import explain
from detector.layers.lltm import LLTM, LLTMSequence, lltm, lltm_sequence
from detector.layers.nms import batched_nms, nms, nms_mask
from detector.layers.nms_rotated import batched_nms_rotated, nms_rotated
from detector.layers.pcl_loss import PCLLoss, pcl_loss, pcl_loss_compat
from detector.layers.proposal_clusters import ProposalClusters, assign_to_seeds, proposal_clusters
from detector.layers.quick_gelu import QuickGELU, quick_gelu
from detector.layers.roi_align import ROIAlign, RoIAlign, roi_align
from detector.layers.roi_align_rotated import RoIAlignRotated, roi_align_rotated
from detector.layers.roi_pool import RoIPool, roi_pool
from detector.layers.selective_search import SearchStrategy, selective_search
from detector.layers.soft_nms import soft_nms
from detector.layers.trilinear_interpolate import TrilinearInterpolate, trilinear_interpolate
from detector.layers.upsample_bilinear2d import UpsampleBilinear2d, upsample_bilinear2d
from detector.utils.errors import MissingPackage

if TYPE_CHECKING:
    from torchvision.ops import (
        MultiScaleRoIAlign,
        PSRoIAlign,
        PSRoIPool,
        box_iou,
        deform_conv2d,
        ps_roi_align,
        ps_roi_pool,
        sigmoid_focal_loss,
    )

ROIPool = RoIPool
ROIAlignRotated = RoIAlignRotated

__all__ = [
    "LLTM",
    "DepthwiseConv2d",
    "LLTMSequence",
    "MultiScaleRoIAlign",
    "PCLLoss",
    "PSRoIAlign",
    "PSRoIPool",
    "ProposalClusters",
    "QuickGELU",
    "ROIAlign",
    "ROIAlignRotated",
    "ROIPool",
    "RoIAlign",
    "RoIAlignRotated",
    "RoIPool",
    "SearchStrategy",
    "TrilinearInterpolate",
    "UpsampleBilinear2d",
    "assign_to_seeds",
    "batched_nms",
    "batched_nms_rotated",
    "box_iou",
    "deform_conv2d",
    "depthwise_conv2d",
    "explain",
    "lltm",
    "lltm_sequence",
    "nms",
    "nms_mask",
    "nms_rotated",
    "pcl_loss",
    "pcl_loss_compat",
    "proposal_clusters",
    "ps_roi_align",
    "ps_roi_pool",
    "quick_gelu",
    "roi_align",
    "roi_align_rotated",
    "roi_pool",
    "selective_search",
    "sigmoid_focal_loss",
    "smooth_l1_loss",
    "soft_nms",
    "trilinear_interpolate",
    "upsample_bilinear2d",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import torchvision.ops
    except ModuleNotFoundError as error:
        message = f"detector.layers.{name} is torchvision's ({error}): pip install torchvision"
        raise MissingPackage(message) from None
    return getattr(torchvision.ops, name)

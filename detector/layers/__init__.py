"""Differentiable ops with CPU and CUDA kernels, and re-exports of related ops of torch and torchvision."""

from torch.nn.functional import smooth_l1_loss
from torchvision.ops import deform_conv2d, sigmoid_focal_loss

from detector.layers.depthwise_conv2d import DepthwiseConv2d, depthwise_conv2d
from detector.layers.lltm import LLTM, LLTMSequence, lltm, lltm_sequence
from detector.layers.nms import batched_nms, nms, nms_mask
from detector.layers.pcl_loss import PCLLoss, pcl_loss, pcl_loss_compat
from detector.layers.proposal_clusters import ProposalClusters, assign_to_seeds, proposal_clusters
from detector.layers.quick_gelu import QuickGELU, quick_gelu
from detector.layers.roi_align import ROIAlign, RoIAlign, roi_align
from detector.layers.roi_pool import RoIPool, roi_pool
from detector.layers.selective_search import SearchStrategy, selective_search
from detector.layers.trilinear_interpolate import TrilinearInterpolate, trilinear_interpolate
from detector.layers.upsample_bilinear2d import UpsampleBilinear2d, upsample_bilinear2d

ROIPool = RoIPool

__all__ = [
    "LLTM",
    "DepthwiseConv2d",
    "LLTMSequence",
    "PCLLoss",
    "ProposalClusters",
    "QuickGELU",
    "ROIAlign",
    "ROIPool",
    "RoIAlign",
    "RoIPool",
    "SearchStrategy",
    "TrilinearInterpolate",
    "UpsampleBilinear2d",
    "assign_to_seeds",
    "batched_nms",
    "deform_conv2d",
    "depthwise_conv2d",
    "lltm",
    "lltm_sequence",
    "nms",
    "nms_mask",
    "pcl_loss",
    "pcl_loss_compat",
    "proposal_clusters",
    "quick_gelu",
    "roi_align",
    "roi_pool",
    "selective_search",
    "sigmoid_focal_loss",
    "smooth_l1_loss",
    "trilinear_interpolate",
    "upsample_bilinear2d",
]

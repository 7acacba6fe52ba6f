"""The layers: our own ops, each with its gradient, and those that torch and torchvision already have."""

from torch.nn.functional import smooth_l1_loss
from torchvision.ops import (
    RoIAlign,
    RoIPool,
    batched_nms,
    deform_conv2d,
    nms,
    roi_align,
    roi_pool,
    sigmoid_focal_loss,
)

from detector.layers.depthwise_conv2d import DepthwiseConv2d, depthwise_conv2d
from detector.layers.pcl_loss import PCLLoss, pcl_loss, pcl_loss_compat
from detector.layers.proposal_clusters import ProposalClusters, proposal_clusters

ROIAlign = RoIAlign
ROIPool = RoIPool

__all__ = [
    "DepthwiseConv2d",
    "PCLLoss",
    "ProposalClusters",
    "ROIAlign",
    "ROIPool",
    "RoIAlign",
    "RoIPool",
    "batched_nms",
    "deform_conv2d",
    "depthwise_conv2d",
    "nms",
    "pcl_loss",
    "pcl_loss_compat",
    "proposal_clusters",
    "roi_align",
    "roi_pool",
    "sigmoid_focal_loss",
    "smooth_l1_loss",
]

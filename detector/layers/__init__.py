"""The layers: our own ops, each with its gradient, and those that torch and torchvision already have."""

from torch.nn.functional import smooth_l1_loss
from torchvision.ops import batched_nms, deform_conv2d, nms, sigmoid_focal_loss

from detector.layers.pcl_loss import PCLLoss, pcl_loss, pcl_loss_compat
from detector.layers.proposal_clusters import ProposalClusters, proposal_clusters
from detector.layers.roi_align import RoIAlign, roi_align
from detector.layers.roi_pool import RoIPool, roi_pool

ROIAlign = RoIAlign
ROIPool = RoIPool

__all__ = [
    "PCLLoss",
    "ProposalClusters",
    "ROIAlign",
    "ROIPool",
    "RoIAlign",
    "RoIPool",
    "batched_nms",
    "deform_conv2d",
    "nms",
    "pcl_loss",
    "pcl_loss_compat",
    "proposal_clusters",
    "roi_align",
    "roi_pool",
    "sigmoid_focal_loss",
    "smooth_l1_loss",
]

"""PCL: clusters of top-ranking proposals are the objects (Tang et al., arXiv 1807.03342)."""

from dataclasses import asdict, dataclass

from torch import Tensor

from detector.layers import pcl_loss, proposal_clusters
from detector.layers.proposal_clusters import ProposalClusters
from detector.structures import Batch


@dataclass(frozen=True)
class PCL:
    """Pseudo labels from proposal clusters; each cluster is one bag of the loss."""

    graph_iou: float = 0.4
    max_centres: int = 5
    member_iou: float = 0.5
    ignore_iou: float = 0.1
    ignore_cover: float = 0.0
    cover_iou: float = 0.0

    def clusters(self, sources: Tensor, batch: Batch) -> ProposalClusters:
        """Pseudo labels of the proposals from scores (sum R, C), or of each stream from (K, sum R, C)."""
        return proposal_clusters(
            batch.rois[:, 1:], sources, batch.labels, batch.counts, method="pcl", **asdict(self)
        )

    def __call__(self, probs: Tensor, sources: Tensor, batch: Batch) -> Tensor:
        found = self.clusters(sources, batch)
        rows = (tensor.flatten(0, 1) for tensor in (probs, *found[:3]))  # a stream's images after another's
        losses = pcl_loss(*rows, batch.counts.repeat(len(probs)))  # (K * B,)
        return losses.view(len(probs), -1).mean(dim=1)

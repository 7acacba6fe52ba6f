"""PCL: clusters of top-ranking proposals are the objects (Tang et al., arXiv 1807.03342)."""

from dataclasses import asdict, dataclass

from torch import Tensor

from detector.layers import pcl_loss, proposal_clusters
from detector.structures import Batch


@dataclass(frozen=True)
class PCL:
    """Pseudo labels from proposal clusters; each cluster is one bag of the loss."""

    graph_iou: float = 0.4
    max_centres: int = 5
    member_iou: float = 0.5
    ignore_iou: float = 0.1

    def __call__(self, probs: Tensor, source: Tensor, batch: Batch) -> Tensor:
        found = proposal_clusters(
            batch.rois[:, 1:], source, batch.labels, batch.counts, method="pcl", **asdict(self)
        )
        return pcl_loss(probs, found.labels, found.weights, found.clusters, batch.counts).mean()

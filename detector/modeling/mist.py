"""MIST: well-scored proposals that no better one overlaps are the objects (Ren et al., arXiv 2004.04725)."""

from dataclasses import asdict, dataclass

from torch import Tensor

from detector.layers import proposal_clusters
from detector.layers.proposal_clusters import ProposalClusters
from detector.modeling.oicr import oicr_loss
from detector.modeling.per_image import mean_per_image
from detector.structures import Batch


@dataclass(frozen=True)
class MIST:
    """Pseudo labels from the best proposals of each class after suppression; the loss is OICR's."""

    top_share: float = 0.15
    nms_iou: float = 0.2
    member_iou: float = 0.5
    ignore_iou: float = 0.1
    ignore_cover: float = 0.0
    cover_iou: float = 0.0

    def clusters(self, sources: Tensor, batch: Batch) -> ProposalClusters:
        """Pseudo labels of the proposals from scores (sum R, C), or of each stream from (K, sum R, C)."""
        return proposal_clusters(
            batch.rois[:, 1:], sources, batch.labels, batch.counts, method="mist", **asdict(self)
        )

    def __call__(self, probs: Tensor, sources: Tensor, batch: Batch) -> Tensor:
        found = self.clusters(sources, batch)
        return mean_per_image(oicr_loss(probs, found.labels, found.weights), batch.counts)

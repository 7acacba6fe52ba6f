"""OICR: the best proposal of each class and its neighbours are the object (Tang et al., arXiv 1704.00138)."""

from dataclasses import asdict, dataclass

from torch import Tensor

from detector.layers import proposal_clusters
from detector.layers.proposal_clusters import ProposalClusters
from detector.modeling.per_image import mean_per_image
from detector.structures import Batch


@dataclass(frozen=True)
class OICR:
    """Pseudo labels from the top proposal of each class; weighted cross-entropy a proposal."""

    member_iou: float = 0.5
    ignore_iou: float = 0.1
    ignore_cover: float = 0.0
    cover_iou: float = 0.0

    def clusters(self, sources: Tensor, batch: Batch) -> ProposalClusters:
        """Pseudo labels of the proposals from scores (sum R, C), or of each stream from (K, sum R, C)."""
        return proposal_clusters(
            batch.rois[:, 1:], sources, batch.labels, batch.counts, method="oicr", **asdict(self)
        )

    def __call__(self, probs: Tensor, sources: Tensor, batch: Batch) -> Tensor:
        found = self.clusters(sources, batch)
        return mean_per_image(oicr_loss(probs, found.labels, found.weights), batch.counts)


def oicr_loss(probs: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """-w_r log(phi_{r, label} + 1e-6) of each proposal: probs (..., C + 1), labels, weights (...)."""
    return -weights * (probs.gather(-1, labels[..., None])[..., 0] + 1e-6).log()

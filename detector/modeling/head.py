"""The head that all methods share: two MIL streams (WSDDN) and K refinement streams (OICR, PCL)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from detector.modeling.per_image import max_per_image, softmax_per_image
from detector.modeling.regression import RegressionOutputs


@dataclass(frozen=True)
class HeadOutputs:
    """Probabilities of the proposals, the same in training and testing."""

    mil: Tensor  # (sum R, C): class softmax times proposal softmax; sums to the image score
    refinements: Tensor  # (K, sum R, C + 1): softmax over the background (column 0) and the classes
    image_logits: Tensor | None = None  # (B, C) of the ImageHead, if there is one
    regression: RegressionOutputs | None = None  # if the model regresses boxes
    mil_background: Tensor | None = None  # (sum R, 1), if the MIL head has a background class

    def scores(self) -> Tensor:
        """Foreground scores (sum R, C) for detection: the mean of the streams and of the regression branch's
        classes, weighted by its `score_weight`; the MIL scores if there is neither.
        """
        probs, branch = self.refinements, self.regression  # (K, sum R, C + 1)
        if branch is None or branch.logits is None:
            return probs.mean(dim=0)[:, 1:] if len(probs) else self.mil
        own = branch.score_weight * branch.logits.softmax(dim=1)[None]  # (1, sum R, C + 1)
        return (torch.cat([probs, own]).sum(dim=0) / (len(probs) + branch.score_weight))[:, 1:]

    @property
    def deltas(self) -> Tensor | None:
        """Deltas (sum R, C, 4) from the proposals to the boxes; None: no boxes are regressed."""
        if self.regression is None:
            return None
        deltas = self.regression.deltas
        return deltas if deltas.dim() == 3 else deltas.mean(dim=0)


class ImageHead(nn.Module):
    """Classifies the image from the maximum of each feature over its map: (B, D, H, W) to logits (B, C).

    It helps to train a backbone from random weights, for which the product of two softmaxes gives weak
    gradients. WCCN has such a branch, too (Diba et al., arXiv 1611.08258).
    """

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.classes = nn.Linear(in_channels, num_classes)

    def forward(self, features: Tensor, tiles: Tensor | None = None) -> Tensor:
        """Logits (B, C) from the maps (T, D, H, W) of T tiles; `tiles` (B,) counts those of each image."""
        largest = features.amax(dim=(2, 3))  # (T, D)
        return self.classes(largest if tiles is None else max_per_image(largest, tiles))


class Head(nn.Module):
    """WSDDN (Bilen and Vedaldi, arXiv 1511.02853) and K refinement streams (OICR, arXiv 1704.00138).

    With a single class, a sigmoid replaces the softmax over classes, which would be the constant 1.

    Args:
        init_std: standard deviation of the initial weights. 0.01 suits pretrained features; random ones need
            more, since the softmax over proposals with nearly equal scores has almost no gradient.
        mil_background: the two MIL layers also have a background class, in row 0 of their weights.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        num_streams: int,
        *,
        init_std: float = 0.01,
        mil_background: bool = False,
    ) -> None:
        super().__init__()
        self.mil_background = mil_background
        self.classes = nn.Linear(in_features, num_classes + mil_background)
        self.proposals = nn.Linear(in_features, num_classes + mil_background)
        self.refinements = nn.ModuleList(nn.Linear(in_features, num_classes + 1) for _ in range(num_streams))
        for layer in (self.classes, self.proposals, *self.refinements):
            nn.init.normal_(layer.weight, std=init_std)
            nn.init.zeros_(layer.bias)

    def forward(
        self,
        features: Tensor,
        counts: Tensor,
        context: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> HeadOutputs:
        """Features (sum R, F) and proposals per image (B,) to probabilities, in at least float32.

        Args:
            context (Tensor[sum R, F]): features of the context of each proposal. The softmax over
                proposals then compares the difference between a proposal and its context. A part of an
                object, whose context is the rest of it, therefore scores lower than the whole object: the
                contrastive model of ContextLocNet (Kantorov et al., arXiv 1609.04331).
            weights (Tensor[sum R]): how many proposals of its image each represents; None: itself.
        """
        class_logits = self.classes(features).float()  # (sum R, C)
        by_class = class_logits.softmax(dim=1) if class_logits.shape[1] > 1 else class_logits.sigmoid()
        contrast = features if context is None else features - context  # (sum R, F)
        by_proposal = softmax_per_image(self.proposals(contrast).float(), counts, weights)  # (sum R, C)
        logits = [layer(features).float() for layer in self.refinements]
        mil, background = by_class * by_proposal, None
        if self.mil_background:
            background, mil = mil[:, :1], mil[:, 1:]
        # shape[0], because torch.export would turn len() into a constant
        none = mil.new_empty(0, mil.shape[0], mil.shape[1] + 1)
        refinements = torch.stack(logits).softmax(dim=2) if logits else none  # (K, sum R, C + 1)
        return HeadOutputs(mil, refinements, mil_background=background)

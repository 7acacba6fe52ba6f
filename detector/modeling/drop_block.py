"""Concrete drop block: training learns which cells of a RoI to silence (Ren et al., arXiv 2004.04725)."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu


class ConcreteDropBlock(nn.Module):
    """Silences blocks of cells of pooled features (N, D, S, S) in training, those that would be missed most.

    A residual block of convolutions gives each cell the probability to be the center of a silenced block, at
    most `share` / `size`^2 (divided as in DropBlock, arXiv 1810.12890, since a center takes `size`^2 cells
    with it). Centers are drawn from it by a straight-through Gumbel softmax, and what is left of a RoI is
    scaled up by the number of its cells over the number that is left. A RoI of which nothing is left is 0.

    The network minimizes the loss, the residual block maximizes it: its gradient is reversed. It sees the
    features detached, so the backbone learns from the masked features alone.

    Args:
        share: most of the cells that may be silenced, on average.
        size: cells of a silenced block, a side; odd.
        temperature: of the relaxed draw that the gradient goes through.
        gradient_factor: of the reversed gradient.
        width: channels inside the residual block.
    """

    def __init__(
        self,
        channels: int,
        *,
        share: float = 0.3,
        size: int = 3,
        temperature: float = 0.01,
        gradient_factor: float = 1.0,
        width: int = 128,
    ) -> None:
        super().__init__()
        if size % 2 != 1:
            raise ValueError(f"size is {size}, expected an odd number of cells")
        self.limit = share / size**2
        self.size = size
        self.temperature = temperature
        self.gradient_factor = gradient_factor
        self.reduce = nn.Conv2d(channels, width, 3, padding=1)
        self.norm = nn.GroupNorm(1, width)
        self.expand = nn.Conv2d(width, 1, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(channels, 1, 1)
        # All cells begin with half of the limit: beyond the limit there is no gradient to learn from.
        nn.init.zeros_(self.expand.weight)
        nn.init.zeros_(self.shortcut.weight)
        nn.init.constant_(self.shortcut.bias, _logit(self.limit / 2))

    def forward(self, features: Tensor) -> Tensor:
        if not self.training:
            return features
        probs = _ReverseGradient.apply(self.probabilities(features.detach()), self.gradient_factor)
        centers = draw(probs, self.temperature)  # (N, 1, S, S), 0 or 1
        kept = 1 - max_pool2d(centers, self.size, stride=1, padding=self.size // 2)
        cells = kept.shape[2] * kept.shape[3]
        scale = cells / kept.sum(dim=(2, 3), keepdim=True).clamp(min=1)  # (N, 1, 1, 1)
        return features * (kept * scale).to(features.dtype)

    def probabilities(self, features: Tensor) -> Tensor:
        """Probability (N, 1, S, S) of each cell to be the center of a silenced block, float32."""
        residual = self.expand(relu(self.norm(self.reduce(features))))
        return (residual + self.shortcut(features)).float().sigmoid().clamp(max=self.limit)

    def extra_repr(self) -> str:
        return f"limit={self.limit:.3g}, size={self.size}, temperature={self.temperature}"


def draw(probs: Tensor, temperature: float) -> Tensor:
    """Independent draws of 0 and 1, 1 with the given probabilities; the gradient is that of the relaxed draw.

    The binary concrete distribution (Maddison et al., arXiv 1611.00712; Jang et al., arXiv 1611.01144).
    """
    uniform = torch.empty_like(probs).uniform_(1e-6, 1 - 1e-6)
    relaxed = ((probs.logit(eps=1e-6) + uniform.logit()) / temperature).sigmoid()
    return (relaxed > 0.5).to(relaxed.dtype) + (relaxed - relaxed.detach())  # the difference is 0


class _ReverseGradient(torch.autograd.Function):
    """The identity, whose gradient is -factor times the incoming one (arXiv 1409.7495)."""

    @staticmethod
    def forward(ctx, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.factor * gradient, None


def _logit(p: float) -> float:
    return math.log(p / (1 - p))

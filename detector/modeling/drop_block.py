"""Concrete drop block: training learns which cells of a RoI to drop (Ren et al., arXiv 2004.04725)."""

import math
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu


class ConcreteDropBlock(nn.Module):
    """Drops the most discriminative blocks of cells of pooled features (N, D, S, S) in training.

    A residual block of convolutions gives each cell the probability to be the center of a dropped block, at
    most `share` / `size`^2 (divided as in DropBlock, arXiv 1810.12890, since each center drops `size`^2
    cells). Centers are sampled with a straight-through Gumbel softmax, and the remaining cells are scaled by
    the number of cells divided by the number of remaining ones. A RoI without remaining cells is 0.

    The network minimizes the loss and the residual block maximizes it, as its gradient is reversed. Its input
    is detached, so the backbone learns from the masked features only.

    Args:
        share: maximum share of the cells that is dropped, on average.
        size: height and width of a dropped block, in cells; odd.
        temperature: of the relaxed sample through which the gradient passes.
        gradient_factor: of the reversed gradient.
        width: channels inside the residual block.
        norm: "group": GroupNorm; the initial probability of all cells is half of the limit. "batch":
            BatchNorm after both convolutions and He initialization, as in the code of MIST's authors; it
            uses the statistics of the batch, so results depend on the composition of the batch.
        bound: "clamp": the probability is clamped to the limit, beyond which it has no gradient. "scale": the
            sigmoid is multiplied by the limit, as in the code of MIST's authors.
        rescale: "roi": one scale factor per RoI; "batch": one for all RoIs, as in that code.
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
        norm: Literal["group", "batch"] = "group",
        bound: Literal["clamp", "scale"] = "clamp",
        rescale: Literal["roi", "batch"] = "roi",
    ) -> None:
        super().__init__()
        if size % 2 != 1:
            raise ValueError(f"size is {size}, expected an odd number of cells")
        self.limit = share / size**2
        self.size = size
        self.temperature = temperature
        self.gradient_factor = gradient_factor
        self.bound, self.rescale = bound, rescale
        by_batch = norm == "batch"
        self.reduce = nn.Conv2d(channels, width, 3, padding=1, bias=not by_batch)
        # Without running statistics, which are not needed as testing drops no cells.
        batch_norm = partial(nn.BatchNorm2d, track_running_stats=False)
        self.norm = batch_norm(width) if by_batch else nn.GroupNorm(1, width)
        self.expand = nn.Conv2d(width, 1, 3, padding=1, bias=False)
        self.expand_norm = batch_norm(1) if by_batch else nn.Identity()
        self.shortcut = nn.Conv2d(channels, 1, 1, bias=not by_batch)
        if by_batch:
            # That code has a second map of logits, which is not used but counts in the fan-out.
            for layer, maps in ((self.reduce, width), (self.expand, 2), (self.shortcut, 2)):
                nn.init.normal_(layer.weight, std=math.sqrt(2 / (maps * layer.kernel_size[0] ** 2)))
        else:
            nn.init.zeros_(self.expand.weight)
            nn.init.zeros_(self.shortcut.weight)
            begin = self.limit / 2 if bound == "clamp" else 0.5
            nn.init.constant_(self.shortcut.bias, math.log(begin / (1 - begin)))  # type: ignore[arg-type]

    def forward(self, features: Tensor) -> Tensor:
        if not self.training:
            return features
        probs = _ReverseGradient.apply(self.probabilities(features.detach()), self.gradient_factor)
        centers = draw(probs, self.temperature)  # (N, 1, S, S), 0 or 1
        kept = 1 - max_pool2d(centers, self.size, stride=1, padding=self.size // 2)
        if self.rescale == "batch":
            scale = kept.numel() / kept.sum().clamp(min=1)  # ()
        else:
            cells = kept.shape[2] * kept.shape[3]
            scale = cells / kept.sum(dim=(2, 3), keepdim=True).clamp(min=1)  # (N, 1, 1, 1)
        return features * (kept * scale).to(features.dtype)

    def probabilities(self, features: Tensor) -> Tensor:
        """Probability (N, 1, S, S) of each cell to be the center of a dropped block, float32."""
        residual = self.expand_norm(self.expand(relu(self.norm(self.reduce(features)))))
        probs = (residual + self.shortcut(features)).float().sigmoid()
        return probs.clamp(max=self.limit) if self.bound == "clamp" else probs * self.limit

    def extra_repr(self) -> str:
        return f"limit={self.limit:.3g}, size={self.size}, temperature={self.temperature}"


def draw(probs: Tensor, temperature: float) -> Tensor:
    """Sample 0 or 1 with the given probabilities of 1; the gradient is that of the relaxed sample.

    The binary concrete distribution (Maddison et al., arXiv 1611.00712; Jang et al., arXiv 1611.01144).
    """
    uniform = torch.empty_like(probs).uniform_(1e-6, 1 - 1e-6)
    relaxed = ((probs.logit(eps=1e-6) + uniform.logit()) / temperature).sigmoid()
    return (relaxed > 0.5).to(relaxed.dtype) + (relaxed - relaxed.detach())  # the difference is 0


class _ReverseGradient(torch.autograd.Function):
    """The identity; the gradient is multiplied by -factor (arXiv 1409.7495)."""

    @staticmethod
    def forward(ctx, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.factor * gradient, None

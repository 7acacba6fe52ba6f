"""Memory formats of images (N, C, H, W)."""

import torch
from torch import Tensor


def is_channels_last(tensor: Tensor) -> bool:
    """Whether the tensor is channels-last and not contiguous as well, as with a single channel."""
    if not torch.jit.is_scripting():  # noqa: SIM102  torch.jit.script skips the branch only in this form
        if torch._C._are_functorch_transforms_active():
            return False  # vmap does not know; the result is then contiguous
    return (
        tensor.dim() == 4
        and not tensor.is_contiguous()  # first: torch.export knows the answer for all sizes
        and tensor.is_contiguous(memory_format=torch.channels_last)
    )


def memory_format(tensor: Tensor) -> torch.memory_format:
    """The memory format in which the kernels compute and return, given their first argument."""
    return torch.channels_last if is_channels_last(tensor) else torch.contiguous_format

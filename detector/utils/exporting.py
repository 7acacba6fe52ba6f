"""Whether torch.export is at work."""

import torch


def is_exporting() -> bool:
    """As torch.compiler.is_exporting(), which torch 2.11 compiles as True under torch.compile too."""
    return torch.compiler._is_exporting_flag

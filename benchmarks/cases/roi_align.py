"""roi_align with 2 x 2 samples a bin beside torchvision's."""

import torch
from cases import roi_rows
from measure import Row


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    options = {"sampling_ratio": 2, "aligned": True}
    targets = {"forward": 0.30, "backward": 0.50}
    return roi_rows.rows("roi_align", options, targets, saved_bytes=0, device=device, bandwidth=bandwidth)

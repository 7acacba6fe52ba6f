"""roi_pool beside torchvision's."""

import torch
from cases import roi_rows
from measure import Row


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    targets = {"forward": 0.20, "backward": 0.20}
    return roi_rows.rows("roi_pool", {}, targets, saved_bytes=4, device=device, bandwidth=bandwidth)

"""roi_pool beside torchvision's.

What was tried on one H200: one image of 512 x 75 x 100, 2,000 of these boxes, float32, contiguous; time of
the kernel alone, one run each.

* Forward. Four channels in shared memory, a thread a bin: 0.59 ms, kept. The maxima of all 3 x 3 windows
  beside two channels, a quarter of the reads: 0.68 ms, so the reads are not what it waits for. Bins computed
  once for all channels: 0.59 ms, dropped.
* Backward. A warp a tile of cells, lanes over channels: 2.6 ms. A warp a channel, lanes over pooled values,
  where lanes of one cell are found by __match_any_sync and add in turn: 0.88 ms; sum up among themselves
  first: 0.84 ms, kept; are found by 31 shuffles: 1.15 ms.
"""

import torch
from cases import roi_rows
from measure import Row


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    targets = {"forward": 0.20, "backward": 0.20}
    return roi_rows.rows("roi_pool", {}, targets, saved_bytes=4, device=device, bandwidth=bandwidth)

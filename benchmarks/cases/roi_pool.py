"""roi_pool compared with torchvision's.

Design alternatives on an H200: one image of 512 x 75 x 100, 2,000 boxes, float32, contiguous, milliseconds.

* Forward: 0.188 on boxes of 32 to 256 pixels. One thread per bin with four channels in shared memory took
  0.59. Precomputed maxima of windows of 1, 2, 4 or 8 cells: 0.44. Values and cells compared as one 64-bit
  key: 0.28. One warp per box, two bins per lane, with streaming stores of whole pairs: 0.23; partially
  written cache lines had been the limit. Windows that end at the border: 0.200; five loads in flight and
  fewer logical operations: 0.19. Not faster: staging the output in shared memory, other numbers of channels
  or threads, all lanes on one row of tasks.
* Backward: 0.163. Gathering by warps over tiles took 2.6, matching lanes per channel 0.70 to 1.15. Used now:
  fixed-point integers, which can be added in any order with atomics; a sum is two 32-bit integers, since
  shared memory has no 64-bit atomic addition. Channels-last gradients are converted to channels-first: 0.46
  instead of 1.70 (512 x 112 x 150, 4,000 boxes).

The lower bound is 96 us: 401 MB of pooled values and argmax at the copy bandwidth. The host takes 33 us
forward and 72 us backward per call on tiny inputs, torchvision 27 and 67.
"""

import torch
from cases import roi_rows
from measure import Row


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    targets = {"forward": 0.20, "backward": 0.20}
    return roi_rows.rows("roi_pool", {}, targets, saved_bytes=4, device=device, bandwidth=bandwidth)

"""roi_align with 2 x 2 samples per bin compared with torchvision's.

Design alternatives on an H200: one image of 512 x 75 x 100, 2,000 boxes, float32, contiguous, milliseconds of
the kernel. Corners of the boxes are uniform; [in brackets: boxes of 32 to 256 pixels].

* Forward: 0.27 [0.24], limited by shared memory. Used now: one thread per bin, four channels in shared
  memory, 0.28 to 0.35. Rows, then columns, one warp per box, without branches: 0.27 (0.29 with a branch per
  row).
* Backward: 0.46 [0.27]. A gather by warps over rows of cells takes 0.9 to 12; tiles of 8 x 8 cells per block
  with box weights computed once, 0.68 to 0.99; four channels of the whole image in shared memory, 0.84 to
  1.03. Used now: one warp per row of the tile, skipping boxes and bins without weight. Sample tables from a
  first kernel, and a kernel for the layout of few bins, were given up: 0.45 with them, 0.55 now (H100, with
  layout changes and the final sum).

Including layout changes and the final sum, on boxes of 32 to 256 pixels, with these tables: 0.25 forward and
0.43 backward (targets 0.30 and 0.50). The host takes 31 us forward and 80 us backward per call on tiny
inputs, torchvision 21 and 59.

roi_order_kernel reads all boxes once for each image: 32 us of 523 for 16 images of 512 boxes (64 channels of
14 x 14 cells, both passes), 345 of 1,955 for 64 images, 2,675 of 8,683 for 256 (H200).
"""

import torch
from cases import roi_rows
from measure import Row


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    options = {"sampling_ratio": 2, "aligned": True}
    targets = {"forward": 0.30, "backward": 0.50}
    return roi_rows.rows("roi_align", options, targets, saved_bytes=0, device=device, bandwidth=bandwidth)

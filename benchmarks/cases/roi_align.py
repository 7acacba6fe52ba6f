"""roi_align with 2 x 2 samples a bin beside torchvision's.

What was tried on one H200: one image of 512 x 75 x 100, 2,000 of these boxes, float32, contiguous; time of
the kernel alone, one run each.

* Forward. Four channels in shared memory, a thread a bin, loops over samples: 0.35 and 0.38 ms; two samples
  an axis unrolled: 0.29 ms, kept; a sum for each sample: 0.28 ms. By ncu shared memory is busy 92 % of the
  time, more than half of it with bank conflicts. Without divisions, 2 x 2 being known: 0.30 ms, dropped.
* Backward. A warp a piece of a row of cells, lanes over channels, each lane all samples of a box: 12.2 ms; a
  lane a sample: 2.7 ms; the boxes in chunks too, as most meet in the middle of the image: 1.05 ms; the box's
  geometry from the lane that looked at it: 0.90 ms. Sums in registers, 16 columns: 1.21 ms; in shared
  memory, 16 columns, four rows a block: 1.65 ms. Two changes of layout come on top, 0.11 and 0.05 ms (0.15
  each before tiles were loaded 16 bytes at a time); channels-last features need none.
  A tile of 8 x 8 cells a block, a warp a quarter of it in registers, the weights of a box worked out once
  for the block: 0.83 ms (predicted 0.25; 280 million instructions, a third of them for weights, and four
  warps a scheduler that wait for memory and for each other); two channels a lane instead of four: 0.99 ms;
  a warp an eighth of the tile, three blocks a processor: 0.68 ms, kept; two blocks: 0.69. The weights should
  be worked out less often than once for each 128 channels, and gradients loaded ahead.
"""

import torch
from cases import roi_rows
from measure import Row


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    options = {"sampling_ratio": 2, "aligned": True}
    targets = {"forward": 0.30, "backward": 0.50}
    return roi_rows.rows("roi_align", options, targets, saved_bytes=0, device=device, bandwidth=bandwidth)

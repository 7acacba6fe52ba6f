"""roi_align with 2 x 2 samples a bin beside torchvision's.

What was tried on one H200: one image of 512 x 75 x 100, 2,000 of these boxes, float32, contiguous; time of
the kernel alone, one run each.

* Forward. Four channels in shared memory, a thread a bin, loops over samples: 0.35 and 0.38 ms; two samples
  an axis unrolled: 0.29 ms, kept; a sum for each sample: 0.28 ms.
* Backward. A warp a piece of a row of cells, lanes over channels, each lane all samples of a box: 12.2 ms; a
  lane a sample: 2.7 ms; the boxes in chunks too, as most meet in the middle of the image: 1.05 ms; the box's
  geometry from the lane that looked at it: 0.90 ms, kept. Sums in registers, 16 columns: 1.21 ms; in shared
  memory, 16 columns, four rows a block: 1.65 ms. Two changes of layout come on top, 0.11 and 0.05 ms (0.15
  each before tiles were loaded 16 bytes at a time); channels-last features need none.
"""

import torch
from cases import roi_rows
from measure import Row


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    options = {"sampling_ratio": 2, "aligned": True}
    targets = {"forward": 0.30, "backward": 0.50}
    return roi_rows.rows("roi_align", options, targets, saved_bytes=0, device=device, bandwidth=bandwidth)

"""roi_align with 2 x 2 samples a bin beside torchvision's.

What was tried on one H200: one image of 512 x 75 x 100, 2,000 boxes between any two corners, float32,
contiguous; time of the kernel alone, one run each. In brackets: boxes of 32 to 256 pixels.

* Forward. Four channels in shared memory, a thread a bin, loops over samples: 0.35 and 0.38 ms; two samples
  an axis unrolled: 0.29 ms; a sum for each sample: 0.28 to 0.30 ms, kept for images that fit no block. By ncu
  shared memory is busy 92 % of the time, more than half of it with bank conflicts. Without divisions, 2 x 2
  being known: 0.30 ms, dropped. Rows, then columns (a warp a box, a lane one of a bin's four columns, whose
  sums four lanes join): 0.29 ms with a branch for each row (240 million instructions), 0.27 [0.24] without,
  kept: 164 million instructions in brackets, shared memory still busy 89 % of the time. Of 512 x 112 x 150,
  4,000 boxes: 0.75 ms, from 0.76.
* Backward. A warp a piece of a row of cells, lanes over channels, each lane all samples of a box: 12.2 ms; a
  lane a sample: 2.7 ms; the boxes in chunks too, as most meet in the middle of the image: 1.05 ms; the box's
  geometry from the lane that looked at it: 0.90 ms. Sums in registers, 16 columns: 1.21 ms; in shared
  memory, 16 columns, four rows a block: 1.65 ms. Two changes of layout come on top, 0.11 and 0.05 ms (0.15
  each before tiles were loaded 16 bytes at a time); channels-last features need none.
  A tile of 8 x 8 cells a block, a warp a quarter of it in registers, the weights of a box worked out once
  for the block: 0.83 ms (predicted 0.25; 280 million instructions, a third of them for weights, and four
  warps a scheduler that wait for memory and for each other); two channels a lane instead of four: 0.99 ms;
  a warp an eighth of the tile, 4 x 2 cells, three blocks a processor: 0.68 ms; two blocks: 0.69.
  Four channels of the whole image in shared memory, so that pooled gradients are read once and as they lie:
  a warp a band of 4 rows, a lane one of the columns that a box touches: 0.84 ms (465 million instructions,
  180 of them around a box and a band, and warps of the outer bands wait 38 % of the time); bands of 8 rows:
  1.03; dropped. A warp a row of the tile, so that it skips boxes and bins that weigh nothing in its row,
  four bins loaded together, samples from tables of a first kernel, 2 to 3 us: 0.46 ms [0.27], kept; with two
  blocks a processor 0.52 [0.32]. Of 512 x 112 x 150, 4,000 boxes: 1.26 ms, from 1.75. By ncu, in brackets:
  131 million instructions, half of the slots; warps wait for gradients (32 %) and for each other (17 %).

At most and reached, of boxes of 32 to 256 pixels.

    forward   at most 0.30 ms: reached 0.25, in a CUDA graph 0.25
    backward  at most 0.50 ms: reached 0.43, in a CUDA graph 0.42: the kernel 0.27, the change of
              layout 0.114 (0.098 at the copy bandwidth), the sum of the parts 0.023
    around    the host: on tiny inputs a call takes 31 us forward and 80 backward, torchvision's 21 and 59. By
              torch's wrapper for registered formulas, and with memory by its dispatcher: 82 and 127
"""

import torch
from cases import roi_rows
from measure import Row


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    options = {"sampling_ratio": 2, "aligned": True}
    targets = {"forward": 0.30, "backward": 0.50}
    return roi_rows.rows("roi_align", options, targets, saved_bytes=0, device=device, bandwidth=bandwidth)

"""roi_pool beside torchvision's.

What was tried on one H200: one image of 512 x 75 x 100, 2,000 boxes between any two corners, float32,
contiguous; time of the kernel alone, one run each.

* Forward. Four channels in shared memory, a thread a bin: 0.59 ms; its reads of 16 bytes meet in the same
  banks. The maxima of all 3 x 3 windows beside two channels: 0.68 ms. Windows of the largest sides of 1, 2, 4
  or 8 cells that fit a box's bins, four channels: 0.52 ms; two channels, where registers suffice: 0.44 ms,
  kept. Of 512 x 112 x 150, 4,000 boxes: 0.94 ms, from 2.44. Windows of channels-last features take longer
  (3.2 ms, from 2.6): they keep the first way. Bins computed once for all channels:
  0.59 ms, dropped. By ncu the kernel kept the schedulers busy (64 % of the slots), with 290 instructions for
  a bin of two channels. The windows of a bin, worked out once for all channels (190 instructions left): the
  call 0.44 ms, from 0.49; of 512 x 112 x 150, 4,000 boxes, 0.87, from 0.99. The next bin loaded ahead: 0.46
  and 0.87 (the kernel 0.37), dropped. A float and its cell compared as one double, windows joined past the
  border too instead of an integer division for each: the kernel 0.28 ms, kept (of 512 x 112 x 150, 0.68);
  four channels 0.32, two boxes at a time 0.32 (both without the last step). Whole doubles in shared memory,
  a third fewer instructions but one block a processor: 0.35 ms, predicted 0.20, dropped.
  Of boxes of 32 to 256 pixels, in a CUDA graph, each with torchvision's values and maxima: 0.30 ms. A fifth
  fewer instructions and wavefronts (addresses worked out once, no load for windows that a bin has twice,
  rows of odd length): 0.34, slower. What held it up were the stores: alone, without pooling, they take 0.23
  ms in that order (0.33 of four channels), since warps drift apart and pieces of 32 bytes leave the cache
  half written, to be read again. Alone, with a synchronization a round: 0.21; clusters in step: 0.29 and
  more; 8 bytes a lane, two channels of a box side by side: 0.14; 16 bytes and four: 0.13; 401 MB in order:
  0.10. Staged in shared memory for that: 0.31 to 0.44 (0.27 of four channels with streaming stores; 0.30 by
  bulk copies). A warp a box, a lane two bins, values in pairs by way of the lane before: 0.26; streaming
  stores: 0.23, both kept. The next bins loaded ahead: 0.22 (of 512 x 112 x 150, 0.62 from 0.73), kept; not
  in the order of the boxes: 0.23 (0.68). Whole doubles: 0.27; 640 or 768 threads: 0.24 and 0.25. Four
  channels: 0.22, kept. Windows of two and four rows made while cells are loaded: 0.22, and 0.58 from 0.59
  ms, but more code: dropped. Ranks of 16 bits instead of values: not tried; the look-ups of value and
  cell would cost shared memory what they save. 16 images of 38 x 50 cells by windows: 1.36 ms, from 2.62,
  kept.
  Then, in a graph: 43 % of the rounds of a warp had a bin over twice as long as its windows, as the bin that
  the border cuts chose small windows for all of a box. With windows that end at the border too, keys that
  lie in shared memory as they are compared, loads of cells without divisions, and a number of bins that the
  compiler knows: 0.200. Five cells of a thread at once, so two rounds of them in place of three: 0.194. A
  logical operation that the compiler made two of, eight times a round: 0.192 from 0.198. All lanes used, box
  after box in one row of tasks: 0.148 without stores and 0.289 with them, where a lane for each pair of a
  box takes 0.161 and 0.194; dropped. 896 threads: 0.205 to 0.212. All shuffles before the first store,
  behind which each had waited: 0.185 to 0.188. Of 512 x 112 x 150, 4,000 boxes, 0.56.
* Backward. A warp a tile of cells, lanes over channels: 2.6 ms. A warp a channel, lanes over pooled values,
  where lanes of one cell are found by __match_any_sync and sum up among themselves: 0.84 ms; by 31 shuffles:
  1.15 ms. Bins that may share a cell in different steps, known from the box alone, with eight boxes loaded
  ahead into registers: 1.04 ms where each warp looks for its boxes (the loop no longer fits the instruction
  cache), 0.70 ms with a list of them (but 4.9 ms for 16 images, from 3.7 ms in all); by asynchronous copies:
  0.77 ms and 2.95 ms; then a warp waited for its own instructions, about 1,000 cycles a box. Integers, which
  any thread may add in any order: 0.168 ms (predicted: 0.15), kept; four gradients on their way to a thread
  instead of eight: the same. Shared memory has no atomic add of 64 bits (it compiles to a loop of
  compare-and-swap), so a sum is two of 32. One image's boxes need no order: 0.160 ms, from 0.168.
  Channels-last gradients change their layout first: 1.70 ms against 0.46 (512 x 112 x 150, 4,000 boxes) by
  tiles of 64 x 64, 1.04 to 1.22 box by box (0.27 each for gradients and maxima). Read where they are they
  would be read eight times.

At most and reached, of boxes of 32 to 256 pixels: 401 MB of pooled values and maxima, 96 us at the copy
bandwidth.

    forward   at most 0.20 ms: reached 0.188, in a CUDA graph 0.184 (0.23 and 0.22 with boxes between any two
              corners); by ncu, before the last two steps, shared memory (71 % of its wavefronts) and
              instructions (56 % of the schedulers' slots); before the kernel 0.010
    backward  at most 0.20 ms: reached 0.163, in a CUDA graph 0.159 (0.170 and 0.160)
    host      on tiny inputs a call takes 33 us forward and 72 backward, torchvision's 27 and 67, of which
              torch's engine is most. By torch's wrapper for registered formulas, and with memory by its
              dispatcher: 106 and 98
"""

import torch
from cases import roi_rows
from measure import Row


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    targets = {"forward": 0.20, "backward": 0.20}
    return roi_rows.rows("roi_pool", {}, targets, saved_bytes=4, device=device, bandwidth=bandwidth)

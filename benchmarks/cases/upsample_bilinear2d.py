"""upsample_bilinear2d compared with torch.nn.functional.interpolate.

On a CPU in channels_last, an output pixel is computed from its four neighbors at once. Resizing each input
row once and blending it into two output rows was slower. At the smallest size 11 of about 70 us are call
overhead.
"""

from functools import partial

import torch
import torch.nn.functional as F
from compare import compare
from measure import Row

from detector.layers import upsample_bilinear2d

GPU_CASES = [  # shape, factor, dtype, memory format, percent of the copy bandwidth forward and backward
    ((16, 256, 128, 128), 2.0, torch.float32, torch.contiguous_format, (85, 80)),
    ((16, 256, 128, 128), 2.0, torch.float16, torch.contiguous_format, (80, 70)),
    ((16, 256, 128, 128), 2.0, torch.float16, torch.channels_last, (80, 70)),
    ((16, 256, 128, 128), 2.0, torch.bfloat16, torch.contiguous_format, (80, 70)),
    ((16, 256, 128, 128), 2.0, torch.bfloat16, torch.channels_last, (80, 70)),
    ((16, 256, 128, 128), 2.0, torch.float32, torch.channels_last, (85, 80)),
    ((16, 256, 1, 1), 64.0, torch.float32, torch.contiguous_format, (0, 0)),  # as an image-level feature
]
CPU_CASES = [
    ((1, 64, 28, 28), 2.0, torch.float32, torch.contiguous_format, (0, 0)),
    ((2, 64, 56, 56), 2.0, torch.float32, torch.contiguous_format, (0, 0)),
    ((4, 128, 64, 64), 2.0, torch.float32, torch.contiguous_format, (0, 0)),
    ((1, 64, 28, 28), 2.0, torch.float32, torch.channels_last, (0, 0)),
    ((2, 64, 56, 56), 2.0, torch.float32, torch.channels_last, (0, 0)),
    ((4, 128, 64, 64), 2.0, torch.float32, torch.channels_last, (0, 0)),
]


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    table = []
    for shape, factor, dtype, memory_format, percents in GPU_CASES if device.type == "cuda" else CPU_CASES:
        inputs = [
            torch.randn(shape, device=device).to(dtype=dtype, memory_format=memory_format) for _ in range(4)
        ]
        baseline = partial(F.interpolate, scale_factor=factor, mode="bilinear", align_corners=False)
        moved = inputs[0].nbytes + baseline(inputs[0]).nbytes  # one is read, the other written
        table += compare(
            f"upsample_bilinear2d {'x'.join(map(str, shape))} times {factor:g}",
            partial(upsample_bilinear2d, scale_factor=factor),
            {"torch": baseline},
            inputs,
            {"forward": moved, "backward": moved},
            dict(zip(("forward", "backward"), percents, strict=True)),
            bandwidth,
        )
    return table

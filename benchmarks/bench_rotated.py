"""Times the ops of rotated boxes and soft-NMS, compared with torchvision's ops of upright boxes, float32.

python benchmarks/bench_rotated.py --device cuda

torchvision has no op with the same result, so there is no target: roi_align, backward too, is timed with as
many boxes of about the same size, and nms with as many boxes. Boxes have sides of 32 to 256 pixels in an
image of 600 x 800.
"""

from collections.abc import Callable

import torch
from measure import Row, copy_bandwidth, device_parser, keep_freed_memory, report, time_calls
from torch import Tensor
from torchvision import ops

from detector.layers import nms_rotated, roi_align_rotated, soft_nms


def make_boxes(number: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated boxes (R, 5), upright ones (R, 4) and scores (R,)."""
    generator = torch.Generator().manual_seed(0)
    draw = torch.rand(number, 5, generator=generator)
    rotated = draw * torch.tensor([800, 600, 224, 224, 360]) + torch.tensor([0, 0, 32, 32, 0])
    upright = torch.cat([rotated[:, :2] - rotated[:, 2:4] / 2, rotated[:, :2] + rotated[:, 2:4] / 2], dim=1)
    return rotated.to(device), upright.to(device), torch.rand(number, generator=generator).to(device)


def row(case: str, pass_: str, ours: Callable, baseline: Callable, fewest_bytes: int, bandwidth: float,
        device: torch.device) -> Row:  # fmt: skip
    ours_ms, baseline_ms = (time_calls([call], device, repeats=20) for call in (ours, baseline))
    share = 100 * fewest_bytes / bandwidth / ours_ms
    return Row(
        case,
        pass_,
        "float32",
        "contiguous",
        ours_ms,
        "torchvision, upright",
        baseline_ms,
        share,
        "none",
        True,
    )


def roi_rows(device: torch.device, bandwidth: float) -> list[Row]:
    channels, number = (512, 2000) if device.type == "cuda" else (64, 200)
    input = torch.randn(1, channels, 75, 100, device=device, requires_grad=True)
    rotated, upright, _ = make_boxes(number, device)
    image = torch.zeros(number, 1, device=device)
    calls = [
        lambda: roi_align_rotated(input, torch.cat([image, rotated], dim=1), 7, 1 / 8, 2),
        lambda: ops.roi_align(input, torch.cat([image, upright], dim=1), 7, 1 / 8, 2, True),
    ]
    outputs = [call() for call in calls]
    grad = torch.randn_like(outputs[0])
    backward = [lambda o=o: torch.autograd.grad(o, input, grad, retain_graph=True) for o in outputs]
    case, fewest = f"roi_align_rotated 1x{channels}x75x100, {number} boxes", input.nbytes + grad.nbytes
    return [
        row(case, "forward", *calls, fewest, bandwidth, device),
        row(case, "backward", *backward, fewest, bandwidth, device),
    ]


def nms_rows(device: torch.device, bandwidth: float) -> list[Row]:
    result = []
    for number in (2000, 10_000):
        rotated, upright, scores = make_boxes(number, device)
        groups = torch.arange(number, device=device) % 20

        def plain(upright: Tensor = upright, scores: Tensor = scores) -> Tensor:
            return ops.nms(upright, scores, 0.5)

        def grouped(upright: Tensor = upright, scores: Tensor = scores, groups: Tensor = groups) -> Tensor:
            return ops.batched_nms(upright, scores, groups, 0.5)

        cases: list[tuple[str, Callable, Callable]] = [
            ("nms_rotated", lambda b=rotated, s=scores: nms_rotated(b, s, 0.5), plain),
            ("soft_nms", lambda b=upright, s=scores: soft_nms(b, s), plain),
            ("soft_nms 20 classes", lambda b=upright, s=scores, g=groups: soft_nms(b, s, g), grouped),
        ]
        for name, ours, baseline in cases:
            fewest = rotated.nbytes + 12 * number
            result.append(row(f"{name} {number}", "forward", ours, baseline, fewest, bandwidth, device))
    return result


if __name__ == "__main__":
    chosen = torch.device(device_parser(__doc__).parse_args().device)
    keep_freed_memory()
    bytes_per_ms = copy_bandwidth(chosen)
    report("rotated", chosen, roi_rows(chosen, bytes_per_ms) + nms_rows(chosen, bytes_per_ms))

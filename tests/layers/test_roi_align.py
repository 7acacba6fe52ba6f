"""roi_align: comparison with torchvision and values computed by hand. See also test_roi_ops.py."""

import pytest
import torch
import torchvision
from roi_cases import features, make_boxes, values_and_gradient
from torch import Tensor

from detector.layers import roi_align


def samples_near_an_edge(boxes: Tensor, size: tuple[int, int], bins: tuple[int, int], scale: float,
                         sampling_ratio: int, aligned: bool) -> Tensor:  # fmt: skip
    """Mask (R,) of boxes with a sample so close to an edge that rounding decides whether it is inside."""
    near = torch.zeros(len(boxes), dtype=torch.bool, device=boxes.device)
    for axis in range(2):
        start, end = (boxes.double()[:, [2 - axis, 4 - axis]] * scale - (0.5 if aligned else 0.0)).T
        length = end - start if aligned else (end - start).clamp(min=1)
        bin_size = (length / bins[axis])[:, None, None]
        samples = (
            bin_size.ceil().clamp(min=1) if sampling_ratio == 0 else torch.full_like(bin_size, sampling_ratio)
        )
        i = torch.arange(int(samples.max()), device=boxes.device)
        p = torch.arange(bins[axis], device=boxes.device)[:, None]
        at = start[:, None, None] + p * bin_size + (i + 0.5) * bin_size / samples  # (R, bins, samples)
        close = ((at + 1).abs() < 1e-4) | ((at - size[axis]).abs() < 1e-4)
        near |= (close & (i < samples)).flatten(1).any(dim=1)
    return near


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("sampling_ratio", [0, 2, 3])
@pytest.mark.parametrize("output_size", [(7, 7), (3, 5), (1, 1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_torchvision(
    dtype: torch.dtype, output_size: tuple[int, int], sampling_ratio: int, aligned: bool, device: torch.device
) -> None:
    # torchvision does not support inverted boxes with adaptive sampling: the number of samples is negative.
    inverted = not (aligned and sampling_ratio == 0)
    exact = device.type == "cpu" or dtype == torch.float64 or sampling_ratio == 2
    for seed, size in enumerate([(9, 13), (20, 6)]):
        input = features(3, 4, *size, dtype=dtype, device=device)
        boxes = make_boxes(2500, 3, size, dtype=dtype, device=device, seed=seed, inverted=inverted)
        # Division by other than a power of two differs in the last bits on a GPU. The values here differ by
        # up to 4.2e-6; those of torchvision on a GPU and on a CPU differ by 4.5e-6 from each other.
        if not exact:
            options = (size, output_size, 0.5, sampling_ratio, aligned)
            boxes = boxes[~samples_near_an_edge(boxes, *options)]
        arguments = (input, boxes, output_size, 0.5, sampling_ratio, aligned)
        actual = values_and_gradient(roi_align, *arguments)
        expected = values_and_gradient(torchvision.ops.roi_align, *arguments)
        tolerance = 1e-12 if dtype == torch.float64 else 1e-6 if exact else 1e-5
        torch.testing.assert_close(actual[0], expected[0], rtol=tolerance, atol=tolerance)
        # The gradient of a cell is a sum of up to 10^5 terms, in another order.
        tolerance = (1e-11 if dtype == torch.float64 else 5e-5) * float(expected[1].abs().max())
        torch.testing.assert_close(actual[1], expected[1], rtol=0, atol=tolerance)


def test_by_hand(device: torch.device) -> None:
    input = torch.arange(12.0, device=device).reshape(1, 1, 3, 4).requires_grad_()  # value 4 y + x
    boxes = torch.tensor([[0.0, 1, 0, 3, 2]], device=device)
    # One sample at the center of each bin: x 1.5 and 2.5, y 0.5 and 1.5; half a cell less with `aligned`.
    pooled = roi_align(input, boxes, 2, sampling_ratio=1)
    assert pooled.tolist() == [[[[3.5, 4.5], [7.5, 8.5]]]]
    assert roi_align(input, boxes, 2, sampling_ratio=1, aligned=True).tolist() == [[[[1, 2], [5, 6]]]]
    (grad,) = torch.autograd.grad(pooled, input, torch.full_like(pooled, 4))
    assert grad.tolist() == [[[[0, 1, 2, 1], [0, 2, 4, 2], [0, 1, 2, 1]]]]


def test_samples_outside_of_the_input(device: torch.device) -> None:
    input = torch.ones(1, 1, 4, 4, device=device)
    for x, expected in [(-1.01, 0), (-1, 1), (4, 1), (4.01, 0)]:
        box = torch.tensor([[0, x - 0.5, 1, x + 0.5, 2]], device=device)  # one sample, at x
        assert roi_align(input, box, 1, sampling_ratio=1).item() == expected, x


@pytest.mark.parametrize("sampling_ratio", [0, 2])
def test_nan_outside_of_the_samples_is_not_read(sampling_ratio: int, device: torch.device) -> None:
    input = torch.ones(1, 1, 4, 4, device=device)
    input[0, 0, 0, 0] = torch.nan
    boxes = torch.tensor([[0.0, -9, -9, -5, -5], [0, 2, 2, 3, 3]], device=device)
    assert roi_align(input, boxes, 1, 1.0, sampling_ratio).flatten().tolist() == [0, 1]
    assert roi_align(input, torch.tensor([[0.0, 0, 0, 2, 2]], device=device), 1).isnan().all()


def test_inverted_boxes_without_samples_give_zero(device: torch.device) -> None:
    input = features(1, 2, 5, 6, device=device)
    boxes = torch.tensor([[0, 3.0, 1, 1, 3], [0, 3, 3, 1, 1]], dtype=torch.float64, device=device)
    values, grad = values_and_gradient(roi_align, input, boxes, 2, 1.0, 0, True)
    assert not values.any()
    assert not grad.any()


def test_huge_adaptive_boxes_are_fast(device: torch.device) -> None:
    """The box is 10^9 cells wide; only the samples near the image are visited."""
    input = features(1, 2, 5, 6, device=device)
    boxes = torch.tensor([[0, -1e9, -1e9, 1e9, 1e9]], dtype=torch.float64, device=device)
    values, grad = values_and_gradient(roi_align, input, boxes, 1, 1.0, 0, True)
    mean = input.detach().sum((0, 2, 3)) / 4e18
    torch.testing.assert_close(values.flatten(), mean, rtol=0.5, atol=1e-18)
    assert grad.abs().sum() > 0


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_nan_and_inf_gradients_stay_local(value: float, device: torch.device) -> None:
    """The GPU kernel must not multiply NaN or infinity by weights of zero."""
    input = features(1, 4, 16, 16, device=device)
    boxes = torch.tensor([[0.0, 1, 1, 15, 15], [0, 4, 4, 8, 8]], dtype=torch.float64, device=device)
    pooled = roi_align(input, boxes, (2, 2), 1.0, 1, True)  # one sample per bin
    upstream = torch.ones_like(pooled)
    upstream[1, 2, 0, 1] = value  # at y 4.5, x 6.5
    (grad,) = torch.autograd.grad(pooled, input, upstream)
    assert (~grad.isfinite()).nonzero().tolist() == [[0, 2, y, x] for y in (4, 5) for x in (6, 7)]
    upstream[1, 2, 0, 1] = 0
    (expected,) = torch.autograd.grad(roi_align(input, boxes, (2, 2), 1.0, 1, True), input, upstream)
    assert torch.equal(torch.where(grad.isfinite(), grad, expected), expected)


@pytest.mark.cuda
@pytest.mark.parametrize("size", [(240, 245), (170, 170), (100, 110), (50, 60)])
def test_cuda_image_sizes(size: tuple[int, int]) -> None:
    """From images larger than shared memory to four float32 channels at a time."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        boxes = make_boxes(60, 2, size, dtype=wide)
        for channels_last in (False, True):
            for channels in (8, 9):
                input = features(2, channels, *size, dtype=dtype, channels_last=channels_last)
                for sampling_ratio in (0, 2):
                    options = ((3, 4), 0.7, sampling_ratio, True)
                    expected = values_and_gradient(roi_align, input, boxes, *options)
                    actual = values_and_gradient(roi_align, input.cuda(), boxes.cuda(), *options)
                    tolerance = {"rtol": 2e-5, "atol": 2e-5} if dtype == torch.float32 else {}
                    torch.testing.assert_close([a.cpu() for a in actual], list(expected), **tolerance)

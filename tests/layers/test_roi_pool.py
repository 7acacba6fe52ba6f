"""roi_pool: comparison with torchvision and values computed by hand. See also test_roi_ops.py."""

import pytest
import torch
import torchvision
from roi_cases import features, make_boxes, values_and_gradient
from torch import Tensor

from detector.layers import roi_pool

LOWEST = torch.finfo(torch.float32).min


@pytest.mark.parametrize("output_size", [(7, 7), (3, 5), (1, 1), (9, 2)])
@pytest.mark.parametrize("scale", [1.0, 0.5, 1 / 16])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_torchvision(dtype, scale: float, output_size: tuple[int, int], device: torch.device) -> None:
    # The GPU kernel uses precomputed window maxima if bins have many cells: the last size, or a single bin.
    for seed, size in enumerate([(9, 13), (20, 6), (60, 70)]):
        input = features(3, 4, *size, dtype=dtype, device=device)
        boxes = make_boxes(2500, 3, size, dtype=dtype, device=device, seed=seed)
        boxes[:, 1:] /= scale
        arguments = (input, boxes, output_size, scale)
        actual = values_and_gradient(roi_pool, *arguments)
        expected = values_and_gradient(torchvision.ops.roi_pool, *arguments)
        assert torch.equal(actual[0], expected[0])
        # The gradient of a cell is a sum of up to 10^4 terms, in another order on a GPU.
        tolerance = (1e-12 if dtype == torch.float64 else 1e-5) * float(expected[1].abs().max())
        torch.testing.assert_close(actual[1], expected[1], rtol=0, atol=tolerance)


def test_by_hand(device: torch.device) -> None:
    input = torch.arange(12.0, device=device).reshape(1, 1, 3, 4).requires_grad_()
    # columns 1 to 3 in two bins that share the middle one; rows 0 to 1
    pooled = roi_pool(input, torch.tensor([[0.0, 0.6, 0.4, 3.4, 1.0]], device=device), (2, 2))
    assert pooled.tolist() == [[[[2, 3], [6, 7]]]]
    (grad,) = torch.autograd.grad(pooled, input, torch.full_like(pooled, 3))
    assert grad.flatten().nonzero().flatten().tolist() == [2, 3, 6, 7]
    assert grad.sum() == 12


@pytest.mark.parametrize(
    ("dtype", "ratio"), [(torch.float32, 2.0**30), (torch.float64, 2.0**30), (torch.float32, 1e20)]
)
def test_gradient_beside_larger_ones(dtype: torch.dtype, ratio: float, device: torch.device) -> None:
    """On a GPU the sums of a channel are multiples of one unit, see the documentation of roi_pool."""
    input = torch.randn(1, 1, 8, 8, dtype=dtype, device=device, requires_grad=True)
    boxes = torch.tensor([[0, 0, 0, 1, 1], [0, 5, 5, 6, 6]], dtype=dtype, device=device)
    pooled = roi_pool(input, boxes, 1)
    upstream = torch.tensor([ratio, 1.25], dtype=dtype, device=device).reshape(2, 1, 1, 1)
    (grad,) = torch.autograd.grad(pooled, input, upstream)
    largest, small = grad[:, :, :4].max(), grad[:, :, 4:].max()
    assert largest == upstream.max()
    unit = 0 if device.type == "cpu" else 2.0**-60 * len(boxes) * float(upstream.max())
    assert abs(float(small) - 1.25) <= unit


def test_rounding_half_away_from_zero(device: torch.device) -> None:
    input = torch.arange(25.0, device=device).reshape(1, 1, 5, 5)
    for corner, expected in [(0.5, 6), (1.5, 12), (2.5, 18), (-0.4, 0), (0.49999997, 0)]:
        pooled = roi_pool(input, torch.tensor([[0, corner, corner, corner, corner]], device=device), 1)
        assert pooled.item() == expected, corner


def test_first_of_equal_maxima_gets_the_gradient(device: torch.device) -> None:
    input = torch.zeros(1, 2, 4, 4, device=device)
    input[0, 1, 1:3, 1:3] = 5
    _, grad = values_and_gradient(roi_pool, input, torch.tensor([[0.0, 0, 0, 3, 3]], device=device), 1)
    assert grad.flatten(1).nonzero().tolist() == [[0, 0], [0, 21]]  # cell (0, 0), cell (1, 1)


@pytest.mark.parametrize("size", [4, 20])  # few and many cells per bin
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_nan_and_infinity(dtype: torch.dtype, size: int, device: torch.device) -> None:
    nan, inf = torch.nan, torch.inf
    rows = [[nan, 1, nan, nan], [3, nan, nan, nan], [-inf, -inf, inf, nan], [-inf, -inf, 0, 4]]
    input = torch.full((1, 1, size, size), 9, dtype=dtype, device=device)
    input[0, 0, :4, :4] = torch.tensor(rows)
    boxes = torch.tensor([[0, 0, 0, 3, 3]], dtype=dtype, device=device)
    for function in (roi_pool, torchvision.ops.roi_pool):
        values, grad = values_and_gradient(function, input, boxes, 2)
        assert values.flatten().tolist() == [3, LOWEST, LOWEST, inf]
        assert grad[0, 0].nonzero().tolist() == [[1, 0], [2, 2]]


def test_double_backward_gathers_the_maxima(device: torch.device) -> None:
    input = features(2, 3, 9, 13, device=device)
    boxes = make_boxes(8, device=device)
    pooled = roi_pool(input, boxes, (2, 3), 0.5)
    upstream = torch.ones_like(pooled, requires_grad=True)
    (grad,) = torch.autograd.grad(pooled, input, upstream, create_graph=True)
    (values,) = torch.autograd.grad(grad, upstream, input.detach())  # equal to the maxima
    torch.testing.assert_close(values, pooled.detach())


@pytest.mark.cuda
@pytest.mark.parametrize("size", [(240, 245), (170, 170), (100, 110), (50, 60)])
def test_cuda_image_sizes(size: tuple[int, int]) -> None:
    """From images larger than shared memory to four float32 channels at a time."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        boxes = make_boxes(60, 2, size, dtype=wide)
        for channels_last in (False, True):
            input = features(2, 9, *size, dtype=dtype, channels_last=channels_last)
            expected = values_and_gradient(roi_pool, input, boxes, (3, 4), 0.7)
            actual = values_and_gradient(roi_pool, input.cuda(), boxes.cuda(), (3, 4), 0.7)
            assert torch.equal(actual[0].cpu(), expected[0])
            torch.testing.assert_close(actual[1].cpu(), expected[1])


@pytest.mark.cuda
@pytest.mark.parametrize("output_size", [(7, 7), (14, 14), (1, 40), (2, 3), (9, 9), (1, 1), (1, 3)])
@pytest.mark.parametrize("channels", [6, 5])  # processed in fours and twos, or one by one
def test_cuda_bin_sizes(output_size: tuple[int, int], channels: int) -> None:
    """From boxes of one cell to bins of many cells."""
    size = (100, 110)
    generator = torch.Generator().manual_seed(0)
    corner = torch.rand(400, 2, generator=generator) * torch.tensor([110.0, 100.0])
    side = 2 ** (torch.rand(400, 2, generator=generator) * 8 - 1)
    boxes = torch.cat([torch.arange(400)[:, None] % 2, corner, corner + side], dim=1).cuda()
    for channels_last in (False, True):
        input = features(2, channels, *size, channels_last=channels_last, device="cuda")
        input = input.detach().float().round()  # many equal maxima
        expected = values_and_gradient(roi_pool, input.cpu(), boxes.cpu(), output_size)
        actual = values_and_gradient(roi_pool, input, boxes, output_size)
        assert torch.equal(actual[0].cpu(), expected[0])
        torch.testing.assert_close(actual[1].cpu(), expected[1], rtol=1e-5, atol=1e-4)
        assert torch.equal(values_and_gradient(roi_pool, input, boxes, output_size)[1], actual[1])


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_cuda_gradient_magnitudes(dtype: torch.dtype) -> None:
    """The GPU kernel sums in fixed point scaled to the gradients; infinities and NaN must be handled."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    input = features(1, 3, 20, 30, dtype=dtype)
    boxes = make_boxes(2000, 1, (20, 30), dtype=wide, seed=1)
    boxes[:4, 1:] = 2  # all in one cell
    pooled = roi_pool(input, boxes, (2, 3))
    upstream = torch.randn(pooled.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    upstream = (upstream * torch.logspace(-30, 30, len(boxes), dtype=torch.float64)[:, None, None, None]).to(
        dtype
    )
    upstream[0, 0, 0, 0], upstream[1, 1, 0, 0], upstream[2, 2, 0, 0] = torch.inf, -torch.inf, torch.nan
    upstream[3, 0, 0, 0] = -torch.inf

    def gradient(dtype: torch.dtype, device: str) -> Tensor:
        boxes_there = boxes.to(device, torch.float64 if dtype == torch.float64 else torch.float32)
        there = input.detach().to(device, dtype).requires_grad_()
        pooled = roi_pool(there, boxes_there, (2, 3))
        return torch.autograd.grad(pooled, there, upstream.to(device, dtype))[0].cpu().double()

    expected, actual = gradient(torch.float64, "cpu"), gradient(dtype, "cuda")
    assert actual[:, :, 2, 2].flatten().tolist()[1] == -torch.inf
    largest = expected.nan_to_num(0, 0, 0).abs().amax(dim=(2, 3), keepdim=True)
    torch.testing.assert_close(
        actual / largest, expected / largest, rtol=torch.finfo(dtype).eps, atol=2.0**-38, equal_nan=True
    )
    assert torch.equal(gradient(dtype, "cuda").nan_to_num(), actual.nan_to_num())


@pytest.mark.cuda
def test_cuda_float64_gradient_keeps_the_digits_of_small_terms() -> None:
    """In cells whose terms are far smaller than the largest of their channel."""
    input, boxes = features(1, 2, 20, 30), make_boxes(2000, 1, (20, 30), seed=1)
    shape = roi_pool(input, boxes, (2, 3)).shape
    upstream = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    upstream *= torch.logspace(0, -16, len(boxes), dtype=torch.float64)[:, None, None, None]
    upstream[boxes[:, 1] < 15] *= 2.0**-40

    def gradient(device: str, upstream: Tensor) -> Tensor:
        there = input.detach().to(device).requires_grad_()
        pooled = roi_pool(there, boxes.to(device), (2, 3))
        return torch.autograd.grad(pooled, there, upstream.to(device))[0].cpu()

    expected, sizes = gradient("cpu", upstream), gradient("cpu", upstream.abs())
    assert ((gradient("cuda", upstream) - expected).abs() <= 2.0**-46 * sizes).all()


@pytest.mark.cuda
def test_cuda_values_and_argmax_equal_torchvision() -> None:
    """Features with many equal maxima, processed four, two and one channels at a time."""
    for size in [(75, 100), (112, 150), (150, 200)]:
        input = features(1, 8, *size, dtype=torch.float32, device="cuda").detach()
        boxes = make_boxes(700, 1, size, dtype=torch.float32, device="cuda")
        for features_ in (input.relu(), input.round(), -input.relu(), input):
            for output_size in [(7, 7), (2, 3)]:
                expected = torch.ops.torchvision.roi_pool(features_, boxes, 0.9, *output_size)
                actual = torch.ops.detector.roi_pool_forward(features_, boxes, *output_size, 0.9)
                assert torch.equal(actual[0], expected[0])
                assert torch.equal(actual[1], expected[1])


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_cuda_pairs_small_enough_for_the_sanitizer(dtype: torch.dtype) -> None:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    boxes = make_boxes(9, 1, (30, 31), dtype=wide, device="cuda")
    input = features(1, 4, 30, 31, dtype=dtype, device="cuda")
    for output_size in [(3, 3), (2, 3), (1, 1)]:
        roi_pool(input, boxes, output_size)

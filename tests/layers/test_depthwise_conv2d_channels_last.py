"""The CUDA kernels of depthwise_conv2d for channels_last: each variant and its block boundaries."""

from functools import partial

import op_contract
import pytest
import torch
from op_contract import random
from torch import Tensor
from torch.nn.functional import conv2d

from detector.layers import depthwise_conv2d

pytestmark = pytest.mark.cuda

TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
KERNELS = pytest.mark.parametrize("k", [3, 5, 7])
STRIDES = pytest.mark.parametrize("stride", [1, 2])
DTYPES = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)


def make_inputs(shape: tuple[int, ...], k: int | tuple, dtype: torch.dtype) -> list[Tensor]:
    """input (N, C, H, W) in channels_last, weight, bias"""
    kernel = k if isinstance(k, tuple) else (k, k)
    input = random(*shape, dtype=dtype, device="cuda").detach().contiguous(memory_format=torch.channels_last)
    weight = random(shape[1], 1, *kernel, dtype=dtype, device="cuda", seed=1)
    return [input.requires_grad_(), weight, random(shape[1], dtype=dtype, device="cuda", seed=2)]


def assert_matches_torch(inputs: list[Tensor], stride, padding, dilation=1) -> None:
    """Compare output and gradients with torch in float64, by the norm of the difference."""
    dtype, channels = inputs[0].dtype, inputs[0].shape[1]
    exact_inputs = [tensor.detach().double().requires_grad_() for tensor in inputs]
    sizes = {"stride": stride, "padding": padding, "dilation": dilation}
    baseline = partial(conv2d, **sizes, groups=channels)
    ours = partial(depthwise_conv2d, **sizes)
    upstream = torch.randn_like(ours(*inputs))
    results = []
    for function, arguments in ((ours, inputs), (baseline, exact_inputs)):
        output = function(*arguments)
        results.append([output, *torch.autograd.grad(output, arguments, upstream.to(output.dtype))])
    for actual, expected in zip(*results, strict=True):
        error = (actual.double() - expected).norm() / expected.norm()
        assert error < TOLERANCE[dtype]


@KERNELS
@STRIDES
@DTYPES
@pytest.mark.parametrize(
    "shape",
    [(1, 40, 11, 33), (1055, 8, 5, 6)],  # (1055 images: several per block, except for the last block)
    ids=str,
)
def test_cuda_small_enough_for_the_sanitizer(shape: tuple, k: int, stride: int, dtype: torch.dtype) -> None:
    assert_matches_torch(make_inputs(shape, k, dtype), stride, k // 2)


@KERNELS
@STRIDES
@DTYPES
@pytest.mark.parametrize(
    "shape", [(3, 8, 5, 70), (2, 136, 61, 9), (2, 64, 1, 2), (1, 72, 30, 56), (2, 16, 9, 113)], ids=str
)
def test_block_boundaries(shape: tuple, k: int, stride: int, dtype: torch.dtype) -> None:
    for padding in (k // 2, k - 1, k):
        assert_matches_torch(make_inputs(shape, k, dtype), stride, padding)


ANY_KERNEL = pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [
        ((3, 3), 2, 0, 1),  # some rows and columns affect no output
        ((3, 3), 1, 2, 2),
        ((1, 1), 3, 0, 1),  # most phases of the gradient have no taps
        ((4, 2), (1, 3), (0, 1), (2, 1)),
        ((2, 5), (3, 2), (1, 4), (2, 3)),
        ((9, 9), 1, 4, 1),
    ],
    ids=str,
)


@ANY_KERNEL
@DTYPES
def test_cuda_any_kernel_small_enough_for_the_sanitizer(
    kernel: tuple, stride, padding, dilation, dtype: torch.dtype
) -> None:
    inputs = make_inputs((2, 40, 13, 22), kernel, dtype)
    assert_matches_torch(inputs, stride, padding, dilation)
    function = partial(depthwise_conv2d, stride=stride, padding=padding, dilation=dilation)
    op_contract.assert_reproducible(function, inputs)


@DTYPES
def test_unaligned_channels_and_addresses(dtype: torch.dtype) -> None:
    assert_matches_torch(make_inputs((2, 9, 12, 40), 3, dtype), 1, 1)
    input, weight, bias = make_inputs((2, 16, 12, 40), 3, dtype)
    memory = torch.empty(input.numel() + 1, dtype=dtype, device="cuda")[1:]
    shifted = memory.view(2, 12, 40, 16).copy_(input.detach().permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    assert shifted.data_ptr() % 16 != 0
    assert_matches_torch([shifted.requires_grad_(), weight, bias], 1, 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_nan_and_inf_stay_local(dtype: torch.dtype) -> None:
    input, weight, bias = make_inputs((2, 8, 20, 60), 7, dtype)
    expected = depthwise_conv2d(input, weight, bias, padding=3).detach()
    broken = input.detach().clone(memory_format=torch.preserve_format)
    broken[0, 1, 5, 7], broken[1, 2, 0, 0] = torch.nan, torch.inf
    output = depthwise_conv2d(broken, weight, bias, padding=3)
    reached = torch.zeros_like(output, dtype=torch.bool)
    reached[0, 1, 2:9, 4:11] = reached[1, 2, :4, :4] = True
    assert torch.equal(~output.isfinite(), reached)
    assert torch.equal(output[~reached], expected[~reached])


@KERNELS
@DTYPES
def test_reproducible(k: int, dtype: torch.dtype) -> None:
    inputs = make_inputs((4, 64, 40, 60), k, dtype)
    op_contract.assert_reproducible(partial(depthwise_conv2d, padding=k // 2), inputs)

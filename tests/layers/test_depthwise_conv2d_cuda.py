"""depthwise_conv2d on a GPU: every kernel for NCHW input, streams, graphs, more than 2^31 elements."""

import op_contract
import pytest
import torch
from op_contract import random
from torch import Tensor
from torch.nn.functional import conv2d

from detector.layers import depthwise_conv2d

pytestmark = pytest.mark.cuda
DTYPES = [torch.float32, torch.float16, torch.bfloat16]

# Kernel size, stride, padding and input shape for each NCHW kernel in csrc/cuda/depthwise_conv2d.
VARIANTS = {
    "strips, aligned": (3, 1, 1, (2, 3, 9, 64)),
    "strips, any padding": (3, 1, 2, (2, 3, 9, 66)),
    "strips of stride 2": (3, 2, 1, (2, 3, 17, 20)),
    "strips of stride 2, odd width": (5, 2, 2, (2, 3, 9, 13)),
    "strips of stride 2, 7 x 7": (7, 2, 3, (2, 3, 18, 16)),
    "strips, small planes": (3, 1, 1, (5, 3, 7, 7)),
    "strips of 5 x 5": (5, 1, 2, (7, 3, 14, 14)),
    "strips of 7 x 7": (7, 1, 3, (2, 2, 30, 21)),
    "strips of 5 x 5, large planes": (5, 1, 2, (3, 3, 60, 20)),
    "strips of 7 x 7, large planes": (7, 1, 3, (1, 2, 130, 60)),
    "strips, no padding": (5, 1, 0, (3, 2, 16, 24)),
    "tensor cores": (7, 1, 3, (5, 3, 24, 24)),
    "tensor cores, bands and stretches": (7, 1, 3, (1, 2, 140, 136)),
    "tensor cores for grad_weight": (5, 1, 2, (2, 3, 20, 16)),
    "any kernel": (4, 3, 1, (2, 3, 11, 12)),
}


def inputs_and_functions(variant: str, dtype: torch.dtype) -> tuple[list[Tensor], dict]:
    kernel, stride, padding, shape = VARIANTS[variant]
    inputs = [
        random(*shape, dtype=dtype, device="cuda"),
        random(shape[1], 1, kernel, kernel, dtype=dtype, device="cuda", seed=1),
        random(shape[1], dtype=dtype, device="cuda", seed=2),
    ]
    return inputs, {"stride": stride, "padding": padding}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_cuda_small_enough_for_the_sanitizer(variant: str, dtype: torch.dtype) -> None:
    inputs, sizes = inputs_and_functions(variant, dtype)
    op_contract.assert_matches_reference(
        lambda *tensors: depthwise_conv2d(*tensors, **sizes),
        lambda input, *tensors: conv2d(input, *tensors, **sizes, groups=input.shape[1]),
        inputs,
        **({"rtol": 2e-5, "atol": 1e-4} if dtype == torch.float32 else {}),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", ["strips, aligned", "strips of 7 x 7, large planes", "tensor cores"])
def test_reproducibility_streams_and_graphs(variant: str, dtype: torch.dtype) -> None:
    inputs, sizes = inputs_and_functions(variant, dtype)

    def function(*tensors: Tensor) -> Tensor:
        return depthwise_conv2d(*tensors, **sizes)

    op_contract.assert_reproducible(function, inputs)
    op_contract.assert_no_synchronization(function, inputs)
    op_contract.assert_uses_current_stream(function, inputs)
    others = [torch.randn_like(tensor).requires_grad_() for tensor in inputs]
    op_contract.assert_graph_capture(function, inputs, others)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_tensor_cores_do_not_spread_nan_and_inf(broken: float) -> None:
    inputs, sizes = inputs_and_functions("tensor cores", torch.float16)
    input, weight, bias = (tensor.detach() for tensor in inputs)
    expected = depthwise_conv2d(input, weight, bias, **sizes)
    input[1, 2, 10, 12] = broken
    output = depthwise_conv2d(input, weight, bias, **sizes)
    reached = torch.zeros_like(output, dtype=torch.bool)
    reached[1, 2, 7:14, 9:16] = True
    assert torch.equal(~output.isfinite(), reached)
    torch.testing.assert_close(output[~reached], expected[~reached])


@pytest.mark.parametrize("kernel", [2, 3])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.gpu_memory(20)
def test_more_than_2_to_31_elements(kernel: int, memory_format: torch.memory_format) -> None:
    shape = (2**11 + 1, 4, 512, 512)
    input = torch.empty(shape, device="cuda", dtype=torch.float16, memory_format=memory_format)
    input[:-1].zero_()
    input[-1] = random(*shape[1:], dtype=torch.float16, device="cuda", seed=1, requires_grad=False)
    input.requires_grad_()
    weight = random(4, 1, kernel, kernel, dtype=torch.float16, device="cuda")
    output = depthwise_conv2d(input, weight, padding=kernel // 2)
    last = input.detach()[-1:].clone(memory_format=torch.preserve_format).requires_grad_()
    expected = depthwise_conv2d(last, weight, padding=kernel // 2)
    torch.testing.assert_close(output[-1:], expected)
    assert not output[:-1].detach().any()
    upstream = torch.zeros_like(output)
    upstream[-1] = random(*output.shape[1:], dtype=torch.float16, device="cuda", seed=2, requires_grad=False)
    actual = torch.autograd.grad(output, (input, weight), upstream)
    wanted = torch.autograd.grad(expected, (last, weight), upstream[-1:])
    torch.testing.assert_close(actual[0][-1:], wanted[0])
    assert not actual[0][:-1].any()
    torch.testing.assert_close(
        actual[1], wanted[1], rtol=1e-3, atol=1e-2
    )  # sums of 2^18 values, of magnitude 100s

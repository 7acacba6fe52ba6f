"""Property test: depthwise_conv2d equals conv2d on random shapes and options."""

from functools import partial

import op_contract
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from op_contract import random
from torch.nn.functional import conv2d

from detector.layers import depthwise_conv2d


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[dict, list[int], list[int]]:
    """Stride, padding and dilation; shape of the input; shape of the weight."""

    def pair(least: int, most: int) -> tuple[int, int]:
        return draw(st.integers(least, most)), draw(st.integers(least, most))

    sizes = {"stride": pair(1, 3), "padding": pair(0, 4), "dilation": pair(1, 3)}
    kernel = pair(1, 7)
    shape = [draw(st.integers(1, 3)), draw(st.integers(1, 9))]
    for i in range(2):
        reach = (kernel[i] - 1) * sizes["dilation"][i] + 1
        shape.append(draw(st.integers(max(1, reach - 2 * sizes["padding"][i]), 20)))
    return sizes, shape, [shape[1] * draw(st.integers(1, 3)), 1, *kernel]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=convolutions(), channels_last=st.booleans())
def test_matches_reference_on_random_shapes(drawn: tuple, channels_last: bool, device: torch.device) -> None:
    sizes, shape, weight_shape = drawn
    input = random(*shape, device=device).detach()
    if channels_last:
        input = input.contiguous(memory_format=torch.channels_last)
    inputs = [
        input.requires_grad_(),
        random(*weight_shape, device=device, seed=1),
        random(weight_shape[0], device=device, seed=2),
    ]

    ours, reference = partial(depthwise_conv2d, **sizes), partial(conv2d, **sizes, groups=shape[1])
    op_contract.assert_matches_reference(ours, reference, inputs)

"""Times the forward and backward passes of differentiable functions, as single calls or in CUDA graphs."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from compare import time_in_turn
from measure import capture, queued
from torch import Tensor

Inputs = Sequence[Tensor]


def pass_calls(
    function: Callable[..., Tensor | tuple[Tensor, ...]], inputs: Sequence[Inputs], wanted: Sequence[int]
) -> list[Callable[[], object]]:
    """One call per input: the forward pass or, if `wanted` is not empty, the gradients of those arguments."""
    if not wanted:
        return [partial(function, *tensors) for tensors in inputs]
    calls = []
    for tensors in inputs:
        leaves = [tensor.detach().requires_grad_(i in wanted) for i, tensor in enumerate(tensors)]
        outputs = function(*leaves)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        upstreams = [torch.randn_like(output) for output in outputs]
        needed = [leaves[i] for i in wanted]
        calls.append(partial(torch.autograd.grad, outputs, needed, upstreams, retain_graph=True))
    return calls


def time_passes(
    functions: dict[str, Callable[..., Tensor | tuple[Tensor, ...]]],
    inputs: Sequence[Inputs],
    wanted: Sequence[int],
    device: torch.device,
    in_graph: bool,
) -> dict[str, float]:
    """Median milliseconds of a pass of each function, alternating; on a GPU among many queued calls."""
    if not in_graph:
        calls = {name: pass_calls(function, inputs, wanted) for name, function in functions.items()}
        if device.type == "cpu":
            return time_in_turn(calls, device, repeats=80)
        queues = {name: queued(function_calls, device) for name, function_calls in calls.items()}
        times = time_in_turn(
            {name: [all_calls] for name, (all_calls, _) in queues.items()}, device, repeats=20
        )
        return {name: time / queues[name][1] for name, time in times.items()}
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        calls = {name: pass_calls(function, inputs, wanted) for name, function in functions.items()}
    graphs = {name: [capture(function_calls, stream).replay] for name, function_calls in calls.items()}
    return {name: time / len(inputs) for name, time in time_in_turn(graphs, device, repeats=80).items()}

"""Times the forward and backward pass of an op with one differentiable tensor, and of its baselines."""

import statistics
from collections.abc import Callable, Sequence
from functools import partial

import torch
from measure import Row, time_call, time_queued
from torch import Tensor

Inputs = Sequence[Tensor]  # the arguments of one call
Function = Callable[..., Tensor | tuple[Tensor, ...]]


def time_in_turn(
    calls: dict[str, Sequence[Callable[[], object]]], device: torch.device, repeats: int = 40
) -> dict[str, float]:
    """Median milliseconds of each function, alternating so that load and clock changes affect all equally.

    In each round every function uses a different input, since the last one may still be in the cache.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for function_calls in calls.values():
        for call in function_calls:  # allocate
            call()
    for i in range(repeats):
        for position, (name, function_calls) in enumerate(calls.items()):
            call = function_calls[(i + position * len(function_calls) // len(calls)) % len(function_calls)]
            times[name].append(time_call(call, device))
    return {name: statistics.median(function_times) for name, function_times in times.items()}


def pass_calls(
    function: Function, inputs: Sequence[Inputs], wanted: Sequence[int]
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


def compare(
    case: str,
    ours: Function,
    baselines: dict[str, Function],
    inputs: Sequence[Tensor],
    fewest_bytes: dict[str, int],
    targets: dict[str, float],
    bandwidth: float,
) -> list[Row]:
    """Return a row for each pass in `fewest_bytes`.

    On a GPU `targets` are percent of the copy bandwidth. On a CPU the target is the time of the fastest
    baseline.
    """
    device, dtype = inputs[0].device, inputs[0].dtype
    on_gpu = device.type == "cuda"
    rows = []
    for pass_, least in fewest_bytes.items():
        functions = {"ours": ours, **baselines}
        wanted = [0] if pass_ == "backward" else []
        arguments = [(input,) for input in inputs]
        calls = {name: pass_calls(function, arguments, wanted) for name, function in functions.items()}
        if on_gpu:
            times = {name: time_queued(function_calls, device) for name, function_calls in calls.items()}
        else:
            times = time_in_turn(calls, device)
        ours_ms = times["ours"]
        baseline = min(baselines, key=times.__getitem__)
        percent = 100 * least / bandwidth / ours_ms
        row = Row(
            case=case if on_gpu else f"{case}, threads: {torch.get_num_threads()}",
            pass_=pass_,
            dtype=str(dtype).removeprefix("torch."),
            layout="contiguous" if inputs[0].is_contiguous() else "channels_last",
            ours_ms=ours_ms,
            baseline=baseline,
            baseline_ms=times[baseline],
            copy_percent=percent,
            target=f"{targets[pass_]:g} %" if on_gpu else "baseline_ms",
            reached=percent >= targets[pass_] if on_gpu else ours_ms <= times[baseline],
        )
        rows.append(row)
    return rows

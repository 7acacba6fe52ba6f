"""Times the forward and backward passes of differentiable functions, as single calls or in CUDA graphs."""

from collections.abc import Sequence

import torch
from compare import Function, Inputs, pass_calls, time_in_turn
from measure import capture, queued


def time_passes(
    functions: dict[str, Function],
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

"""Checks of the properties that every op must have, called by the tests of each op.

The checks take the op as a function of tensors (or None for an omitted argument); bind other arguments first,
for example with functools.partial. The function may return one tensor or a tuple of tensors. Gradients are
taken with respect to the inputs that require them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]

Function = Callable[..., Tensor | tuple[Tensor, ...]]
Inputs = Sequence[Tensor | None]


def random(*shape: int, dtype=torch.float64, device="cpu", seed: int = 0, requires_grad=True) -> Tensor:
    """Normally distributed numbers, the same on every device."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.to(device, dtype).requires_grad_(requires_grad)


def outputs_and_gradients(
    function: Function, inputs: Inputs, upstreams: Sequence[Tensor] | None = None
) -> list[Tensor]:
    """The outputs, then the gradients of the inputs that require them, for random upstream gradients."""
    inputs = [as_leaf(tensor) for tensor in inputs]
    outputs = _as_tuple(function(*inputs))
    wanted = [tensor for tensor in inputs if tensor is not None and tensor.requires_grad]
    pairs = list(zip(outputs, upstreams or random_upstreams(outputs), strict=True))
    pairs = [(output, upstream) for output, upstream in pairs if output.requires_grad]
    gradients = ()
    if wanted and pairs:
        differentiable, arriving = zip(*pairs, strict=True)
        gradients = torch.autograd.grad(differentiable, wanted, arriving)
    return [*(output.detach() for output in outputs), *gradients]


def random_upstreams(outputs: Sequence[Tensor]) -> list[Tensor]:
    """A random gradient for each output, the same on every device and, up to rounding, in every dtype."""
    return [
        random(*o.shape, dtype=o.dtype if o.is_floating_point() else torch.float64, device=o.device,
               seed=100 + i, requires_grad=False)
        for i, o in enumerate(outputs)
    ]  # fmt: skip


def as_leaf(tensor: Tensor | None) -> Tensor | None:
    """A leaf tensor with the same values and strides."""
    return None if tensor is None else tensor.detach().requires_grad_(tensor.requires_grad)


def assert_matches_reference(
    function: Function, reference: Function, inputs: Inputs, **tolerance: float
) -> None:
    """Compare outputs and gradients with those of the reference, computed in float64 from the same values."""
    exact_inputs = [_in_float64(tensor) for tensor in inputs]
    actual = outputs_and_gradients(function, inputs)
    number = len(_as_tuple(function(*inputs)))
    upstreams = [_in_float64(upstream) for upstream in random_upstreams(actual[:number])]
    expected = outputs_and_gradients(reference, exact_inputs, upstreams)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e.to(a.dtype), **tolerance)


def assert_equal(actual: Sequence[Tensor], expected: Sequence[Tensor], what: str = "", **tolerance) -> None:
    """Bitwise comparison (NaN equals NaN), unless a tolerance is given."""
    tolerance = tolerance or {"rtol": 0, "atol": 0}
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, equal_nan=True, **tolerance, msg=lambda text: f"{what}: {text}")


def assert_reproducible(function: Function, inputs: Inputs, times: int = 10) -> None:
    """Repeated calls give bitwise equal outputs and gradients."""
    first = outputs_and_gradients(function, inputs)
    for _ in range(times - 1):
        assert_equal(outputs_and_gradients(function, inputs), first)


def assert_independent_of_threads(function: Function, inputs: Inputs) -> None:
    """Results are bitwise equal for any number of threads. Inputs: on the CPU, large enough for several."""
    expected = outputs_and_gradients(function, inputs)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert_equal(outputs_and_gradients(function, inputs), expected)
    finally:
        torch.set_num_threads(threads)


def strided_copies(tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Copies with the same values and shape but other strides."""
    doubled = torch.stack([tensor, torch.zeros_like(tensor)], dim=-1)
    yield "sliced", doubled[..., 0]
    yield "offset", torch.cat([tensor.flatten()[:1], tensor.flatten()])[1:].view(tensor.shape)
    if tensor.dim() >= 2:
        yield "transposed", tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
        yield "first dimension last", tensor.movedim(0, -1).contiguous().movedim(-1, 0)
    if tensor.dim() == 4:
        yield "channels last", tensor.contiguous(memory_format=torch.channels_last)


def assert_any_layout(function: Function, inputs: Inputs, **tolerance: float) -> None:
    """Inputs and incoming gradients may have any strides; without a tolerance, results are bitwise equal."""
    upstreams = random_upstreams(_as_tuple(function(*inputs)))
    expected = outputs_and_gradients(function, inputs, upstreams)
    for i, tensor in enumerate(inputs):
        for layout, copy in () if tensor is None else strided_copies(tensor.detach()):
            changed = [*inputs[:i], copy.requires_grad_(tensor.requires_grad), *inputs[i + 1 :]]
            actual = outputs_and_gradients(function, changed, upstreams)
            assert_equal(actual, expected, f"input {i}, {layout}", **tolerance)
    for i, upstream in enumerate(upstreams):
        for layout, copy in strided_copies(upstream):
            changed = [*upstreams[:i], copy, *upstreams[i + 1 :]]
            actual = outputs_and_gradients(function, inputs, changed)
            assert_equal(actual, expected, f"gradient of output {i}, {layout}", **tolerance)
    expanded = [upstream.new_ones(()).expand(upstream.shape) for upstream in upstreams]
    actual = outputs_and_gradients(function, inputs, expanded)
    expected = outputs_and_gradients(function, inputs, [one.contiguous() for one in expanded])
    assert_equal(actual, expected, "expanded gradient", **tolerance)


@contextmanager
def peak_memory(most: float) -> Iterator[None]:
    """Fail if the enclosed code allocates more than `most` bytes at a time, on the host or on a GPU."""
    status, on_gpu = Path("/proc/self/status"), torch.cuda.is_available() and torch.cuda.is_initialized()

    def resident(key: str) -> float:
        return 1024 * int(re.search(rf"{key}:\s*(\d+) kB", status.read_text())[1])

    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    except OSError:
        pytest.skip("the peak of this process's memory cannot be read here")
    before, allocated = resident("VmRSS"), torch.cuda.memory_allocated() if on_gpu else 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    yield
    lazily_loaded = 500e6 if on_gpu else 0  # CUDA libraries
    assert resident("VmHWM") - before <= most + lazily_loaded
    if on_gpu:
        assert torch.cuda.max_memory_allocated() - allocated <= most


def assert_compiles(
    function: Function, *all_inputs: Inputs, backend: str = "aot_eager", **tolerance: float
) -> None:
    """torch.compile captures the op in one graph, static and dynamic, with the same results.

    Args:
        tolerance: of the results; bitwise equal without.
        backend: "inductor" compiles what is around the op, in several seconds of C++. All that it relies on
            beyond the capture are the strides of the fake implementation, which torch.library.opcheck tests.
    """
    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend=backend)
        for inputs in all_inputs:
            expected = outputs_and_gradients(function, inputs)
            assert_equal(outputs_and_gradients(compiled, inputs), expected, f"dynamic={dynamic}", **tolerance)


def assert_autocast_keeps_dtype(function: Function, inputs: Inputs, device: torch.device) -> None:
    """Under autocast, outputs have the same dtype as, and values close to, those without autocast."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        cast = [t.detach().to(dtype) if t is not None and t.is_floating_point() else t for t in inputs]
        expected = _as_tuple(function(*cast))
        with torch.autocast(device.type, torch.bfloat16):
            actual = _as_tuple(function(*cast))
        for a, e in zip(actual, expected, strict=True):
            assert a.dtype == e.dtype
            torch.testing.assert_close(a, e)


def assert_no_synchronization(function: Function, inputs: Inputs) -> None:
    """Neither pass synchronizes the host with the GPU. Inputs: on a GPU."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        outputs = _as_tuple(function(*inputs))
        floating = [output for output in outputs if output.requires_grad]
        if floating:
            torch.autograd.backward(floating, [torch.ones_like(output) for output in floating])
    finally:
        torch.cuda.set_sync_debug_mode("default")


def assert_uses_current_stream(function: Function, inputs: Inputs) -> None:
    """Every kernel is launched on the current stream. Inputs: on a GPU."""
    expected = outputs_and_gradients(function, inputs)
    outputs = _as_tuple(function(*inputs))
    upstreams = random_upstreams(outputs)  # created now: a copy to the GPU would wait for the stream
    late = [None if t is None else torch.zeros_like(t, requires_grad=t.requires_grad) for t in inputs]
    busy = torch.zeros(4096, 4096, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(20):
            busy = busy @ busy
        for tensor, values in zip(late, inputs, strict=True):
            if tensor is not None:  # a kernel on another stream would read zeros
                tensor.copy_(values)
        with torch.enable_grad():
            actual = outputs_and_gradients(function, late, upstreams)
    torch.cuda.synchronize()
    assert_equal(actual, expected)


def assert_graph_capture(function: Function, inputs: Inputs, others: Inputs) -> None:
    """A CUDA graph captured with `inputs` and replayed with `others` gives the results for `others`."""
    static = [None if tensor is None else tensor.detach().clone().requires_grad_(tensor.requires_grad)
              for tensor in inputs]  # fmt: skip
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        upstreams = random_upstreams(_as_tuple(function(*static)))
        outputs_and_gradients(function, static, upstreams)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = outputs_and_gradients(function, static, upstreams)
    with torch.no_grad():
        for tensor, replacement in zip(static, others, strict=True):
            if tensor is not None:
                tensor.copy_(replacement)
    graph.replay()
    assert_equal(captured, outputs_and_gradients(function, others, upstreams))


def _as_tuple(output: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (output,) if isinstance(output, Tensor) else tuple(output)


def _in_float64(tensor: Tensor | None) -> Tensor | None:
    if tensor is None or not tensor.is_floating_point():
        return tensor
    return tensor.detach().double().requires_grad_(tensor.requires_grad)

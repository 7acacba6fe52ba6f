"""Times quick_gelu and pcl_loss inside torch.compile: our op in a compiled chain, and its formula.

    python benchmarks/bench_compiled.py --device cuda

The compiler fuses a formula with what is around it; an op is called as it is. Timed in CUDA graphs.
Writes benchmarks/results/compiled_gpu.json.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from bench_pcl_loss import make_inputs
from measure import device_parser, report, time_in_graph
from torch import Tensor, nn

from detector import layers
from detector.layers import quick_gelu, reference

SIZE = 2**26  # elements
Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Row:
    case: str
    pass_: str
    dtype: str
    op_ms: float
    formula_ms: float


def gelu_chains(activation: Function, dtype: torch.dtype, device: torch.device) -> dict[str, Function]:
    """Each a function of one tensor (SIZE / 1024, 1024)."""
    bias = torch.randn(1024, device=device, dtype=dtype)
    layers_ = [nn.Linear(a, b, device=device, dtype=dtype) for a, b in ((1024, 4096), (4096, 1024))]
    return {
        "alone": activation,
        "after a bias": lambda x: activation(x + bias),
        "bias before, scale and residual after": lambda x: x + 0.5 * activation(x + bias),
        "MLP of 1024, 4096, 1024": lambda x: layers_[1](activation(layers_[0](x[: SIZE // 8192]))),
    }


def passes(function: Function, inputs: list[list], device: torch.device) -> dict[str, float]:
    """Milliseconds; the first input of each gets a gradient."""
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, dynamic=False)

    def both(first: Tensor, *rest: Tensor) -> None:
        output = compiled(first, *rest)
        torch.autograd.grad(output, first, torch.ones_like(output))

    detached = [[first.detach(), *rest] for first, *rest in inputs]
    timed = {"forward": [partial(compiled, *each) for each in detached]}
    timed["forward and backward"] = [partial(both, *each) for each in inputs]
    return {name: time_in_graph(calls, device, repeats=20) for name, calls in timed.items()}


def rows(case: str, dtype: torch.dtype, op: Function, formula: Function, inputs: list[list]) -> list[Row]:
    device = inputs[0][0].device
    ours, plain = passes(op, inputs, device), passes(formula, inputs, device)
    name = str(dtype).removeprefix("torch.")
    return [Row(case, pass_, name, ms, plain[pass_]) for pass_, ms in ours.items()]


def main() -> None:
    device = torch.device(device_parser(__doc__).parse_args().device)
    op = sys.modules["detector.layers.quick_gelu"]._forward  # quick_gelu itself is the formula when compiled
    found = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        inputs = [
            [torch.randn(SIZE // 1024, 1024, device=device).to(dtype).requires_grad_()] for _ in range(2)
        ]
        ours, plain = (gelu_chains(each, dtype, device) for each in (op, quick_gelu))
        for case, chain in ours.items():
            found += rows(f"quick_gelu, {case}", dtype, chain, plain[case], inputs)
    for size in (2000, 4096):
        made = [make_inputs([size], torch.float32, "contiguous", device, seed)[:4] for seed in range(2)]
        inputs = [[i[0].detach().log().requires_grad_(), *i[1:]] for i in made]
        chains = [
            lambda x, *rest, f=f: f(x.softmax(dim=1), *rest) for f in (layers.pcl_loss, reference.pcl_loss)
        ]
        found += rows(
            f"softmax and pcl_loss, {size} x {inputs[0][0].shape[1]}", torch.float32, *chains, inputs
        )
    report("compiled", device, found)


if __name__ == "__main__":
    main()

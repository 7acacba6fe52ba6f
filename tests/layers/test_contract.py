"""What holds of every op: tests/support/op_samples.py has the ops and their inputs."""

import op_contract
import pytest
import torch
from op_contract import DTYPES, outputs_and_gradients
from op_samples import MIXED_DTYPES, NAMES, OPS, Op, op_arguments
from torch.utils._pytree import tree_map_only

from detector import _C

DIFFERENTIABLE = [op for op in OPS if op.derivatives]


def of(ops: list[Op]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("op", ops, ids=str)


@of(OPS)
def test_any_layout(op: Op, device: torch.device) -> None:
    for dtype, tolerance in op.layout:
        for inputs in (op.few(dtype, device), op.others(dtype, device)):
            op_contract.assert_any_layout(op.function, inputs, **tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@of(OPS)
def test_reproducible(op: Op, dtype: torch.dtype, device: torch.device) -> None:
    op_contract.assert_reproducible(op.function, op.many(dtype, device), times=4)


@of(OPS)
def test_independent_of_threads(op: Op) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        op_contract.assert_independent_of_threads(op.function, (op.threads or op.many)(dtype))


@of(OPS)
def test_deterministic_algorithms(op: Op, device: torch.device) -> None:
    """None is refused by torch for being nondeterministic."""
    inputs = op.others(torch.float32, device)
    expected = outputs_and_gradients(op.function, inputs)
    torch.use_deterministic_algorithms(True)
    try:
        op_contract.assert_equal(outputs_and_gradients(op.function, inputs), expected)
    finally:
        torch.use_deterministic_algorithms(False)


@of(DIFFERENTIABLE)
def test_derivatives(op: Op, device: torch.device) -> None:
    inputs = op.few(torch.float64, device)
    twice = op.derivatives == 2  # those have forward mode too
    assert torch.autograd.gradcheck(op.function, inputs, nondet_tol=0.0, check_forward_ad=twice)
    if twice:
        assert torch.autograd.gradgradcheck(op.function, inputs, nondet_tol=0.0)
        return
    outputs = op.function(*inputs)
    total = sum(output.sum() for output in (outputs if isinstance(outputs, tuple) else [outputs]))
    first = next(tensor for tensor in inputs if tensor is not None and tensor.requires_grad)
    (grad,) = torch.autograd.grad(total, first, create_graph=True)
    with pytest.raises(NotImplementedError, match=f"{op.name.split('_seq')[0].split(',')[0]} has no second"):
        grad.pow(2).sum().backward()


@of([op for op in OPS if not op.derivatives])
def test_not_differentiable(op: Op, device: torch.device) -> None:
    inputs = [t.requires_grad_(t.is_floating_point()) for t in op.few(torch.float32, device)]
    outputs = op.function(*inputs)
    assert not any(t.requires_grad for t in (outputs if isinstance(outputs, tuple) else [outputs]))


# The methods of proposal_clusters are numbers to the compiler.
@of([op for op in OPS if op.name not in ("proposal_clusters, oicr", "proposal_clusters, mist")])
def test_compiles(op: Op, device: torch.device) -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=op.open_size):
        inputs = op.few(torch.float64, device), op.others(torch.float64, device)
        op_contract.assert_compiles(op.function, *inputs, **op.compiled)


class Calls(torch.nn.Module):
    def __init__(self, op: Op) -> None:
        super().__init__()
        self.op = op

    def forward(self, *inputs):
        outputs = self.op.function(*inputs)
        return tuple(outputs) if isinstance(outputs, tuple) else outputs


@of([op for op in OPS if op.export])
def test_export(op: Op, device: torch.device) -> None:
    first, other = ([t if t is None else t.detach() for t in make(torch.float32, device)]
                    for make in (op.few, op.others))  # fmt: skip
    sizes = tuple(None if t is None else dict.fromkeys(range(t.dim()), torch.export.Dim.AUTO) for t in first)
    program = torch.export.export(Calls(op), tuple(first), dynamic_shapes=(sizes,))
    found, expected = program.module()(*other), Calls(op)(*other)
    op_contract.assert_equal(
        *(outputs if isinstance(outputs, tuple) else [outputs] for outputs in (found, expected))
    )


@of([op for op in OPS if op.keeps_dtype])
def test_autocast_keeps_the_dtype(op: Op, device: torch.device) -> None:
    op_contract.assert_autocast_keeps_dtype(op.function, op.others(torch.float64, device), device)


# ---- the registered functions ----


def moved(example: tuple, device: torch.device, dtype: torch.dtype, requires_grad: bool) -> tuple:
    def move(t: torch.Tensor) -> torch.Tensor:
        t = t.to(device, dtype) if t.is_floating_point() else t.to(device)
        return t.detach().requires_grad_(requires_grad and t.is_floating_point())

    return tree_map_only(torch.Tensor, move, example)


# Their derivatives raise, or they have none; opcheck would compute them.
NO_DERIVATIVE = {"pcl_loss_backward", "lltm_backward", "proposal_clusters"}


@pytest.mark.parametrize("name", NAMES)
def test_opcheck(name: str, device: torch.device) -> None:
    if name == "selective_search" and device.type != "cpu":
        pytest.skip("runs on the CPU only")
    op = getattr(_C, name).default
    first, *others = (
        moved(each, device, torch.float32, name not in NO_DERIVATIVE) for each in op_arguments(name)
    )
    torch.library.opcheck(op, first)
    if name not in MIXED_DTYPES:
        others.append(moved(first, device, torch.bfloat16, False))
    for other in others:  # without compiling it
        torch.library.opcheck(
            op, other, test_utils=("test_schema", "test_autograd_registration", "test_faketensor")
        )

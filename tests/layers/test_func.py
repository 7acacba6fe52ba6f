"""Every differentiable op in the transforms of torch.func, compared with reverse mode in eager PyTorch."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from nms_cases import make_set
from op_contract import assert_equal, outputs_and_gradients, random
from op_samples import OPS, Op
from roi_cases import make_boxes
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils._pytree import tree_leaves

from detector import layers

Case = tuple[Callable[..., Tensor], list[Tensor]]


def case(op: Op, device: torch.device) -> Case:
    """A function with one output, and the tensors that it is differentiated by."""
    inputs = op.few(torch.float64, device)
    wanted = [i for i, tensor in enumerate(inputs) if tensor is not None and tensor.requires_grad]
    fixed = dict(enumerate(inputs))

    def function(*tensors: Tensor) -> Tensor:
        dtype = tensors[0].dtype
        others = {i: t if t is None or not t.is_floating_point() else t.to(dtype) for i, t in fixed.items()}
        outputs = op.function(*(others | dict(zip(wanted, tensors, strict=True))).values())
        return torch.cat([t.flatten() for t in outputs]) if isinstance(outputs, tuple) else outputs

    return function, [inputs[i].detach() for i in wanted]


TOLERANCE = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture(params=[op for op in OPS if op.derivatives], ids=str)
def function_and_inputs(request: pytest.FixtureRequest, device: torch.device) -> Case:
    return case(request.param, device)


def gradients(function: Callable, inputs: list[Tensor], upstream: Tensor | None = None) -> list[Tensor]:
    """In eager mode."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    output = function(*leaves)
    return list(
        torch.autograd.grad(output, leaves, torch.ones_like(output) if upstream is None else upstream)
    )


def arguments_of(inputs: list[Tensor]) -> tuple[int, ...]:
    return tuple(range(len(inputs)))


def three_times(inputs: list[Tensor]) -> list[Tensor]:
    """Three examples, whose first is `inputs`."""
    return [torch.stack([tensor, tensor * 0.5, tensor * 0.25]) for tensor in inputs]


def test_grad(function_and_inputs: Case) -> None:
    function, inputs = function_and_inputs
    actual = grad(lambda *x: function(*x).sum(), arguments_of(inputs))(*inputs)
    assert_equal(actual, gradients(function, inputs), **TOLERANCE)


def test_vjp(function_and_inputs: Case) -> None:
    function, inputs = function_and_inputs
    output, pull_back = vjp(function, *inputs)
    upstream = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view(output.shape).to(output.device)
    assert_equal([output, *pull_back(upstream)],
                 [function(*inputs), *gradients(function, inputs, upstream)], **TOLERANCE)  # fmt: skip


def test_jacrev(function_and_inputs: Case) -> None:
    function, inputs = function_and_inputs
    expected = torch.autograd.functional.jacobian(function, tuple(inputs))
    assert_equal(jacrev(function, arguments_of(inputs))(*inputs), expected, **TOLERANCE)


@pytest.mark.parametrize("op", [op for op in OPS if op.derivatives == 2], ids=str)
def test_forward_mode(op: Op, device: torch.device) -> None:
    function, inputs = case(op, device)
    numbers = arguments_of(inputs)
    assert_equal(tree_leaves(jacfwd(function, numbers)(*inputs)),
                 tree_leaves(jacrev(function, numbers)(*inputs)), **TOLERANCE)  # fmt: skip

    def total(*tensors: Tensor) -> Tensor:
        return function(*tensors).square().sum()

    twice = jacrev(jacrev(total, numbers), numbers)(*inputs)
    assert_equal(tree_leaves(hessian(total, numbers)(*inputs)), tree_leaves(twice), **TOLERANCE)
    half = tuple(tensor.to(torch.bfloat16) for tensor in inputs)
    with torch.autocast(device.type, torch.bfloat16):
        output, tangent = jvp(function, half, half)
        expected = function(*half)
    assert_equal([output], [expected])
    assert (tangent.dtype, tangent.shape) == (output.dtype, output.shape)


def test_vmap(function_and_inputs: Case) -> None:
    function, inputs = function_and_inputs
    examples = three_times(inputs)
    expected = torch.stack([function(*example) for example in zip(*examples, strict=True)])
    assert_equal([vmap(function)(*examples)], [expected], **TOLERANCE)
    last = [tensor.movedim(0, -1) for tensor in examples]
    assert_equal([vmap(function, in_dims=-1)(*last)], [expected], **TOLERANCE)


def test_vmap_without_examples(function_and_inputs: Case) -> None:
    """As that of torch's own elementwise ops: an empty tensor with the shape of the others."""
    function, inputs = function_and_inputs
    none = [tensor.new_empty(0, *tensor.shape) for tensor in inputs]
    output, expected = vmap(function)(*none), function(*inputs)
    assert (output.shape, output.dtype, output.device) == (
        (0, *expected.shape),
        expected.dtype,
        expected.device,
    )
    each = vmap(grad(lambda *x: function(*x).sum(), arguments_of(inputs)))(*none)
    assert [tensor.shape for tensor in each] == [tensor.shape for tensor in none]
    total = grad(lambda *x: vmap(function)(*x).sum(), arguments_of(inputs))(*none)
    assert [tensor.shape for tensor in total] == [tensor.shape for tensor in none]


def test_vmap_and_grad_nested_both_ways(function_and_inputs: Case) -> None:
    function, inputs = function_and_inputs
    examples, numbers = three_times(inputs), arguments_of(inputs)
    expected = [gradients(function, list(example)) for example in zip(*examples, strict=True)]
    stacked = [torch.stack(parts) for parts in zip(*expected, strict=True)]
    inside = vmap(grad(lambda *x: function(*x).sum(), numbers))(*examples)
    outside = grad(lambda *x: vmap(function)(*x).sum(), numbers)(*examples)
    eager = outputs_and_gradients(vmap(function), [t.requires_grad_() for t in three_times(inputs)],
                                  [torch.ones_like(vmap(function)(*examples))])  # fmt: skip
    for actual in (inside, outside, eager[1:]):
        assert_equal(actual, stacked, **TOLERANCE)


def test_all_of_it_under_autocast(function_and_inputs: Case, device: torch.device) -> None:
    """Float32 and bfloat16 inputs have the results that autocast gives them in eager mode."""
    function, inputs = function_and_inputs
    for dtype in (torch.float32, torch.bfloat16):
        leaves = [tensor.detach().to(dtype) for tensor in inputs]
        numbers = arguments_of(leaves)
        with torch.autocast(device.type, torch.bfloat16):
            expected = gradients(lambda *x: function(*x).float(), leaves)
            actual = grad(lambda *x: function(*x).float().sum(), numbers)(*leaves)
            of_examples = vmap(grad(lambda *x: function(*x).float().sum(), numbers))(*three_times(leaves))
            output, outputs = function(*leaves), vmap(function)(*three_times(leaves))
        assert [a.dtype for a in actual] == [e.dtype for e in expected]
        assert outputs.dtype == output.dtype
        assert_equal([*actual, *(each[0] for each in of_examples), outputs[0]],
                     [*expected, *expected, output], rtol=0.02, atol=0.02)  # fmt: skip


def test_batched_gradients(function_and_inputs: Case) -> None:
    function, inputs = function_and_inputs
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    output = function(*leaves)
    upstreams = torch.stack([torch.ones_like(output), 2 * torch.ones_like(output)])
    actual = torch.autograd.grad(output, leaves, upstreams, is_grads_batched=True)
    expected = gradients(function, inputs)
    assert_equal([a[0] for a in actual], expected, **TOLERANCE)
    assert_equal([a[1] / 2 for a in actual], expected, **TOLERANCE)


def test_second_derivatives(function_and_inputs: Case) -> None:
    function, inputs = function_and_inputs
    numbers = arguments_of(inputs)

    def penalty(*x: Tensor) -> Tensor:
        return sum(g.square().sum() for g in grad(lambda *y: function(*y).square().sum(), numbers)(*x))

    def eager_penalty(*x: Tensor) -> Tensor:
        firsts = torch.autograd.grad(function(*x).square().sum(), x, create_graph=True)
        return sum(first.square().sum() for first in firsts)

    try:
        expected = gradients(eager_penalty, inputs)
    except NotImplementedError as error:  # the op has no second derivative
        with pytest.raises(NotImplementedError, match=str(error)):
            grad(penalty, numbers)(*inputs)
        return
    assert_equal(grad(penalty, numbers)(*inputs), expected, rtol=1e-10, atol=1e-10)


def calls(function: Callable, *tensors: Tensor) -> tuple[object, int]:
    """What a function returns, and how many ops of detector it calls."""
    with torch.profiler.profile() as profile:
        output = function(*tensors)

    def is_ours(event: torch.autograd.profiler_util.FunctionEvent) -> bool:
        return event.key.startswith("detector::")

    # An op that has a vmap rule is an event itself, around the call that the rule makes.
    return output, sum(is_ours(e) and not any(map(is_ours, e.cpu_children)) for e in profile.events())


@pytest.mark.parametrize("op", [layers.roi_pool, layers.roi_align, layers.roi_align_rotated])
def test_vmap_of_region_ops_is_one_call(op: Callable, device: torch.device) -> None:
    inputs = random(3, 2, 3, 4, 5, device=device, requires_grad=False)
    rois = torch.stack([make_boxes(6, 2, (8, 10), device=device, seed=seed) for seed in range(3)])
    if op is layers.roi_align_rotated:
        rois = torch.cat([rois[..., :3], rois[..., 3:].abs(), 100 * rois[..., 1:2]], dim=-1)
    for dims in [(0, 0), (None, 0), (0, None)]:
        examples = (inputs[0] if dims[0] is None else inputs, rois[0] if dims[1] is None else rois)
        actual, number = calls(vmap(lambda x, boxes: op(x, boxes, 2, 0.5), in_dims=dims), *examples)
        assert number == 1
        every = [t.expand(3, *t.shape) if d is None else t for t, d in zip(examples, dims, strict=True)]
        assert torch.equal(actual, torch.stack([op(x, b, 2, 0.5) for x, b in zip(*every, strict=True)]))
    rois[0, 0, 0] = 2  # the first image of the second example, were it not refused
    if device.type == "cpu":
        with pytest.raises(RuntimeError, match="expected an image from 0 to"):
            vmap(lambda x, boxes: op(x, boxes, 2, 0.5))(inputs, rois)


@pytest.mark.parametrize("grouped", [False, True])
def test_vmap_of_nms_mask_is_one_call(grouped: bool, device: torch.device) -> None:
    boxes, scores = (torch.stack([make_set(20, seed)[i].to(device) for seed in range(3)]) for i in range(2))
    idxs = torch.arange(20, device=device) % 3 * 10**12 - 7 if grouped else None
    function = partial(layers.nms_mask, iou_threshold=0.5, idxs=idxs)
    (mask, count), number = calls(vmap(function), boxes, scores)
    assert number == 1
    for i in range(3):
        assert_equal([mask[i], count[i]], function(boxes[i], scores[i]))
    with pytest.raises(RuntimeError, match="vmap needs nms_mask instead"):
        vmap(lambda boxes, scores: layers.nms(boxes, scores, 0.5))(boxes, scores)


def test_vmap_of_proposal_clusters_is_one_call(device: torch.device) -> None:
    boxes, scores = (torch.stack([make_set(20, seed)[i].to(device) for seed in range(3)]) for i in range(2))

    def clusters(boxes: Tensor, scores: Tensor) -> layers.ProposalClusters:
        image_labels = torch.ones(2, 1, device=device)
        return layers.proposal_clusters(
            boxes, scores[:, None], image_labels, torch.tensor([15, 5]), method="pcl"
        )

    batched, number = calls(vmap(clusters), boxes, scores)
    assert number == 1
    for i in range(3):
        assert_equal([part[i] for part in batched], clusters(boxes[i], scores[i]))


@pytest.mark.skipif(
    torch.__version__ < "2.12", reason="torch 2.11 cannot compile torch.func.grad of a custom op"
)
@pytest.mark.parametrize("name", ["quick_gelu", "roi_align", "depthwise_conv2d"])
def test_compiled_transforms(name: str, device: torch.device) -> None:
    function, inputs = case(next(op for op in OPS if op.name == name), device)
    torch._dynamo.reset()
    numbers = arguments_of(inputs)
    compiled = torch.compile(lambda *x: grad(lambda *y: function(*y).sum(), numbers)(*x), backend="aot_eager")
    assert_equal(compiled(*inputs), gradients(function, inputs), **TOLERANCE)

"""depthwise_conv2d: comparison with torch's conv2d."""

from functools import partial

import op_contract
import pytest
import torch
from op_contract import DTYPES, outputs_and_gradients, peak_memory, random
from op_samples import Convolution as Case
from torch import Tensor, nn
from torch.nn.functional import conv2d

from detector import _C
from detector.layers import DepthwiseConv2d, depthwise_conv2d
from detector.layers._depthwise_by_torch import conv2d_by_groups, torch_is_faster

CHANNELS_LAST = torch.channels_last
FORMATS = pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
SQUARE = [Case((k, k), padding=(k // 2, k // 2)) for k in (1, 3, 5, 7, 9)]
STRIDED = [Case((k, k), (2, 2), (k // 2, k // 2)) for k in (3, 5, 7)]
OTHERS = [
    Case(padding=(0, 0)),
    Case(padding=(2, 2)),
    Case(padding=(5, 4)),  # larger than the kernel
    Case((3, 5), padding=(1, 2)),
    Case((5, 5), padding=(2, 0)),
    Case((4, 2), padding=(1, 1)),
    Case((3, 3), (2, 2), (0, 0)),
    Case((3, 3), (2, 1), (1, 1)),
    Case((3, 3), (1, 3), (0, 1)),
    Case((2, 2), (3, 3), (0, 0)),  # some pixels affect no output
    Case(dilation=(2, 2), padding=(2, 2)),
    Case((3, 2), (2, 1), (1, 3), (1, 3)),
    Case(multiplier=3),
    Case((5, 5), (2, 2), (2, 2), multiplier=2),
]
SIZES = [
    Case(size=(1, 1)),
    Case(size=(7, 7), channels=20),
    Case((5, 5), padding=(2, 2), size=(14, 14), channels=3),
    Case((7, 7), padding=(3, 3), size=(7, 7), channels=33, batch=3),
    Case(size=(33, 61), channels=5),
    Case((3, 3), (2, 2), size=(15, 17), channels=6),
    Case((7, 7), (2, 2), (3, 3), size=(28, 31), channels=4),
    Case(size=(3, 200), channels=1),
    Case(size=(130, 4), batch=1),
    Case(size=(2, 2), padding=(0, 0), kernel=(2, 2)),
    Case((3, 3), size=(12, 16), channels=64),
    Case((3, 3), (2, 2), size=(12, 16), channels=72),
]
CASES = SQUARE + STRIDED + OTHERS + SIZES


def assert_matches_reference(case: Case, inputs: list[Tensor | None], **tolerance: float) -> None:
    if inputs[0].dtype == torch.float32:  # weight gradients are sums over all outputs
        tolerance = {"rtol": 2e-5, "atol": 5e-5}
    elif inputs[0].dtype == torch.float64:
        tolerance = {"rtol": 1e-9, "atol": 1e-9}
    op_contract.assert_matches_reference(case.function(), case.reference(), inputs, **tolerance)


# ---- values and gradients ----


def test_by_hand(device: torch.device) -> None:
    input = torch.arange(1.0, 7, device=device).view(1, 1, 2, 3)
    weight = torch.tensor([[1.0, 10], [100, 1000]], device=device).view(1, 1, 2, 2)
    output = depthwise_conv2d(input, weight, torch.tensor([0.5], device=device))
    expected = [1 + 20 + 400 + 5000.5, 2 + 30 + 500 + 6000.5]
    assert output.flatten().tolist() == expected


@FORMATS
@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_reference(case: Case, channels_last: bool, device: torch.device) -> None:
    for dtype in (torch.float64, torch.float32):
        assert_matches_reference(case, case.inputs(device, dtype, channels_last))


@FORMATS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", SQUARE + STRIDED + SIZES + OTHERS[-2:], ids=str)
def test_half_precision_matches_reference(
    case: Case, dtype: torch.dtype, channels_last: bool, device: torch.device
) -> None:
    assert_matches_reference(case, case.inputs(device, dtype, channels_last))


def test_without_bias(device: torch.device) -> None:
    case = Case()
    assert_matches_reference(case, [*case.inputs(device)[:2], None])


def test_scalar_arguments(device: torch.device) -> None:
    input, weight, bias = Case().inputs(device)
    expected = depthwise_conv2d(input, weight, bias, (2, 2), (3, 3), (2, 2))
    assert torch.equal(depthwise_conv2d(input, weight, bias, 2, 3, 2), expected)


def test_only_needed_gradients_are_computed(device: torch.device, monkeypatch) -> None:
    case = Case()
    for wanted in range(3):
        inputs = [tensor.detach().requires_grad_(i == wanted) for i, tensor in enumerate(case.inputs(device))]
        output = case.function()(*inputs)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            output.sum().backward()
        called = {event.key for event in profile.key_averages()}
        assert ("detector::depthwise_conv2d_grad_input" in called) == (wanted == 0)
        assert ("detector::depthwise_conv2d_grad_weight" in called) == (wanted == 1)
        assert [tensor.grad is not None for tensor in inputs] == [i == wanted for i in range(3)]


@FORMATS
def test_nan_and_inf_stay_local(channels_last: bool, device: torch.device) -> None:
    case = Case((3, 3), channels=4)
    input, weight, bias = case.inputs(device, torch.float32, channels_last)
    expected = depthwise_conv2d(input, weight, bias, padding=1).detach()
    broken = input.detach().clone(memory_format=torch.preserve_format)
    broken[0, 1, 5, 7], broken[1, 2, 0, 0] = torch.nan, torch.inf
    output = depthwise_conv2d(broken, weight, bias, padding=1)
    reached = torch.zeros_like(output, dtype=torch.bool)
    reached[0, 1, 4:7, 6:9] = reached[1, 2, 0:2, 0:2] = True
    assert torch.equal(~output.isfinite(), reached)
    assert torch.equal(output[~reached], expected[~reached])


# ---- layouts and empty tensors ----


@FORMATS
@pytest.mark.parametrize("case", [Case(), STRIDED[0], OTHERS[-1]], ids=str)
def test_output_keeps_the_memory_format(case: Case, channels_last: bool, device: torch.device) -> None:
    input, weight, bias = case.inputs(device, channels_last=channels_last)
    output = case.function()(input, weight, bias)
    memory_format = CHANNELS_LAST if channels_last else torch.contiguous_format
    assert output.is_contiguous(memory_format=memory_format)
    for arriving in (torch.contiguous_format, CHANNELS_LAST):
        upstream = torch.ones_like(output, memory_format=arriving)
        (grad,) = torch.autograd.grad(output, input, upstream, retain_graph=True)
        assert grad.is_contiguous(memory_format=memory_format)


@FORMATS
@pytest.mark.parametrize("case", [Case(), STRIDED[1]], ids=str)
def test_any_layout(case: Case, channels_last: bool, device: torch.device) -> None:
    inputs = case.inputs(device, channels_last=channels_last)
    op_contract.assert_any_layout(case.function(), inputs, rtol=1e-12, atol=1e-12)


def test_expanded_input(device: torch.device) -> None:
    case = Case()
    input, weight, bias = case.inputs(device)
    assert_matches_reference(case, [input.detach()[:1].expand_as(input), weight, bias])
    assert_matches_reference(
        case, [input, weight.detach()[:1].expand_as(weight), bias.detach()[:1].expand(8)]
    )


@pytest.mark.parametrize("changes", [{"batch": 0}, {"channels": 0}, {"size": (0, 5)}, {"size": (4, 0)}])
def test_empty(changes: dict, device: torch.device) -> None:
    case = Case((2, 2))._replace(**changes)
    inputs = case.inputs(device)
    output, grad_input, grad_weight, grad_bias = op_contract.outputs_and_gradients(case.function(), inputs)
    height, width = case.size
    assert output.shape == (case.batch, case.channels, height + 1, width + 1)
    assert torch.equal(output, inputs[2].detach()[:, None, None].expand(output.shape))
    assert grad_input.shape == inputs[0].shape
    assert not grad_weight.any()
    torch.testing.assert_close(grad_bias, op_contract.random_upstreams([output])[0].sum((0, 2, 3)))


# ---- torch's convolution where it is faster ----

HANDED_OVER = [
    *(
        (case, dtype, False, "cuda")
        for case in (Case((9, 9), padding=(4, 4)), Case(dilation=(2, 2)), Case((4, 2)), Case(stride=(3, 3)))
        for dtype in (torch.float32, torch.float16)
    ),
    (Case((13, 13), padding=(6, 6)), torch.float32, True, "cuda"),
]
KEPT = [
    (Case(), torch.float32, False, "cpu"),
    (Case(), torch.float64, True, "cpu"),
    (Case(), torch.float16, True, "cpu"),
    (Case(multiplier=2), torch.float32, True, "cpu"),
    *((Case((k, k)), torch.float16, last, "cuda") for k in (3, 5, 7) for last in (False, True)),
    (Case((5, 5), (2, 2), (2, 2)), torch.float32, False, "cuda"),
    (Case((9, 9), padding=(4, 4)), torch.float32, True, "cuda"),
    (Case((9, 9), padding=(4, 4)), torch.float64, False, "cuda"),
    (Case(dilation=(2, 2)), torch.float32, True, "cuda"),
    (Case((9, 9), padding=(4, 4), multiplier=2), torch.float32, False, "cuda"),
]


@pytest.mark.parametrize(("cases", "by_torch"), [(HANDED_OVER, True), (KEPT, False)], ids=["torch's", "ours"])
def test_who_shall_compute(cases, by_torch: bool) -> None:
    """The choice by shapes, dtype and format alone, with tensors without values in place of a GPU's."""
    for case, dtype, channels_last, where in cases:
        input, weight, _ = case.inputs("cpu", dtype, channels_last)
        if where == "cuda":
            input, weight = (torch.empty_like(tensor, device="meta") for tensor in (input, weight))
        chosen = torch_is_faster(input, weight, case.stride, case.padding, case.dilation)
        assert chosen == by_torch, (case, dtype, channels_last)


def test_torch_computes_what_32_bits_index() -> None:
    """Also under torch.compile, and in exported programs, which hold for all sizes."""
    weight = torch.empty(64, 1, 9, 9, device="meta")
    sizes = ((1, 1), (4, 4), (1, 1))
    largest = {"below": (2**10 - 1, 64, 128, 128), "too many": (2**10, 64, 128, 128)}
    inputs = {name: torch.empty(shape, device="meta") for name, shape in largest.items()}

    class Chosen(torch.nn.Module):
        def forward(self, input: Tensor) -> Tensor:
            return input[0] if torch_is_faster(input, weight, *sizes) else input

    torch.compiler.reset()  # it no longer compiles what earlier tests have compiled for many shapes
    compiled = torch.compile(torch_is_faster, fullgraph=True, dynamic=True, backend="eager")
    for choose in (torch_is_faster, compiled):
        assert [choose(input, weight, *sizes) for input in inputs.values()] == [True, False]
    for most, by_torch in ((100, True), (None, False)):
        batch = ({0: torch.export.Dim("batch", max=most)},)
        program = torch.export.export(Chosen(), (inputs["below"][:50],), dynamic_shapes=batch)
        (output,) = program.module()(inputs["below"][:60]).shape[:-3] or (None,)
        assert (output is None) == by_torch


@FORMATS
@pytest.mark.parametrize("case", [case for case, dtype, *_ in HANDED_OVER if dtype == torch.float32], ids=str)
def test_torchs_convolution_computes_the_same(case: Case, channels_last: bool) -> None:
    inputs = case.inputs("cpu", torch.float64, channels_last)
    by_torch = partial(
        conv2d_by_groups, stride=case.stride, padding=case.padding, dilation=case.dilation
    )  # float64 is never handed over, so the function below is ours
    torch.testing.assert_close(
        outputs_and_gradients(by_torch, inputs), outputs_and_gradients(case.function(), inputs)
    )
    assert by_torch(*inputs).is_contiguous(memory_format=CHANNELS_LAST) == channels_last


@pytest.mark.parametrize(
    ("ours", "device_type"),
    [(True, "cpu"), *(pytest.param(ours, "cuda", marks=pytest.mark.cuda) for ours in (False, True))],
)
def test_who_computes(ours: bool, device_type: str) -> None:
    for case, dtype, channels_last, where in KEPT if ours else HANDED_OVER:
        if where != device_type:
            continue
        inputs = case.inputs(device_type, dtype, channels_last)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            case.function()(*inputs)
        called = {event.key for event in profile.key_averages()}
        assert ("detector::depthwise_conv2d_forward" in called) == ours, (case, dtype, channels_last)
        assert ("aten::conv2d" in called) != ours, (case, dtype, channels_last)


# ---- reproducibility ----


@FORMATS
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", [Case(size=(40, 40)), STRIDED[0], SQUARE[3], OTHERS[-1]], ids=str)
def test_reproducible(case: Case, dtype: torch.dtype, channels_last: bool, device: torch.device) -> None:
    op_contract.assert_reproducible(case.function(), case.inputs(device, dtype, channels_last))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@FORMATS
@pytest.mark.parametrize("case", [Case(size=(60, 60)), Case((5, 5), (2, 2), size=(80, 80))], ids=str)
def test_independent_of_threads(case: Case, channels_last: bool, dtype: torch.dtype) -> None:
    inputs = case._replace(channels=32).inputs("cpu", dtype, channels_last)
    op_contract.assert_independent_of_threads(case.function(), inputs)


# ---- torch.library, compile, export, autocast ----


def test_export(device: torch.device) -> None:
    module = DepthwiseConv2d(3, 3, padding=1).to(device)
    batch, height, width = (torch.export.Dim(name, min=2, max=512) for name in ("batch", "height", "width"))
    input = random(2, 3, 8, 9, dtype=torch.float32, device=device, requires_grad=False)
    shapes = {"input": {0: batch, 2: height, 3: width}}
    program = torch.export.export(module, (input,), dynamic_shapes=shapes)
    other = random(5, 3, 12, 7, dtype=torch.float32, device=device, requires_grad=False)
    assert torch.equal(program.module()(other), module(other))


@pytest.mark.parametrize("autocast", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_autocast_casts_as_torchs_convolution(dtype, autocast, device: torch.device) -> None:
    function = Case().function()
    inputs = Case().inputs(device, torch.float32)
    inputs[0] = inputs[0].detach().to(dtype).requires_grad_()  # half precision beside float32 weights
    with torch.autocast(device.type, autocast):
        output = function(*inputs)
        assert output.dtype == conv2d(*inputs, padding=1, groups=8).dtype == autocast
    assert torch.equal(output, function(*(t.to(autocast) for t in inputs)))
    output.sum().backward()
    assert [t.grad.dtype for t in inputs] == [dtype, torch.float32, torch.float32]


def test_autocast_leaves_float64(device: torch.device) -> None:
    inputs = Case().inputs(device)
    with torch.autocast(device.type, torch.bfloat16):
        output = Case().function()(*inputs)
        assert output.dtype == conv2d(*inputs, padding=1, groups=8).dtype == torch.float64
    assert torch.equal(output, Case().function()(*inputs))


def test_compile_under_autocast(device: torch.device) -> None:
    inputs = Case().inputs(device, torch.float32)

    def function(*inputs: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            return Case().function()(*inputs)

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    outputs_and_grads = [op_contract.outputs_and_gradients(f, inputs) for f in (compiled, function)]
    op_contract.assert_equal(*outputs_and_grads)


def test_module_equals_conv2d(device: torch.device) -> None:
    arguments = {"stride": 2, "padding": (1, 2), "dilation": (2, 1), "device": device}
    torch.manual_seed(0)
    module = DepthwiseConv2d(4, (3, 5), multiplier=2, **arguments)
    torch.manual_seed(0)
    baseline = nn.Conv2d(4, 8, (3, 5), groups=4, **arguments)
    input = random(2, 4, 11, 12, dtype=torch.float32, device=device)
    assert all(map(torch.equal, module.parameters(), baseline.parameters()))  # equal initialization
    baseline.load_state_dict(module.state_dict())
    torch.testing.assert_close(module(input), baseline(input))
    assert DepthwiseConv2d(4, 3, bias=False).bias is None
    assert repr(DepthwiseConv2d(4, (3, 5), 2, padding=1)) == (
        "DepthwiseConv2d(4, kernel_size=(3, 5), stride=(2, 2), padding=(1, 1), dilation=(1, 1), "
        "multiplier=1, bias=True)"
    )


def test_a_module_without_taps_is_built_and_refuses_its_input() -> None:
    """As nn.Conv2d does, and as either does with a stride of 0."""
    module = DepthwiseConv2d(2, (0, 3))
    with pytest.raises(RuntimeError, match=r"^depthwise_conv2d: weight has shape \(2, 1, 0, 3\), expected"):
        module(torch.zeros(1, 2, 5, 5))


# ---- huge stride, padding and dilation ----

FAR = 2**30


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    ("stride", "padding", "dilation"),
    [
        (2**31 - 1, 0, 1),  # a single output
        (FAR, FAR, 1),
        (1, FAR, FAR),  # only the center of the padded input is nonzero
        ((1, FAR), (1, FAR), 1),
    ],
)
def test_cost_is_independent_of_stride_padding_and_dilation(
    stride: int | tuple[int, int],
    padding: int | tuple[int, int],
    dilation: int,
    channels_last: bool,
    device: torch.device,
) -> None:
    input, weight = random(2, 3, 4, 5, device=device), random(6, 1, 3, 3, device=device)
    if channels_last:
        input = input.detach().contiguous(memory_format=torch.channels_last).requires_grad_()

    def pair(option: int | tuple[int, int]) -> tuple[int, int]:
        return option if isinstance(option, tuple) else (option, option)

    # With these smaller values the taps and outputs touch the same input pixels.
    near = [tuple(9 if n >= FAR else n for n in pair(option)) for option in (stride, padding, dilation)]
    far = [pair(option) for option in (stride, padding, dilation)]
    with peak_memory(most=100e6):
        outputs = outputs_and_gradients(lambda i, w: depthwise_conv2d(i, w, None, *far), [input, weight])
    expected = outputs_and_gradients(lambda i, w: depthwise_conv2d(i, w, None, *near), [input, weight])
    for ours, same in zip(outputs, expected, strict=True):
        torch.testing.assert_close(ours, same)


# ---- invalid arguments ----

CPU_INT = torch.zeros(1, 2, 5, 5, dtype=torch.int32)
BAD_ARGUMENTS = [
    ({"input": torch.zeros(2, 5, 5)}, r"input has shape \(2, 5, 5\), expected 4 dimensions"),
    ({"weight": torch.zeros(2, 3, 3)}, r"weight has shape \(2, 3, 3\), expected 4 dimensions"),
    ({"weight": torch.zeros(2, 2, 3, 3)}, r"weight has shape \(2, 2, 3, 3\), expected \(C \* multiplier"),
    ({"weight": torch.zeros(2, 1, 0, 3)}, r"weight has shape \(2, 1, 0, 3\), expected \(C \* multiplier"),
    ({"weight": torch.zeros(3, 1, 3, 3)}, r"weight has shape .* multiple of the 2 channels .* but found 3"),
    ({"weight": torch.zeros(0, 1, 3, 3)}, r"weight has shape .* multiple of the 2 channels .* but found 0"),
    ({"input": torch.zeros(1, 0, 5, 5)}, r"weight has shape .* multiple of the 0 channels .* but found 2"),
    ({"bias": torch.zeros(3)}, r"bias has shape \(3,\), expected \(2,\)"),
    ({"bias": torch.zeros(2, 1)}, r"bias has shape \(2, 1\), expected \(2,\)"),
    ({"weight": torch.zeros(2, 1, 3, 3).double()}, "weight is Double, expected Float"),
    ({"bias": torch.zeros(2).half()}, "bias is Half, expected Float"),
    ({"input": CPU_INT}, "input is Int, expected Double, Float, Half or BFloat16"),
    ({"stride": 0}, r"stride is \(0, 0\), expected two numbers from 1 to"),
    ({"stride": (1, -2)}, r"stride is \(1, -2\), expected two numbers from 1 to"),
    ({"stride": 2**31}, r"stride is \(2147483648, 2147483648\), expected two numbers"),
    ({"padding": (-1, 0)}, r"padding is \(-1, 0\), expected two numbers from 0 to"),
    ({"dilation": (1, 0)}, r"dilation is \(1, 0\), expected two numbers from 1 to"),
    ({"weight": torch.zeros(2, 1, 6, 3)}, "the kernel spans 6 rows, expected at most the 5 of the padded"),
    ({"dilation": (1, 4), "padding": (0, 1)}, "the kernel spans 9 columns, expected at most the 7 of"),
    ({"input": torch.zeros(1, 2, 0, 5)}, "the kernel spans 3 rows, expected at most the 0 of the padded"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), BAD_ARGUMENTS)
def test_bad_arguments(changes: dict, message: str, device: torch.device) -> None:
    arguments = {"input": torch.zeros(1, 2, 5, 5), "weight": torch.zeros(2, 1, 3, 3), "bias": torch.zeros(2)}
    arguments = {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in (arguments | changes).items()
    }
    with pytest.raises(RuntimeError, match=f"^depthwise_conv2d: {message}"):
        depthwise_conv2d(**arguments)


@pytest.mark.parametrize("value", ["same", 1.5, (1, 2, 3), (1,), None])
@pytest.mark.parametrize("name", ["stride", "padding", "dilation"])
def test_bad_pairs(name: str, value: object) -> None:
    input, weight, bias = Case().inputs("cpu")
    with pytest.raises(ValueError, match=f"^depthwise_conv2d: {name} is .*, expected an integer or a pair"):
        depthwise_conv2d(input, weight, bias, **{name: value})


def test_bad_gradient_arguments(device: torch.device) -> None:
    def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    grad, weight, input, ones = zeros(1, 2, 3, 3), zeros(2, 1, 3, 3), zeros(1, 2, 5, 5), (1, 1)
    sizes = (ones, (0, 0), ones)
    for arguments, message in [
        ((grad[0], weight, 2, (5, 5), *sizes), r"grad has shape \(2, 3, 3\), expected 4 dimensions"),
        ((grad, weight, 2, (6, 5), *sizes), r"grad has shape \(1, 2, 3, 3\), expected \(1, 2, 4, 3\)"),
        ((grad, weight.double(), 2, (5, 5), *sizes), "weight is Double, expected Float"),
        ((grad, weight, 3, (5, 5), *sizes), "weight has shape .* multiple of the 3 channels"),
        ((grad, weight, 2, (5,), *sizes), r"size is \(5,\), expected two numbers from 0 to"),
        ((grad.int(), weight.int(), 2, (5, 5), *sizes), "grad is Int, expected Double"),
    ]:
        with pytest.raises(RuntimeError, match=f"^depthwise_conv2d_grad_input: {message}"):
            _C.depthwise_conv2d_grad_input(*arguments)
    for arguments, message in [
        ((input[0], grad, (3, 3), *sizes), r"input has shape \(2, 5, 5\), expected 4 dimensions"),
        ((input, grad[0], (3, 3), *sizes), r"grad has shape \(2, 3, 3\), expected 4 dimensions"),
        ((input, grad.double(), (3, 3), *sizes), "grad is Double, expected Float"),
        ((input, zeros(1, 3, 3, 3), (3, 3), *sizes), "grad has shape .* multiple of the 2 channels"),
        ((input, grad, (0, 3), *sizes), r"kernel is \(0, 3\), expected two numbers from 1 to"),
        ((input, grad, (3, 2), *sizes), r"grad has shape \(1, 2, 3, 3\), expected \(1, 2, 3, 4\)"),
        ((input.int(), grad.int(), (3, 3), *sizes), "input is Int, expected Double"),
    ]:
        with pytest.raises(RuntimeError, match=f"^depthwise_conv2d_grad_weight: {message}"):
            _C.depthwise_conv2d_grad_weight(*arguments)

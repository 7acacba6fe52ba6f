"""winograd_conv2d against torch's conv2d in float64, and all that every op promises."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from op_contract import (
    DTYPES,
    assert_any_layout,
    assert_autocast_keeps_dtype,
    assert_bits_do_not_depend_on_threads,
    assert_compiles,
    assert_graph_capture,
    assert_host_never_waits,
    assert_matches_twin,
    assert_repeats_bitwise,
    assert_runs_on_a_second_stream,
    outputs_and_gradients,
    random,
)
from torch import Tensor, nn
from torch.nn.functional import conv2d

from detector.layers import WinogradConv2d, winograd_conv2d

OPS = torch.ops.detector


def make_inputs(
    size=(2, 3, 7, 6), filters: int = 5, dtype=torch.float64, device="cpu", seed: int = 0
) -> list[Tensor]:
    """Input, weight and bias."""
    shapes = (size, (filters, size[1], 3, 3), (filters,))
    return [random(*shape, dtype=dtype, device=device, seed=seed + i) for i, shape in enumerate(shapes)]


def same(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return winograd_conv2d(input, weight, bias, padding=1)


# ---- what it computes ----


def test_by_hand(device: torch.device) -> None:
    input = torch.arange(16.0, device=device).view(1, 1, 4, 4)
    weight = torch.zeros(1, 1, 3, 3, device=device)
    weight[..., 0, 0], weight[..., 2, 1] = 1, 10  # what is up and left, and ten times what is below
    expected = [[0 + 90, 1 + 100], [4 + 130, 5 + 140]]
    assert winograd_conv2d(input, weight)[0, 0].tolist() == expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("padding", "dilation"), [(0, 1), (1, 1), ((2, 0), 1), (2, 2), ((1, 3), (2, 3))])
def test_matches_conv2d(dtype, padding, dilation, device: torch.device) -> None:
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {}
    if dtype.itemsize == 2:
        tolerance = {"rtol": 1e-2, "atol": 1e-1}  # results of up to 60
    assert_matches_twin(
        lambda *tensors: winograd_conv2d(*tensors, padding, dilation),
        lambda *tensors: conv2d(*tensors, padding=padding, dilation=dilation),
        make_inputs((2, 9, 11, 14), 8, dtype, device),
        **tolerance,
    )


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_matches_conv2d_on_drawn_shapes(data: st.DataObject, device: torch.device) -> None:
    images, channels, filters = (data.draw(st.integers(least, 4)) for least in (0, 1, 1))
    dilation = tuple(data.draw(st.integers(1, 4)) for _ in range(2))
    padding = tuple(data.draw(st.integers(0, 5)) for _ in range(2))
    size = [
        data.draw(st.integers(max(1, 2 * (d - p) + 1), 12)) for d, p in zip(dilation, padding, strict=True)
    ]
    inputs = make_inputs((images, channels, *size), filters, device=device, seed=data.draw(st.integers(0, 9)))
    assert_matches_twin(
        lambda *tensors: winograd_conv2d(*tensors, padding, dilation),
        lambda *tensors: conv2d(*tensors, padding=padding, dilation=dilation),
        inputs,
    )


def test_float32_rounds_little(device: torch.device) -> None:
    """Root mean square of the errors, in that of the results: a plain sum of 2,304 products has 4e-7."""
    input, weight, _ = make_inputs((1, 256, 20, 20), 64, torch.float32, device)
    for actual, exact in zip(
        outputs_and_gradients(same, (input, weight, None)),
        outputs_and_gradients(same, (input.detach().double().requires_grad_(),
                                     weight.detach().double().requires_grad_(), None)),
        strict=True,
    ):  # fmt: skip
        error = (actual - exact).square().mean().sqrt() / exact.square().mean().sqrt()
        assert error < 2e-6


def test_without_bias(device: torch.device) -> None:
    input, weight, _ = make_inputs(device=device)
    expected = winograd_conv2d(input, weight, weight.new_zeros(5))
    assert torch.equal(winograd_conv2d(input, weight), expected)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_stays_near(value: float, device: torch.device) -> None:
    input, weight, bias = (tensor.detach() for tensor in make_inputs((1, 2, 12, 12), device=device))
    input[0, 0, 5, 5] = value
    broken = ~same(input, weight, bias).isfinite()
    assert broken[:, :, 4:7, 4:7].all()
    broken[:, :, 3:8, 3:8] = False
    assert not broken.any()


def test_gradcheck(device: torch.device) -> None:
    inputs = make_inputs((1, 2, 5, 4), 2, device=device)

    def dilated(*tensors: Tensor) -> Tensor:
        return winograd_conv2d(*tensors, (2, 1), (2, 1))

    for function in (same, dilated):
        assert torch.autograd.gradcheck(function, inputs, nondet_tol=0.0)
        assert torch.autograd.gradgradcheck(function, inputs, nondet_tol=0.0)


def test_module_is_conv2d() -> None:
    torch.manual_seed(0)
    ours = WinogradConv2d(3, 5, padding=(2, 1), dilation=(2, 1), bias=False)
    torch.manual_seed(0)
    plain = nn.Conv2d(3, 5, 3, padding=(2, 1), dilation=(2, 1), bias=False)
    assert ours.state_dict().keys() == plain.state_dict().keys()
    assert torch.equal(ours.weight, plain.weight)
    input = random(2, 3, 9, 9, dtype=torch.float32)
    torch.testing.assert_close(ours(input), plain(input))
    assert repr(ours) == repr(plain).replace("Conv2d", "WinogradConv2d")


# ---- layouts and bits ----


def test_any_layout(device: torch.device) -> None:
    assert_any_layout(
        same, make_inputs(device=device), rtol=1e-12, atol=1e-12
    )  # the bias's gradient is a sum


@pytest.mark.parametrize("dtype", DTYPES)
def test_ten_repeats_are_bitwise_equal(dtype: torch.dtype, device: torch.device) -> None:
    assert_repeats_bitwise(same, make_inputs((2, 16, 20, 20), 8, dtype, device))


def test_bits_do_not_depend_on_threads() -> None:
    def maps(input: Tensor, weight: Tensor) -> tuple[Tensor, ...]:  # not the product, which is torch's
        tiles = OPS.winograd_conv2d_input_forward(input, (1, 1), (1, 1))
        weights = OPS.winograd_conv2d_weight_forward(weight)
        output = OPS.winograd_conv2d_output_forward(2 * tiles, (2, 40, 40), (1, 1))
        return tiles, weights, output

    inputs = make_inputs((2, 32, 40, 40), 32, torch.float32)[:2]
    assert_bits_do_not_depend_on_threads(maps, inputs)


# ---- torch's machinery ----


def test_opcheck(device: torch.device) -> None:
    input, weight, _ = make_inputs(device=device)
    pair = ((1, 2), (2, 1))  # 5 x 8 outputs
    tiles = OPS.winograd_conv2d_input_forward(input, *pair).detach().requires_grad_()
    places = OPS.winograd_conv2d_weight_forward(weight).detach().requires_grad_()
    output = random(2, 5, 5, 8, device=device)
    for op, arguments in [
        (OPS.winograd_conv2d_input_forward, (input, *pair)),
        (OPS.winograd_conv2d_input_backward, (tiles, (2, 7, 6), *pair)),
        (OPS.winograd_conv2d_output_forward, (tiles, (2, 5, 8), pair[1])),
        (OPS.winograd_conv2d_output_backward, (output, pair[1])),
        (OPS.winograd_conv2d_weight_forward, (weight,)),
        (OPS.winograd_conv2d_weight_backward, (places,)),
    ]:
        torch.library.opcheck(op.default, arguments)


def test_compiles(device: torch.device) -> None:
    all_inputs = make_inputs(device=device), make_inputs((3, 3, 10, 5), device=device)
    # Without bias, whose gradient torch.compile adds up in another order.
    assert_compiles(same, *([input, weight, None] for input, weight, _ in all_inputs))


def test_export(device: torch.device) -> None:
    height, width = torch.export.Dim("height", min=3), torch.export.Dim("width", min=3)
    module = WinogradConv2d(3, 4, padding=1).to(device)
    input = random(2, 3, 8, 8, dtype=torch.float32, device=device, requires_grad=False)
    program = torch.export.export(module, (input,), dynamic_shapes={"input": {2: height, 3: width}})
    other = random(2, 3, 11, 6, dtype=torch.float32, device=device, requires_grad=False)
    assert torch.equal(program.module()(other), module(other))


def test_autocast(device: torch.device) -> None:
    assert_autocast_keeps_dtype(same, make_inputs(device=device), device)


# ---- bad input ----

BAD_ARGUMENTS = [
    ({"weight": torch.zeros(4, 3, 5, 5)}, r"weight has shape \(4, 3, 5, 5\), input \(2, 3, 6, 6\), expected"),
    ({"weight": torch.zeros(4, 2, 3, 3)}, r"weight has shape \(4, 2, 3, 3\), input \(2, 3, 6, 6\), expected"),
    ({"input": torch.zeros(3, 6, 6)}, r"weight has shape \(4, 3, 3, 3\), input \(3, 6, 6\), expected"),
    ({"bias": torch.zeros(5)}, r"bias has shape \(5,\), expected \(4,\)"),
    ({"input": torch.zeros(2, 3, 6, 6).int()}, "input is torch.int32, expected a floating dtype"),
    ({"weight": torch.zeros(4, 3, 3, 3).double()}, "weight is torch.float64 on .*, expected torch.float32"),
    ({"bias": torch.zeros(4).half()}, "bias is torch.float16 on .*, expected torch.float32"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_ARGUMENTS)
def test_bad_tensors(changes: dict[str, Tensor], message: str, device: torch.device) -> None:
    tensors = {"input": torch.zeros(2, 3, 6, 6), "weight": torch.zeros(4, 3, 3, 3)} | changes
    with pytest.raises(RuntimeError, match=f"^winograd_conv2d: {message}"):
        winograd_conv2d(**{name: tensor.to(device) for name, tensor in tensors.items()})


BAD_SIZES = [
    ({"padding": -1}, RuntimeError, r"padding is \(-1, -1\), expected at least 0"),
    ({"dilation": 0}, RuntimeError, r"dilation is \(0, 0\), expected at least 1"),
    ({"padding": (1, 1, 1)}, ValueError, r"padding is \(1, 1, 1\), expected an integer or a pair of them"),
    ({"padding": 0.5}, ValueError, "padding is 0.5, expected an integer or a pair of them"),
    ({"dilation": 3}, RuntimeError, "the input has 6 rows, expected at least 7 with padding 0 and dilation"),
]  # fmt: skip


@pytest.mark.parametrize(("sizes", "error", "message"), BAD_SIZES)
def test_bad_sizes(sizes: dict, error: type[Exception], message: str, device: torch.device) -> None:
    input, weight = torch.zeros(2, 3, 6, 6, device=device), torch.zeros(4, 3, 3, 3, device=device)
    with pytest.raises(error, match=f"^winograd_conv2d(_input_forward)?: {message}"):
        winograd_conv2d(input, weight, **sizes)


BAD_OP_ARGUMENTS = [
    ("input_backward", (torch.zeros(16, 3, 7), (2, 4, 4), (1, 1), (1, 1)), r"grad has shape \(16, 3, 7\)"),
    ("input_backward", (torch.zeros(16, 3, 8), (4, 4), (1, 1), (1, 1)), r"size is \(4, 4\), expected images"),
    ("output_forward", (torch.zeros(16, 3, 9), (2, 4, 4), (1, 1)), r"products has .*, expected \(16, C, 8\)"),
    ("output_forward", (torch.zeros(16, 3, 8), (2, 0, 4), (1, 1)), r"size is \(2, 0, 4\), expected images"),
    ("output_backward", (torch.zeros(2, 3, 4), (1, 1)), r"grad has shape \(2, 3, 4\), expected 4 dimensions"),
    ("output_backward", (torch.zeros(2, 3, 4, 4), (1, 0)), r"dilation is \(1, 0\), expected at least 1"),
    ("output_backward", (torch.zeros(2, 3, 4, 4).half(), (1, 1)), "grad is Half, expected Double or Float"),
    ("weight_forward", (torch.zeros(4, 3, 1, 3),), r"weight has shape .*, expected \(K, C, 3, 3\)"),
    ("weight_backward", (torch.zeros(9, 4, 3),), r"grad has shape .*, expected \(16, K, C\)"),
]


@pytest.mark.parametrize(("name", "arguments", "message"), BAD_OP_ARGUMENTS)
def test_bad_arguments_of_the_maps(name: str, arguments: tuple, message: str, device: torch.device) -> None:
    tensor, *sizes = arguments
    with pytest.raises(RuntimeError, match=f"^winograd_conv2d_{name}: {message}"):
        getattr(OPS, f"winograd_conv2d_{name}")(tensor.to(device), *sizes)


# ---- on a GPU only ----


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_equals_cpu(dtype: torch.dtype) -> None:
    inputs = make_inputs((2, 20, 33, 41), 12, dtype)
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-3}.get(dtype, 0.3)
    for padding, dilation in ((1, 1), (2, 2)):

        def function(*tensors: Tensor, sizes=(padding, dilation)) -> Tensor:
            return winograd_conv2d(*tensors, *sizes)

        expected = outputs_and_gradients(function, inputs)
        on_gpu = [tensor.detach().cuda().requires_grad_() for tensor in inputs]
        for a, e in zip(outputs_and_gradients(function, on_gpu), expected, strict=True):
            torch.testing.assert_close(a.cpu(), e, rtol=1e-2, atol=tolerance)


@pytest.mark.cuda
def test_cuda_streams_and_graphs() -> None:
    inputs = make_inputs((2, 16, 30, 30), 8, torch.float32, "cuda")
    assert_host_never_waits(same, inputs)
    assert_runs_on_a_second_stream(same, inputs)
    assert_graph_capture(same, inputs, make_inputs((2, 16, 30, 30), 8, torch.float32, "cuda", seed=7))


@pytest.mark.cuda
def test_cuda_past_two_to_the_31_elements() -> None:
    channels, side = 66_000, 94  # more channels than blocks along y; 16 channels tiles > 2^31
    input = torch.zeros(1, channels, side, side, device="cuda")
    input[0, -1] = 1
    tiles = OPS.winograd_conv2d_input_forward(input, (1, 1), (1, 1))
    assert tiles.numel() > 2**31
    assert tiles[:, :-1].count_nonzero() == 0
    middle = tiles[:, -1, 47 * 20 + 20].tolist()
    assert middle == [0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    output = OPS.winograd_conv2d_output_forward(tiles, (1, side, side), (1, 1))
    assert output[0, :-1].count_nonzero() == 0
    assert (output[0, -1, 2:-2, 2:-2] == 4).all()
    back = OPS.winograd_conv2d_output_backward(input, (1, 1))
    assert back[:, :-1].count_nonzero() == 0
    assert back[:4, -1, 0].tolist() == [1, 2, 0, -1]
    grad = OPS.winograd_conv2d_input_backward(back, (1, side, side), (1, 1), (1, 1))
    assert grad[0, :-1].count_nonzero() == 0


@pytest.mark.cuda
def test_cuda_small_enough_for_the_sanitizer() -> None:
    for dtype in (torch.float64, torch.float32):
        for sizes in ((0, 1), (1, 1), (2, 2), ((1, 3), (2, 3))):
            inputs = make_inputs((2, 5, 9, 11), 3, dtype, "cuda")
            outputs_and_gradients(lambda *tensors, s=sizes: winograd_conv2d(*tensors, *s), inputs)

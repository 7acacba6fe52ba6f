"""upsample_bilinear2d: comparison with its reference and torch."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from op_contract import (
    DTYPES,
    assert_equal,
    assert_graph_capture,
    assert_matches_reference,
    assert_no_synchronization,
    assert_uses_current_stream,
    outputs_and_gradients,
    peak_memory,
    random,
    random_upstreams,
)

from detector import _C
from detector.layers import UpsampleBilinear2d, reference, upsample_bilinear2d
from detector.layers.upsample_bilinear2d import COORDINATE_MODES

# Input and output (height, width): up, down, both; integer and other factors; to and from one pixel.
SIZES = [
    ((4, 6), (8, 12)),
    ((3, 5), (7, 4)),
    ((5, 7), (5, 7)),
    ((7, 3), (2, 40)),
    ((1, 1), (3, 5)),
    ((6, 1), (1, 4)),
    ((2, 9), (70, 1)),
    ((40, 33), (17, 71)),
]
FACTORS = [(2.0, 2.0), (1.3, 1.3), (0.37, 7 / 3), (7 / 3, 0.5), (1.05, 3.0), (0.37, 0.99)]
# positions are computed in float32
TOLERANCE = {torch.float32: {"rtol": 1e-5, "atol": 2e-5}, torch.float16: {"rtol": 2e-3, "atol": 2e-3}}


def layouts(input: torch.Tensor) -> list[torch.Tensor]:
    return [
        input.detach().contiguous(memory_format=memory_format).requires_grad_()
        for memory_format in (torch.contiguous_format, torch.channels_last)
    ]


# ---- values and gradients ----


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        # TensorFlow 1: output pixel o is at o * in / out, clamped to the last pixel
        ("asymmetric", [[64, 48, 32, 32], [48, 48, 48, 48], [32, 48, 64, 64], [41, 61.5, 82, 82],
                        [50, 75, 100, 100], [50, 75, 100, 100]]),
        # rows at 0, .4, .8, 1.2, 1.6, 2 and columns at 0, 1/3, 2/3, 1
        ("align_corners", [[64, 160 / 3, 128 / 3, 32], [51.2, 736 / 15, 704 / 15, 44.8],
                           [38.4, 44.8, 51.2, 57.6], [35.6, 712 / 15, 890 / 15, 71.2],
                           [42.8, 856 / 15, 1070 / 15, 85.6], [50, 200 / 3, 250 / 3, 100]]),
    ],
)  # fmt: skip
def test_by_hand(mode: str, expected: list[list[float]], device: torch.device) -> None:
    image = torch.tensor([[64, 32], [32, 64], [50, 100]], dtype=torch.float64, device=device)[None, None]
    output = upsample_bilinear2d(image, size=(6, 4), coordinate_mode=mode)
    torch.testing.assert_close(output[0, 0].cpu(), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(("old", "new"), SIZES)
@pytest.mark.parametrize("mode", COORDINATE_MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_reference(
    dtype: torch.dtype, mode: str, old: tuple, new: tuple, device: torch.device
) -> None:
    ours = partial(upsample_bilinear2d, size=new, coordinate_mode=mode)
    expected = partial(reference.upsample_bilinear2d, size=new, coordinate_mode=mode)
    for channels in (3, 16):
        for input in layouts(random(2, channels, *old, dtype=dtype, device=device)):
            assert_matches_reference(ours, expected, [input], **TOLERANCE.get(dtype, {}))


@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize("mode", COORDINATE_MODES)
def test_matches_reference_with_factors(mode: str, factors: tuple, device: torch.device) -> None:
    ours = partial(upsample_bilinear2d, scale_factor=factors, coordinate_mode=mode)
    expected = partial(reference.upsample_bilinear2d, scale_factor=factors, coordinate_mode=mode)
    for dtype in (torch.float64, torch.float32):
        for input in layouts(random(2, 4, 10, 7, dtype=dtype, device=device)):
            assert_matches_reference(ours, expected, [input], **TOLERANCE.get(dtype, {}))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_matches_torch(dtype: torch.dtype, device: torch.device) -> None:
    pairs = [({"size": new}, old) for old, new in SIZES]
    pairs += [({"scale_factor": factors}, (10, 7)) for factors in FACTORS]
    for how, old in pairs:
        for mode in ("half_pixel", "align_corners"):
            ours = partial(upsample_bilinear2d, **how, coordinate_mode=mode)
            theirs = partial(F.interpolate, **how, mode="bilinear", align_corners=mode == "align_corners")
            for input in layouts(random(2, 3, *old, dtype=dtype)):
                # on the CPU: on a GPU torch also applies the factor to an axis whose length does not change
                expected = outputs_and_gradients(theirs, [input])
                actual = outputs_and_gradients(ours, [input.detach().to(device).requires_grad_()])
                actual = [tensor.cpu() for tensor in actual]
                assert_equal(actual, expected, f"{how} {mode}", rtol=1e-5, atol=2e-5)


def test_scale_factor_sets_positions_as_in_torch() -> None:
    input = torch.arange(10.0)[None, None, None].expand(1, 1, 10, 10).contiguous()
    by_factor = upsample_bilinear2d(input, scale_factor=1.55)
    by_size = upsample_bilinear2d(input, size=15)
    assert by_factor.shape == by_size.shape == (1, 1, 15, 15)
    assert not torch.allclose(by_factor, by_size)
    torch.testing.assert_close(by_factor, F.interpolate(input, scale_factor=1.55, mode="bilinear"))
    torch.testing.assert_close(by_size, F.interpolate(input, size=15, mode="bilinear"))


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    old=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    new=st.one_of(
        st.tuples(st.integers(1, 90), st.integers(1, 90)), st.tuples(st.floats(0.1, 6), st.floats(0.1, 6))
    ),
    mode=st.sampled_from(COORDINATE_MODES),
    channels_last=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_gradient_is_the_transpose(
    old: tuple, new: tuple, mode: str, channels_last: bool, dtype: torch.dtype, device: torch.device
) -> None:
    """<f(x), g> = <x, f'(g)> and f(1) = 1: no output is missed or counted twice."""
    how = {"size": new} if isinstance(new[0], int) else {"scale_factor": new}
    assume("size" in how or all(int(a * b) > 0 for a, b in zip(old, new, strict=True)))
    function = partial(upsample_bilinear2d, **how, coordinate_mode=mode)
    input = layouts(random(1, 2, *old, dtype=dtype, device=device))[channels_last]
    output, grad = outputs_and_gradients(function, [input])
    (upstream,) = random_upstreams([output])
    torch.testing.assert_close(
        (output.double() * upstream).sum(), (input.detach().double() * grad).sum(), rtol=1e-5, atol=1e-3
    )
    ones = input.detach().fill_(1).requires_grad_()
    (counts,) = torch.autograd.grad(function(ones).sum(), ones)
    assert counts.sum().item() == pytest.approx(output.numel(), rel=1e-5)
    expected = partial(reference.upsample_bilinear2d, **how, coordinate_mode=mode)
    tolerance = {"rtol": 1e-4, "atol": 2e-4} if dtype == torch.float32 else {}
    assert_matches_reference(function, expected, [input], **tolerance)


@pytest.mark.parametrize("mode", COORDINATE_MODES)
def test_gradcheck(mode: str, device: torch.device) -> None:
    function = partial(upsample_bilinear2d, size=(5, 3), coordinate_mode=mode)
    for input in layouts(random(1, 2, 3, 4, device=device)):
        assert torch.autograd.gradcheck(function, input, nondet_tol=0.0)
        assert torch.autograd.gradgradcheck(function, input, nondet_tol=0.0)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_nan_and_inf_spread_as_in_torch(value: float, device: torch.device) -> None:
    input = random(1, 1, 5, 6, dtype=torch.float32, device=device).detach()
    input[0, 0, 2, 3] = value
    for tensor in layouts(input):
        actual = upsample_bilinear2d(tensor, size=(11, 8))
        expected = F.interpolate(tensor, size=(11, 8), mode="bilinear")
        assert torch.equal(actual.isfinite(), expected.isfinite())
        upstream = torch.zeros_like(actual)
        upstream[0, 0, 0, 7] = value
        grads = [torch.autograd.grad(output, tensor, upstream)[0] for output in (actual, expected)]
        assert torch.equal(grads[0].isfinite(), grads[1].isfinite())


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 0, 4, 5)])
def test_empty(shape: tuple[int, ...], device: torch.device) -> None:
    for input in layouts(random(*shape, device=device)):
        output, grad = outputs_and_gradients(partial(upsample_bilinear2d, size=(7, 3)), [input])
        assert output.shape == (*shape[:2], 7, 3)
        assert grad.shape == shape


def test_scalar_and_list_arguments(device: torch.device) -> None:
    input = random(1, 2, 4, 6, device=device)
    assert torch.equal(upsample_bilinear2d(input, 7), upsample_bilinear2d(input, [7, 7]))
    assert torch.equal(upsample_bilinear2d(input, None, 2), upsample_bilinear2d(input, None, [2.0, 2.0]))
    by_numpy = upsample_bilinear2d(input, None, (np.float32(1.7), np.int64(2)))
    assert torch.equal(by_numpy, upsample_bilinear2d(input, None, (float(np.float32(1.7)), 2)))


def test_module_equals_function() -> None:
    input = random(1, 2, 4, 6)
    module = UpsampleBilinear2d(scale_factor=(2, 1.5), coordinate_mode="asymmetric")
    assert torch.equal(module(input), upsample_bilinear2d(input, None, (2, 1.5), "asymmetric"))
    text = "UpsampleBilinear2d(size=None, scale_factor=(2, 1.5), coordinate_mode='asymmetric')"
    assert repr(module) == text


# ---- layouts ----


def test_memory_format_is_kept_without_copies(device: torch.device) -> None:
    inputs, upstreams = (layouts(random(2, 8, *size, device=device)) for size in ((5, 6), (9, 9)))
    for input, upstream in zip(inputs, upstreams, strict=True):
        with torch.profiler.profile() as profile:
            output = upsample_bilinear2d(input, 9)
            (grad,) = torch.autograd.grad(output, input, upstream)
        kept = torch.contiguous_format if input.is_contiguous() else torch.channels_last
        assert output.is_contiguous(memory_format=kept)
        assert grad.is_contiguous(memory_format=kept)
        assert not {"aten::copy_", "aten::clone"} & {event.name for event in profile.events()}


# ---- torch.library, compile, export, autocast ----


@pytest.mark.parametrize("shape", [(2, 0, 3, 4), (0, 1, 3, 4)])
def test_empty_tensors_use_no_memory(shape: tuple[int, ...], device: torch.device) -> None:
    input = random(*shape, device=device)
    function = partial(upsample_bilinear2d, size=(2**31 - 1, 2**31 - 1))
    with peak_memory(most=50e6):
        output, grad = outputs_and_gradients(function, [input])
    assert output.shape == (*shape[:2], 2**31 - 1, 2**31 - 1)
    assert grad.shape == shape


# ---- invalid arguments ----


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "size is None and scale_factor is None, expected exactly one of them"),
        ({"size": 3, "scale_factor": 2}, "size is 3 and scale_factor is 2, expected exactly one"),
        ({"size": 3, "coordinate_mode": "cubic"},
         "coordinate_mode is 'cubic', expected one of half_pixel, align_corners, asymmetric, tf_half_pixel"),
        ({"size": 2.5}, "size is 2.5, expected an integer or a pair"),
        ({"size": (2, 3, 4)}, r"size is \(2, 3, 4\), expected an integer or a pair"),
        ({"scale_factor": (2,)}, r"scale_factor is \(2,\), expected a positive number or a pair"),
        ({"scale_factor": -1.0}, "scale_factor is -1.0, expected a positive number or a pair"),
        ({"scale_factor": 0}, "scale_factor is 0, expected a positive number"),
        ({"scale_factor": (1, torch.inf)}, "expected a positive number"),
        ({"scale_factor": torch.nan}, "expected a positive number"),
        ({"scale_factor": 1e300}, "scale_factor is 1e\\+300, expected a positive number .*, below 2\\^31"),
        ({"scale_factor": "2"}, "scale_factor is 2, expected a positive number"),
    ],
)  # fmt: skip
def test_bad_sizes_and_modes(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^upsample_bilinear2d: .*{message}"):
        upsample_bilinear2d(torch.zeros(1, 1, 4, 4), **arguments)


@pytest.mark.parametrize(
    ("shape", "dtype", "arguments", "message"),
    [
        ((3, 4, 4), torch.float32, {"size": 3}, r"input has shape \(3, 4, 4\), expected 4 dimensions"),
        ((3, 4, 4), torch.float32, {"scale_factor": 2}, r"input has shape \(3, 4, 4\), expected 4 dimen"),
        ((1, 3, 0, 4), torch.float32, {"size": 3}, r"input has shape \(1, 3, 0, 4\), expected a height and"),
        ((1, 3, 4, 4), torch.float32, {"size": (0, 3)}, r"size is \(0, 3\), expected a height and a width"),
        ((1, 3, 4, 4), torch.float32, {"size": -2}, r"size is \(-2, -2\), expected a height and a width"),
        ((1, 3, 4, 9), torch.float32, {"scale_factor": 0.2}, r"size is \(0, 1\), expected a height and a"),
        ((1, 3, 4, 4), torch.int64, {"size": 3}, "input is Long, expected Double, Float, Half or BFloat16"),
    ],
)
def test_bad_arguments(
    shape: tuple, dtype: torch.dtype, arguments: dict, message: str, device: torch.device
) -> None:
    with pytest.raises(RuntimeError, match=f"^upsample_bilinear2d: {message}"):
        upsample_bilinear2d(torch.zeros(shape, dtype=dtype, device=device), **arguments)


def test_bad_backward_arguments(device: torch.device) -> None:
    grad = torch.zeros(1, 2, 3, 4, device=device)
    for arguments, message in [
        ((grad[0], 3, 3, 0, 0.0, 0.0), r"grad has shape \(2, 3, 4\), expected 4 dimensions"),
        ((grad[..., :0], 3, 3, 0, 0.0, 0.0), r"grad has shape \(1, 2, 3, 0\), expected a height and a width"),
        ((grad, 3, 0, 0, 0.0, 0.0), r"input size is \(3, 0\), expected a height and a width of 1 to"),
        ((grad, 3, 3, 4, 0.0, 0.0), "mode is 4, expected 0 to 3"),
        ((grad.int(), 3, 3, 0, 0.0, 0.0), "grad is Int, expected Double, Float, Half or BFloat16"),
    ]:
        with pytest.raises(RuntimeError, match=f"^upsample_bilinear2d_backward: {message}"):
            _C.upsample_bilinear2d_backward(*arguments)


# ---- CUDA ----


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("factors", [*FACTORS, (8.0, 5.0), (0.5, 0.25), (1.0, 32.0), (2.0, 200.0)])
def test_cuda_equals_cpu(dtype: torch.dtype, factors: tuple) -> None:
    function = partial(upsample_bilinear2d, scale_factor=factors)
    for input in layouts(random(2, 16, 37, 24, dtype=dtype)):
        on_cpu = outputs_and_gradients(function, [input])
        on_gpu = outputs_and_gradients(function, [input.detach().cuda().requires_grad_()])
        # the gradient is a sum of up to 800 values, in another order
        tolerance = {"rtol": 1e-4, "atol": 2e-4} if dtype == torch.float32 else TOLERANCE.get(dtype, {})
        for a, e in zip(on_gpu, on_cpu, strict=True):
            torch.testing.assert_close(a.cpu(), e, **tolerance)


@pytest.mark.cuda
def test_cuda_synchronization_streams_and_graphs() -> None:
    function = partial(upsample_bilinear2d, scale_factor=(2, 1.7))
    for input, other in zip(
        *(layouts(random(2, 8, 33, 20, device="cuda", seed=seed)) for seed in (0, 1)), strict=True
    ):
        assert_no_synchronization(function, [input])
        assert_uses_current_stream(function, [input])
        assert_graph_capture(function, [input], [other])


@pytest.mark.cuda
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.gpu_memory(32)
def test_cuda_more_than_2_to_31_elements(channels_last: bool) -> None:
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    input = torch.randn(33, 8, 2000, 1025, device="cuda", dtype=torch.float16)
    input = input.contiguous(memory_format=memory_format)
    output = _C.upsample_bilinear2d_forward(input, 4000, 2050, 0, 0.0, 0.0)
    grad = _C.upsample_bilinear2d_backward(output, 2000, 1025, 0, 0.0, 0.0)
    assert output.numel() > 2**31
    for image in (0, 32):
        alone = input[image : image + 1].clone(memory_format=memory_format)
        alone_output = _C.upsample_bilinear2d_forward(alone, 4000, 2050, 0, 0.0, 0.0)
        alone_grad = _C.upsample_bilinear2d_backward(alone_output, 2000, 1025, 0, 0.0, 0.0)
        assert_equal([output[image]], [alone_output[0]])
        # small inputs use another kernel, which sums in another order
        assert_equal([grad[image]], [alone_grad[0]], **TOLERANCE[torch.float16])


@pytest.mark.cuda
def test_cuda_huge_grids() -> None:
    for shape in ((3_000_000, 1, 1, 2), (1, 1, 70_000, 3), (1, 1, 3, 70_000)):
        input = random(*shape, dtype=torch.float32, device="cuda")
        function = partial(upsample_bilinear2d, scale_factor=2)
        expected = partial(reference.upsample_bilinear2d, scale_factor=(2, 2))
        assert_matches_reference(
            function, expected, [input], rtol=1e-3, atol=2e-2
        )  # rounding of positions up to 70,000


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_small_enough_for_the_sanitizer(dtype: torch.dtype) -> None:
    for channels in (3, 8):  # scalar and vector access to channels
        for size in ((34, 16), (33, 15), (5, 70), (20, 800)):  # vectors of columns, single columns, many taps
            for input in layouts(random(2, channels, 17, 8, dtype=dtype, device="cuda")):
                function = partial(upsample_bilinear2d, size=size)
                expected = partial(reference.upsample_bilinear2d, size=size)
                assert_matches_reference(function, expected, [input], **TOLERANCE.get(dtype, {}))

"""layers/explain.py and csrc/*_plan.h: the tables of kernels, without a GPU for all of them."""

import itertools
import re
import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d

from detector.layers import depthwise_conv2d, explain, nms
from detector.layers._depthwise_by_torch import torch_is_faster
from detector.layers.explain import PASSES, SHARED_KIB

GPUS = [f"sm_{capability}" for capability in SHARED_KIB]
SQUARES = ((3, 3), (5, 5), (7, 7))
HALF = torch.float16


def inputs(
    shape=(2, 16, 32, 32), kernel=(3, 3), dtype=torch.float32, channels_last=False, multiplier=1
) -> tuple[Tensor, Tensor]:
    """Input and weight without values."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    input = torch.empty(shape, dtype=dtype, device="meta").contiguous(memory_format=layout)
    return input, torch.empty(shape[1] * multiplier, 1, *kernel, dtype=dtype, device="meta")


def kernels(*args, gpu="sm_90", **kwargs) -> list[str]:
    """Of the three passes."""
    return list(explain(depthwise_conv2d, *args, gpu=gpu, **kwargs).kernels().values())


@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        ({}, {}, ["strips"] * 3),
        ({"kernel": (7, 7), "dtype": HALF}, {"padding": 3}, ["tensor_cores"] * 3),
        ({"kernel": (5, 5), "dtype": HALF}, {"padding": 2}, ["tensor_cores"] * 3),
        ({"kernel": (5, 5), "dtype": HALF, "shape": (2, 16, 24, 24)}, {"padding": 2},
         ["strips", "strips", "tensor_cores"]),
        ({"kernel": (7, 7), "dtype": HALF}, {"padding": 2}, ["strips"] * 3),
        ({"kernel": (5, 5)}, {"stride": 2}, ["strips", "generic", "strips"]),
        ({"kernel": (5, 5)}, {"stride": 2, "padding": 2}, ["strips"] * 3),
        ({"multiplier": 2}, {}, ["strips", "generic", "strips"]),
        ({"dtype": torch.float64}, {}, ["generic"] * 3),
        ({"kernel": (9, 9)}, {}, ["torch"] * 3),
        ({"kernel": (9, 9), "multiplier": 2}, {}, ["generic"] * 3),
        ({"channels_last": True}, {"padding": 1}, ["rows"] * 3),
        ({"channels_last": True}, {"padding": 1, "stride": 2}, ["rows", "stencil", "rows"]),
        ({"channels_last": True, "kernel": (5, 5)}, {"stride": 2}, ["stencil"] * 3),
        ({"channels_last": True, "kernel": (9, 9)}, {}, ["stencil"] * 3),
        ({"channels_last": True}, {"stride": 5}, ["generic"] * 3),
        ({"channels_last": True, "shape": (2, 6, 32, 32)}, {}, ["generic"] * 3),
        ({"channels_last": True, "kernel": (13, 13)}, {}, ["torch"] * 3),
    ],
)  # fmt: skip
def test_depthwise_conv2d_on_a_gpu(arguments: dict, options: dict, expected: list[str]) -> None:
    assert kernels(*inputs(**arguments), **options) == expected


def test_tensor_cores_need_compute_capability_8() -> None:
    for gpu in GPUS:
        expected = "strips" if gpu == "sm_75" else "tensor_cores"
        assert kernels(*inputs(kernel=(7, 7), dtype=HALF), padding=3, gpu=gpu) == [expected] * 3


def test_what_runs_fits_on_every_gpu_and_nothing_faster_does() -> None:
    shapes = [(2, 16, 32, 32), (1, 6, 9, 40), (3, 64, 7, 7)]
    kinds = itertools.product(
        shapes, [*SQUARES, (9, 9), (2, 5)], (HALF, torch.float32, torch.float64), (False, True), (1, 2)
    )
    for shape, kernel, dtype, channels_last, multiplier in kinds:
        arguments = inputs(shape, kernel, dtype, channels_last, multiplier)
        for stride, dilation, gpu in itertools.product((1, 2, 5), (1, 2), ("sm_75", "sm_90")):
            options = {"stride": stride, "dilation": dilation, "padding": (kernel[0] * 2, kernel[1] * 2)}
            for candidates in explain(depthwise_conv2d, *arguments, gpu=gpu, **options).passes.values():
                first = next(i for i, candidate in enumerate(candidates) if candidate.fits)
                assert [candidate.runs for candidate in candidates].index(True) == first
                assert candidates[-1].name == "generic"


@pytest.mark.parametrize("gpu", GPUS[1:])
def test_launches_stay_within_the_limits_of_every_gpu(gpu: str) -> None:
    """Of the kernels for tensor cores: 1,024 threads a block, 65,535 blocks in y and z, its shared memory."""
    most = 1024 * SHARED_KIB[int(gpu.removeprefix("sm_"))]
    used = set()
    for height, width, kernel, batch in itertools.product(
        (32, 33, 130, 4000, 16000), (32, 136, 1000, 16000), (5, 7), (1, 8, 10**5)
    ):
        if batch * height * width > 2**31:
            continue
        input, weight = inputs((batch, 8, height, width), (kernel, kernel), HALF)
        passes = explain(depthwise_conv2d, input, weight, padding=kernel // 2, gpu=gpu).passes
        for candidates in passes.values():
            (launch,) = [c.launch for c in candidates if c.name == "tensor_cores"]
            if launch is None:  # too large, or too small for tiles
                continue
            channels, tiles, groups = launch.grid
            rows = launch.threads // 32 * 16
            assert 32 <= launch.threads <= 256
            assert channels == 8
            assert 1 <= tiles <= 65535
            assert 1 <= groups <= min(batch, 65535)
            assert tiles * rows * 128 >= height * width  # they cover a plane
            assert 0 < launch.shared <= most
            used.add(launch.threads)
    assert {32 * 8, 32 * 2} <= used


def test_torch_computes_just_what_only_the_generic_kernel_would() -> None:
    """In half precision and float32, with one filter for each channel; the two rules are kept apart because
    torch.compile has to read one of them."""
    for kernel, stride, dilation, channels_last in itertools.product(
        (*SQUARES, (9, 9), (10, 9), (2, 5), (3, 5)), (1, 2, 3), (1, 2), (False, True)
    ):
        input, weight = inputs((2, 16, 40, 40), kernel, channels_last=channels_last)
        pairs = ((stride, stride), (kernel[0] // 2, kernel[1] // 2), (dilation, dilation))
        by_torch = torch_is_faster(input, weight, *pairs)
        passes = explain(depthwise_conv2d, input, weight, None, *pairs, gpu="sm_90").passes
        ours = [next(c.name for c in passes["forward"] if c.fits and c.name != "torch")]
        assert (ours == ["generic"]) == by_torch, (kernel, pairs, channels_last)


def test_on_a_cpu() -> None:
    x, weight = torch.rand(1, 4, 9, 9), torch.rand(4, 1, 3, 3)
    assert explain(depthwise_conv2d, x, weight).kernels() == dict.fromkeys(PASSES, "planes")
    last = x.contiguous(memory_format=torch.channels_last)
    explanation = explain("depthwise_conv2d", last, weight, padding=1)
    assert explanation.kernels() == dict.fromkeys(PASSES, "pixels")
    assert re.search(
        r"on cpu\n  forward +planes +does not fit +takes contiguous.*\n.* pixels +runs", str(explanation)
    )
    sparse = explain(depthwise_conv2d, x, weight, padding=4000, stride=1000)
    assert sparse.kernels() == dict.fromkeys(PASSES, "pixels")


def test_errors() -> None:
    x, weight = inputs()
    with pytest.raises(ValueError, match=r"op is nms, expected depthwise_conv2d"):
        explain(nms, x, x, 0.5)
    for gpu in ("sm_70", "H100", "cpu", "sm_86a"):
        with pytest.raises(ValueError, match=f"gpu is '{gpu}', expected one of sm_75, "):
            explain(depthwise_conv2d, x, weight, gpu=gpu)
    with pytest.raises(ValueError, match=r"input is on meta, expected e\.g\. gpu='sm_86'"):
        explain(depthwise_conv2d, x, weight)
    with pytest.raises(
        RuntimeError, match=r"depthwise_conv2d: the kernel spans 40 rows, expected at most the 32"
    ):
        explain(depthwise_conv2d, x, torch.empty(16, 1, 40, 3, device="meta"), gpu="sm_90")
    with pytest.raises(RuntimeError, match="depthwise_conv2d: input has shape"):
        explain(depthwise_conv2d, x[0], weight, gpu="sm_90")


def outputs(x: Tensor, weight: Tensor, padding: int, stride: int) -> list[Tensor]:
    """The results of the three ops of depthwise_conv2d, which torch's convolution does not replace."""
    sizes = ([stride] * 2, [padding] * 2, [1, 1])
    output = torch.ops.detector.depthwise_conv2d_forward(x, weight, None, *sizes)
    grad = torch.ones_like(output)
    return [
        output,
        torch.ops.detector.depthwise_conv2d_grad_input(grad, weight, x.shape[1], x.shape[2:], *sizes),
        torch.ops.detector.depthwise_conv2d_grad_weight(x, grad, weight.shape[2:], *sizes),
    ]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, HALF, torch.bfloat16])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1), (7, 1), (5, 2)])
def test_every_kernel_that_fits_computes_the_same(
    kernel: int, stride: int, dtype: torch.dtype, channels_last: bool, device, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(2, 16, 32, 40, generator=draw).to(device, dtype, memory_format=layout)
    weight = torch.rand(16, 1, kernel, kernel, generator=draw).to(device, dtype)
    padding = kernel // 2

    exact = [t.detach().double().requires_grad_() for t in (x, weight)]
    output = conv2d(*exact, padding=padding, stride=stride, groups=16)
    expected = [output, *torch.autograd.grad(output.sum(), exact)]
    options = {"padding": padding, "stride": stride}
    forced = set()
    passes = explain(depthwise_conv2d, x, weight, **options).passes
    for number, (key, candidates) in enumerate(passes.items()):
        for candidate in candidates:
            if not candidate.fits or candidate.name == "torch":
                continue
            monkeypatch.setenv("DETECTOR_KERNEL", f"nms.scan,depthwise_conv2d.{candidate.name}")
            assert explain(depthwise_conv2d, x, weight, **options).kernels()[key] == candidate.name
            found = outputs(x, weight, padding, stride)[number]
            tolerance = 2 * torch.finfo(dtype).eps if dtype != torch.float32 else 1e-5
            torch.testing.assert_close(found.double(), expected[number].detach(), rtol=tolerance, atol=1e-5)
            forced.add(candidate.name)
    assert forced >= ({"generic"} if device.type == "cuda" else {"pixels"})


def test_kernels_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETECTOR_WITHOUT", "depthwise_conv2d.tensor_cores,nms.scan,depthwise_conv2d.rows")
    assert kernels(*inputs(kernel=(7, 7), dtype=HALF), padding=3) == ["strips"] * 3
    assert kernels(*inputs(channels_last=True)) == ["stencil"] * 3
    monkeypatch.setenv("DETECTOR_WITHOUT", "depthwise_conv2d.planes,depthwise_conv2d.pixels")
    with pytest.raises(RuntimeError, match="expected it to leave a kernel that takes this problem"):
        depthwise_conv2d(torch.rand(1, 2, 5, 5), torch.rand(2, 1, 3, 3))


def test_names_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "DETECTOR_WITHOUT", "depthwise_conv2d.strip,depthwise_conv2d.strips2,strips,conv2d.strips"
    )
    assert kernels(*inputs()) == ["strips"] * 3


def test_the_tables_of_the_readmes_are_those_that_choose() -> None:
    script = runpy.run_path(str(Path(__file__).parents[2] / "docs/make/kernel_tables.py"))
    for path, text in script["pages"]().items():
        assert path.read_text() == text, "run python docs/make/kernel_tables.py"

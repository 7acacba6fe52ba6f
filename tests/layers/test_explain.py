"""layers/explain.py and csrc/*_plan.h: the tables of kernels, without a GPU for all of them."""

import itertools
import re
import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d

from detector import layers
from detector.layers import depthwise_conv2d, explain
from detector.layers._depthwise_by_torch import torch_is_faster
from detector.layers.explain import GPUS as KNOWN
from detector.layers.explain import OPS, PASSES, Candidate

GPUS = [f"sm_{capability}" for capability in KNOWN]
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
    most = 1024 * KNOWN[int(gpu.removeprefix("sm_"))].shared_of_block
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
    with pytest.raises(ValueError, match=r"op is conv2d, expected one of depthwise_conv2d, roi_align, "):
        explain(conv2d, x, x)
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


# ---- the other ops ----

FLOAT, DOUBLE = torch.float32, torch.float64


def meta(*shape: int, dtype: torch.dtype = FLOAT, channels_last: bool = False) -> Tensor:
    tensor = torch.empty(shape, dtype=dtype, device="meta")
    return tensor.contiguous(memory_format=torch.channels_last) if channels_last else tensor


def proposals(method: str, images: int, number: int) -> dict[str, object]:
    """The arguments of proposal_clusters for so many images with so many proposals each."""
    rows = images * number
    return {
        "boxes": meta(rows, 4), "scores": meta(rows, 20), "image_labels": meta(images, 20),
        "counts": torch.full((images,), number), "method": method,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("op", "arguments", "gpu", "expected"),
    [
        ("roi_align", (meta(1, 512, 75, 100), meta(2000, 5), 7), "sm_90", ["staged_16", "vectors", "count"]),
        ("roi_align", (meta(1, 512, 75, 100), meta(2000, 5), 7), "sm_86", ["staged_8", "vectors", "count"]),
        ("roi_align", (meta(1, 512, 150, 100), meta(2000, 5), 7), "sm_86", ["direct", "vectors", "count"]),
        ("roi_align", (meta(1, 511, 400, 400), meta(2000, 5), 7), "sm_90", ["direct", "single", "count"]),
        ("roi_align", (meta(1, 6, 75, 100, dtype=DOUBLE), meta(9, 5), 7), "sm_90",
         ["staged_16", "vectors", "count"]),
        ("roi_align", (meta(1, 6, 170, 170, dtype=DOUBLE), meta(9, 5), 7), "sm_90",
         ["staged_8", "vectors", "count"]),
        ("roi_align", (meta(2, 256, 200, 267, dtype=HALF), meta(9, 5), 7), "sm_90",
         ["staged_4", "vectors", "count"]),
        ("roi_align", (meta(64, 8, 75, 100), meta(9000, 5), 7), "sm_90", ["staged_16", "vectors", "sort"]),
        ("roi_pool", (meta(1, 512, 75, 100), meta(2000, 5), 7), "sm_90",
         ["windows_4", "exact_sums", "count"]),
        ("roi_pool", (meta(1, 512, 75, 100), meta(2000, 5), 7), "sm_75",
         ["windows_1", "exact_sums", "count"]),
        ("roi_pool", (meta(1, 512, 75, 100, dtype=HALF), meta(9, 5), 7), "sm_86",
         ["windows_2", "exact_sums", "count"]),
        ("roi_pool", (meta(1, 512, 20, 20), meta(2000, 5), 7), "sm_90", ["staged_16", "exact_sums", "count"]),
        ("roi_pool", (meta(1, 512, 75, 100, dtype=DOUBLE), meta(9, 5), 7), "sm_90",
         ["staged_16", "exact_sums", "count"]),
        ("nms", (meta(4096, 4), meta(4096), 0.5), "sm_90", ["rank", "scan"]),
        ("nms", (meta(4097, 4), meta(4097), 0.5), "sm_90", ["sort", "chunks"]),
        ("batched_nms", (meta(90, 4), meta(90), meta(90), 0.5), "sm_90", ["rank", "chunks"]),
        ("upsample_bilinear2d", (meta(2, 8, 6, 8), None, 2), "sm_90", ["plane_packs", "doubled"]),
        ("upsample_bilinear2d", (meta(2, 8, 6, 8), (12, 16), None, "asymmetric"), "sm_90", ["plane_packs",
         "planes"]),
        ("upsample_bilinear2d", (meta(2, 8, 6, 8), (9, 9)), "sm_90", ["planes", "planes"]),
        ("upsample_bilinear2d", (meta(2, 8, 6, 8, channels_last=True), 9), "sm_90", ["channel_packs"] * 2),
        ("upsample_bilinear2d", (meta(2, 3, 6, 8, channels_last=True), 9), "sm_90", ["channels"] * 2),
        ("upsample_bilinear2d", (meta(2, 8, 1, 1), (7, 9)), "sm_90", ["planes", "sum"]),
        ("upsample_bilinear2d", (meta(40, 64, 512, 512), None, 2), "sm_90", ["planes_64", "planes"]),
        ("upsample_bilinear2d", (meta(40, 64, 512, 512, channels_last=True), None, 2), "sm_90",
         ["channels"] * 2),
        ("trilinear_interpolate", (meta(9, 8, 16), meta(9, 3)), "sm_90", ["only", "few", "only"]),
        ("trilinear_interpolate", (meta(9, 8, 17), meta(9, 3)), "sm_90", ["only", "rows", "only"]),
        ("quick_gelu", (meta(9),), "sm_90", ["packs", "packs"]),
        ("proposal_clusters", proposals("pcl", 3, 2000), "sm_90", ["team_8"]),
        ("proposal_clusters", proposals("mist", 17, 2000), "sm_90", ["team_4"]),
        ("proposal_clusters", proposals("pcl", 33, 2000), "sm_90", ["team_4"]),
        ("proposal_clusters", proposals("pcl", 34, 2000), "sm_90", ["one_block"]),
        ("proposal_clusters", proposals("oicr", 3, 2000), "sm_90", ["one_block"]),
        ("proposal_clusters", proposals("pcl", 3, 2000), "sm_89", ["one_block"]),
        ("soft_nms", (meta(9, 4), meta(9)), "sm_90", ["only"]),
    ],
)  # fmt: skip
def test_other_ops_on_a_gpu(
    op: str, arguments: tuple | dict[str, object], gpu: str, expected: list[str]
) -> None:
    named = arguments if isinstance(arguments, dict) else {}
    found = explain(op, *(() if named else arguments), gpu=gpu, **named)
    assert list(found.kernels().values()) == expected


def test_every_op_can_be_asked_about() -> None:
    assert set(OPS) == {
        name
        for name, value in vars(layers).items()
        if callable(value)
        and getattr(value, "__module__", "").startswith("detector.layers.")
        and not isinstance(value, type)
        and name != "explain"
    }
    image, boxes, scores = torch.rand(1, 3, 9, 9), torch.rand(4, 5), torch.rand(4)
    assert explain(layers.roi_align, image, [boxes[:, :4]], 2).kernels() == {
        "forward": "cpu",
        "backward": "cpu",
        "order": "cpu",
    }
    assert explain(layers.nms_rotated, boxes, scores, 0.5, gpu="sm_75").kernels() == {"forward": "only"}
    for op, arguments in (("roi_align", (image[0], boxes, 2)), ("roi_pool", (image[0], boxes, 2))):
        with pytest.raises(RuntimeError, match=f"{op}: input has shape"):
            explain(op, *arguments, gpu="sm_90")
    with pytest.raises(RuntimeError, match="roi_align: output_size is"):
        explain("roi_align", image, boxes, 0, gpu="sm_90")
    with pytest.raises(RuntimeError, match="upsample_bilinear2d: images of 9 x 9 and 0 x 5 pixels"):
        explain("upsample_bilinear2d", image, (0, 5), gpu="sm_90")


def assert_can_be_launched(candidates: list[Candidate], gpu: str) -> None:
    most = 1024 * KNOWN[int(gpu.removeprefix("sm_"))].shared_of_block
    assert sum(c.runs for c in candidates) == 1
    assert next(c for c in candidates if c.fits).runs
    for c in candidates:
        if c.launch is not None:
            x, y, z = c.launch.grid
            assert 1 <= x < 2**31, c
            assert 1 <= y <= 65535, c
            assert 1 <= z <= 65535, c
            assert 32 <= c.launch.threads <= 1024, c
            assert 0 <= c.launch.shared <= most, c


@pytest.mark.parametrize("gpu", GPUS)
def test_other_launches_stay_within_the_limits_of_every_gpu(gpu: str) -> None:
    names = set()
    for dtype, channels_last in itertools.product((HALF, FLOAT, DOUBLE), (False, True)):
        for n, c, h, w in (
            (1, 512, 75, 100),
            (3, 5, 9, 13),
            (64, 256, 200, 304),
            (1, 3, 2000, 3000),
            (8, 64, 1, 1),
        ):
            image = meta(n, c, h, w, dtype=dtype, channels_last=channels_last)
            calls = [(op, (image, meta(number, 5), size)) for op in ("roi_align", "roi_pool")
                     for number in (1, 10**5) for size in (1, 7, (3, 40))]  # fmt: skip
            calls += [("upsample_bilinear2d", (image, None, 2)), ("upsample_bilinear2d", (image, (33, 64)))]
            calls += [
                ("quick_gelu", (image,)),
                ("trilinear_interpolate", (meta(n * h, 8, c, dtype=dtype), meta(n * h, 3))),
            ]
            for op, arguments in calls:
                for candidates in explain(op, *arguments, gpu=gpu).passes.values():
                    assert_can_be_launched(candidates, gpu)
                    names |= {(op, c.name) for c in candidates if c.runs}
    for number in (1, 64, 4096, 4097, 2**31 - 1):
        boxes, scores = meta(number, 4), meta(number)
        for op, arguments in (("nms", ()), ("batched_nms", (scores,))):
            for candidates in explain(op, boxes, scores, *arguments, 0.5, gpu=gpu).passes.values():
                assert_can_be_launched(candidates, gpu)
                names |= {(op, c.name) for c in candidates if c.runs}
    for method, images, number in itertools.product(("pcl", "mist", "oicr"), (1, 40), (1, 2000, 65_535)):
        (candidates,) = explain(
            "proposal_clusters", **proposals(method, images, number), gpu=gpu
        ).passes.values()
        assert_can_be_launched(candidates, gpu)
        names |= {("proposal_clusters", c.name) for c in candidates if c.runs}
    assert len(names) >= 20  # most kernels were among them


def run_with_gradients(op: str, inputs: list[Tensor], options: dict) -> list[Tensor]:
    """Outputs, and the gradients of those inputs that require one."""
    leaves = [t.detach().requires_grad_(t.requires_grad) for t in inputs]
    outputs = getattr(layers, op)(*leaves, **options)
    outputs = list(outputs) if isinstance(outputs, tuple) else [outputs]
    wanted = [t for t in leaves if t.requires_grad]
    if not wanted:
        return outputs
    draw = torch.Generator().manual_seed(5)
    upstream = torch.rand(outputs[0].shape, generator=draw).to(outputs[0])
    return [*outputs, *torch.autograd.grad(outputs[0], wanted, upstream)]


def images(dtype: torch.dtype, *shape: int, channels_last: bool = False) -> Tensor:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    tensor = torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    return tensor.contiguous(memory_format=layout).requires_grad_()


def rois(number: int, count: int = 2) -> Tensor:
    draw = torch.rand(number, 5, generator=torch.Generator().manual_seed(1)) * 40
    return torch.cat([(draw[:, :1] * 97).floor() % count, draw[:, 1:3], draw[:, 1:3] + draw[:, 3:]], dim=1)


def forced_cases(dtype: torch.dtype) -> list[tuple[str, list[Tensor], dict]]:
    wide = DOUBLE if dtype == DOUBLE else FLOAT
    boxes, scores = rois(300)[:, 1:].to(wide), rois(300)[:, 1].to(wide)
    return [
        *(
            (op, [images(dtype, 2, c, 30, 45, channels_last=last), rois(200).to(wide)], {"output_size": size})
            for op in ("roi_align", "roi_pool") for c, last, size in ((8, False, 4), (7, True, 7))
        ),
        *(
            ("upsample_bilinear2d", [images(dtype, *shape, channels_last=last)], options)
            for shape, last, options in (
                ((2, 8, 6, 8), False, {"scale_factor": 2}), ((2, 8, 6, 8), True, {"scale_factor": 2}),
                ((2, 3, 9, 7), True, {"size": (5, 20)}), ((2, 3, 1, 1), False, {"size": (50, 40)}),
            )
        ),
        ("trilinear_interpolate", [images(dtype, 40, 8, 4), images(wide, 40, 3)], {}),
        ("quick_gelu", [images(dtype, 1001)], {}),
        ("nms", [boxes, scores], {"iou_threshold": 0.3}),
        ("batched_nms", [boxes, scores, (scores * 9).long() % 3], {"iou_threshold": 0.3}),
        ("proposal_clusters", [boxes, torch.stack([scores, scores.flip(0)], 1).sigmoid(), torch.ones(2, 2),
                               torch.tensor([170, 130])], {"method": "pcl"}),
    ]  # fmt: skip


def test_the_cases_below_fit_every_kernel() -> None:
    """And run on the CPU."""
    fits: dict[str, bool] = {}
    for dtype in (HALF, DOUBLE):
        for op, inputs, options in forced_cases(dtype):
            run_with_gradients(op, inputs, options)
            for candidates in explain(op, *inputs, **options, gpu="sm_90").passes.values():
                for c in candidates:
                    name = f"{op}.{c.name}"
                    fits[name] = fits.get(name, False) or c.fits
    assert [name for name, one_fits in fits.items() if not one_fits] == ["batched_nms.scan"]


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16, FLOAT, DOUBLE])
def test_every_kernel_of_the_other_ops_computes_what_the_cpu_does(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    tolerance = {HALF: 2e-3, torch.bfloat16: 2e-2, FLOAT: 1e-5, DOUBLE: 1e-12}[dtype]
    forced = set()
    for op, inputs, options in forced_cases(dtype):
        expected = run_with_gradients(op, inputs, options)
        on_gpu = [t.detach().cuda().requires_grad_(t.requires_grad) for t in inputs]
        name = "nms" if op == "batched_nms" else op
        for key, candidates in explain(op, *on_gpu, **options).passes.items():
            for c in candidates:
                if not c.fits or c.name == "only":
                    continue
                monkeypatch.setenv("DETECTOR_KERNEL", f"{name}.{c.name}")
                runs = explain(op, *on_gpu, **options).kernels()
                assert runs[key] == c.name
                found = run_with_gradients(op, on_gpu, options)
                torch.testing.assert_close(
                    [t.cpu() for t in found],
                    expected,
                    rtol=tolerance,
                    atol=tolerance,
                    msg=lambda m, o=op, c=c: f"{o}.{c.name}: {m}",
                )
                forced.add(f"{name}.{c.name}")
                monkeypatch.delenv("DETECTOR_KERNEL")
    assert len(forced) >= 20


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

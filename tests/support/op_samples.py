"""Every op with its test inputs, in the manner of torch's OpInfo; tests/layers/test_contract.py reads them.

A new op is a row of OPS, and an entry of :func:`op_arguments` for each of its registered functions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from cluster_cases import make_case as make_clusters
from cluster_cases import several_streams
from nms_cases import make_set as make_nms
from nms_cases import mask_at_half
from op_contract import Function, Inputs, random
from pcl_loss_cases import differentiable
from pcl_loss_cases import make_case as make_pcl
from roi_cases import features
from roi_cases import make_boxes as make_rois
from torch import Tensor

from detector import _C, layers

# ---- inputs of the ops that have no file of cases ----


class Convolution(NamedTuple):
    """Sizes and options of a depthwise convolution."""

    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    batch: int = 2
    channels: int = 8
    multiplier: int = 1
    size: tuple[int, int] = (16, 24)

    def function(self) -> partial:
        return partial(
            layers.depthwise_conv2d, stride=self.stride, padding=self.padding, dilation=self.dilation
        )

    def reference(self) -> partial:
        sizes = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        return partial(torch.nn.functional.conv2d, **sizes, groups=self.channels)

    def inputs(self, device="cpu", dtype=torch.float64, channels_last=False, seed=0) -> list[Tensor]:
        """input, weight, bias"""
        input = random(self.batch, self.channels, *self.size, dtype=dtype, device=device, seed=seed)
        if channels_last:
            input = input.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
        out_channels = self.channels * self.multiplier
        weight = random(out_channels, 1, *self.kernel, dtype=dtype, device=device, seed=seed + 1)
        return [input, weight, random(out_channels, dtype=dtype, device=device, seed=seed + 2)]


def make_lltm(
    rows: int = 3, inputs: int = 5, state: int = 7, steps: int | None = None,
    dtype=torch.float64, device="cpu", seed: int = 0,
) -> list[Tensor]:  # fmt: skip
    """input, weight, bias, h, c"""
    shapes = [(rows, inputs), (3 * state, state + inputs), (3 * state,), (rows, state), (rows, state)]
    if steps is not None:
        shapes[0] = (steps, *shapes[0])
    tensors = [random(*shape, seed=seed + i, requires_grad=False) for i, shape in enumerate(shapes)]
    tensors[1] /= (state + inputs) ** 0.5
    return [tensor.to(device, dtype).requires_grad_() for tensor in tensors]


def make_trilinear(
    num_points: int = 11, num_channels: int = 12, dtype=torch.float64, device="cpu", seed: int = 0
) -> list[Tensor]:
    """Features, and points inside and outside of the cell."""
    feats = random(num_points, 8, num_channels, dtype=dtype, device=device, seed=seed)
    return [feats, random(num_points, 3, dtype=dtype, device=device, seed=seed + 1)]


def make_rotated_rois(
    number: int, images: int = 2, size: tuple[int, int] = (9, 13), seed: int = 0, **options
) -> Tensor:
    """Boxes (R, 6) inside, across the border and outside of features of `size`, some empty or huge."""
    generator = torch.Generator().manual_seed(seed)
    draw = partial(torch.rand, number, generator=generator, dtype=torch.float64)
    image = torch.randint(0, max(images, 1), (number,), generator=generator)
    x, y = (draw() * 2 - 0.5) * size[1], (draw() * 2 - 0.5) * size[0]
    width, height, angle = draw() * size[1], draw() * size[0], draw() * 720 - 360
    width[::7], height[::5] = 0, 0
    width[3::8] *= 9
    return torch.stack([image, x, y, width, height, angle], dim=1).to(**options)


def make_rotated_nms(number: int, seed: int = 0, **options) -> tuple[Tensor, Tensor]:
    """Boxes (N, 5) of which many overlap, some without area, and scores with ties."""
    generator = torch.Generator().manual_seed(seed)
    boxes = torch.rand(number, 5, generator=generator, dtype=torch.float64)
    boxes *= torch.tensor([100, 60, 60, 30, 720], dtype=torch.float64)
    boxes[::11, 2] = 0
    scores = torch.rand(number, generator=generator, dtype=torch.float64).mul(50).round() / 50
    return boxes.to(**options), scores.to(**options)


def make_soft_nms(number: int, seed: int = 0, **options) -> tuple[Tensor, Tensor]:
    """Boxes (N, 4) of which many overlap, some without area or repeated, and scores with ties."""
    generator = torch.Generator().manual_seed(seed)
    corner, size = torch.rand(2, number, 2, generator=generator, dtype=torch.float64) * 50
    boxes = torch.cat([corner, corner + size], dim=1)
    boxes[::9, 2] = boxes[::9, 0]
    boxes[1::5] = boxes[: len(boxes[1::5])]
    scores = torch.rand(number, generator=generator, dtype=torch.float64).mul(20).round() / 20
    return boxes.to(**options), scores.to(**options)


# ---- the ops as functions of tensors ----

Make = Callable[..., Inputs]  # of a dtype and a device
OFF_BY_ROUNDING = {"rtol": 1e-12, "atol": 1e-12}  # sums in another order


@dataclass(frozen=True)
class Op:
    """An op with all options bound, as a function of tensors alone.

    Args:
        few: so few numbers that each derivative can be computed from differences.
        others: tensors of other sizes.
        many: work for several threads.
        threads: the same, if `many` cannot be computed to the same bits by any number of threads.
        layout: tolerance of results for inputs with other strides, by dtype.
        compiled: tolerance of results under torch.compile, where gradients may arrive in another layout.
        derivatives: how many there are.
        keeps_dtype: autocast changes neither the dtype nor the results.
        open_size: how many numbers there are depends on values.
        export: whether all sizes stay open under torch.export.
    """

    name: str
    function: Function
    few: Make
    others: Make
    many: Make
    threads: Make | None = None
    layout: tuple[tuple[torch.dtype, dict], ...] = ((torch.float64, {}),)
    compiled: dict = field(default_factory=dict)
    derivatives: int = 0
    keeps_dtype: bool = False
    open_size: bool = False
    export: bool = True

    def __str__(self) -> str:
        return self.name


def _cast(make: Callable[[], Inputs], wide: bool = False) -> Make:
    """The floating-point tensors in another dtype; `wide`: the first, boxes, in at least float32."""

    def cast(dtype=torch.float64, device="cpu") -> Inputs:
        def moved(t: Tensor | None) -> Tensor | None:
            if t is None:
                return None
            changed = t.detach().to(device, dtype if t.is_floating_point() else None)
            return changed.requires_grad_(t.requires_grad)

        inputs = make()
        cast_inputs = [moved(tensor) for tensor in inputs]
        if wide and dtype.itemsize < 4:
            cast_inputs[0] = inputs[0].to(device, torch.float32)
        return cast_inputs

    return cast


def _op(name: str, function: Function, few: Callable, others: Callable, many: Callable, **options) -> Op:
    cast = partial(_cast, wide=name.startswith("proposal_clusters"))
    if "threads" in options:
        options["threads"] = cast(options["threads"])
    return Op(name, function, cast(few), cast(others), cast(many), **options)


def _exact_products() -> Inputs:
    """Weights of 0 and 1 make torch's products exact: threads can change the results of the kernel alone."""
    inputs = make_lltm(700, 1, 64)
    inputs[1] = torch.eye(3 * 64, 65).requires_grad_(False)
    return inputs


def _lltm(name: str, steps: int | None, **options) -> Op:
    sizes = [(2, 3, 4), (3, 5, 6), (16, 32, 128)]
    few, others, many = (partial(make_lltm, *each, steps) for each in sizes)
    layout = ((torch.float64, OFF_BY_ROUNDING),)
    return _op(name, getattr(layers, name), few, others, many, layout=layout, derivatives=1, **options)


def _regions(name: str, pool: Callable, boxes: Callable, channels_last: bool = False, **options) -> Op:
    """An op on features and boxes."""

    def inputs(*shape: int, number: int, seed: int = 0) -> Inputs:
        input = features(*shape, channels_last=channels_last)
        return [input, boxes(number, shape[0], (2 * shape[2], 2 * shape[3]), seed=seed)]

    return _op(
        name,
        partial(pool, output_size=(2, 3), spatial_scale=0.5),
        partial(inputs, 2, 2, 4, 5, number=12),
        partial(inputs, 3, 5, 9, 13, number=20),
        partial(inputs, 2, 70, 9, 13, number=300),
        derivatives=2,
        **options,
    )


def _convolution(name: str, case: Convolution, channels_last: bool) -> Op:
    def inputs(*, bias_grad: bool = False, **changes) -> Inputs:
        input, weight, bias = case._replace(**changes).inputs(channels_last=channels_last)
        return [input, weight, bias.requires_grad_(bias_grad)]  # torch's sum, which a compiler may reorder

    return _op(
        name,
        case.function(),
        inputs,
        partial(inputs, batch=3, size=(9, 12)),
        partial(inputs, channels=32, size=(60, 60)),
        layout=((torch.float64, OFF_BY_ROUNDING),),
        derivatives=2,
        export=False,  # for some sizes torch computes it
    )


def _pcl(name: str, *counts: list[int] | None) -> Op:
    rows = [11, 37, 15_000]
    few, others, many = (
        lambda c=c, n=n: differentiable(make_pcl(counts=c, num_rows=n))
        for c, n in zip(counts, rows, strict=True)
    )
    return _op(name, layers.pcl_loss, few, others, many, derivatives=1)


def _clusters(method: str) -> Op:
    def inputs(*counts: int) -> Inputs:
        return several_streams(
            make_clusters(list(counts), boxes="on a grid", scores="few levels", positive=1)
        )

    function = partial(layers.proposal_clusters, method=method)
    return _op(
        f"proposal_clusters, {method}", function, partial(inputs, 5, 9), partial(inputs, 11, 8, 30),
        partial(inputs, 300, 200, 400),
    )  # fmt: skip


def _nms(name: str, function: Function, groups: bool, **options) -> Op:
    def inputs(*arguments, **keywords) -> Inputs:
        return make_nms(*arguments, **keywords)[: 3 if groups else 2]

    makers = partial(inputs, 30), partial(inputs, 300), partial(inputs, 12_000, side=3000)
    return _op(name, function, *makers, keeps_dtype=name != "nms", **options)


def _two(make: Callable, function: Function, name: str, **options) -> Op:
    return _op(name, function, partial(make, 20), partial(make, 31), partial(make, 600), **options)


def _features(*shape: int, **options) -> Inputs:
    return [features(*shape, **options)]


ROI_ALIGN = partial(layers.roi_align, sampling_ratio=2, aligned=True)
OPS = [
    _op(
        "quick_gelu", layers.quick_gelu,
        lambda: [random(2, 3, 2, 5)], lambda: [random(3, 4, 6, 7)], lambda: [random(300_001)],
        layout=((torch.float32, {}), (torch.float16, {})), derivatives=2, keeps_dtype=True,
    ),
    *(
        _op(
            f"upsample_bilinear2d, {name}", partial(layers.upsample_bilinear2d, **options),
            *(partial(_features, *shape, **last) for shape in ((2, 2, 3, 4), (3, 8, 5, 6), (3, 8, 64, 65))),
            layout=((torch.float64, OFF_BY_ROUNDING), (torch.float16, {"rtol": 2e-3, "atol": 2e-3})),
            compiled=OFF_BY_ROUNDING,
            derivatives=2, keeps_dtype=True,
        )
        for name, options, last in [
            ("size", {"size": (7, 9)}, {}),
            ("factor, channels_last", {"scale_factor": (2, 1.7)}, {"channels_last": True}),
        ]
    ),
    _op(
        "trilinear_interpolate", layers.trilinear_interpolate,
        partial(make_trilinear, 4, 5), partial(make_trilinear, 9, 8), partial(make_trilinear, 700, 70),
        layout=((torch.float64, OFF_BY_ROUNDING),), derivatives=2, keeps_dtype=True,
    ),
    _lltm("lltm", None, threads=_exact_products),
    _lltm("lltm_sequence", 2, threads=lambda: [_exact_products()[0][None], *_exact_products()[1:]]),
    _regions("roi_pool", layers.roi_pool, make_rois, keeps_dtype=True),
    _regions("roi_pool, channels_last", layers.roi_pool, make_rois, channels_last=True, keeps_dtype=True),
    _regions("roi_align", ROI_ALIGN, make_rois, keeps_dtype=True),
    _regions("roi_align, channels_last", ROI_ALIGN, make_rois, channels_last=True, keeps_dtype=True),
    _regions("roi_align, adaptive", layers.roi_align, make_rois, keeps_dtype=True),
    _regions("roi_align_rotated", layers.roi_align_rotated, make_rotated_rois),
    _convolution("depthwise_conv2d", Convolution(channels=2, size=(4, 5)), channels_last=False),
    _convolution(
        "depthwise_conv2d, channels_last",
        Convolution((3, 2), (2, 1), (1, 0), (1, 2), channels=2, multiplier=2, size=(5, 6)),
        channels_last=True,
    ),
    _pcl("pcl_loss", None, None, None),
    _pcl("pcl_loss, batch", [4, 0, 7], [11, 26], [5000, 4000, 6000]),
    *(_clusters(method) for method in ("pcl", "oicr", "mist")),
    _nms("nms", partial(layers.nms, iou_threshold=0.5), groups=False, open_size=True),
    _nms("batched_nms", partial(layers.batched_nms, iou_threshold=0.5), groups=True, open_size=True),
    _nms("nms_mask", mask_at_half, groups=True),
    _two(make_rotated_nms, partial(layers.nms_rotated, iou_threshold=0.5), "nms_rotated", open_size=True),
    _two(make_soft_nms, layers.soft_nms, "soft_nms", open_size=True),
]  # fmt: skip


# ---- the registered functions ----

NAMES = sorted(name for name, op in vars(_C).items() if isinstance(op, torch._ops.OpOverloadPacket))

# Boxes, points and the like are wider where the other arguments have half precision.
MIXED_DTYPES = {
    "nms_rotated",
    "pcl_loss_backward",
    "proposal_clusters",
    "selective_search",
    "soft_nms",
    *(name for name in NAMES if name.startswith(("roi_", "trilinear"))),
}


def op_arguments(name: str) -> list[tuple]:
    """Valid arguments of the function `name` of detector._C, on the CPU and in float32: some examples."""
    rows, labels = torch.full((6, 3), 0.2), torch.tensor([1, 0, 2, 0, 1, 2])
    counts, weights, clusters = torch.tensor([4, 2]), torch.full((6,), 0.2), labels - 1
    boxes = torch.tensor([[0.0, 1, 1, 5, 6]]).repeat(6, 1)
    corners, scores = boxes[:, 1:], weights
    images, pooled = torch.rand(2, 3, 7, 8), torch.rand(6, 3, 2, 2)
    rotated = torch.tensor([[0.0, 2, 3, 4, 5, 30]]).repeat(6, 1)
    filters, bias = torch.rand(6, 1, 3, 2), torch.rand(6)
    sizes = ((2, 1), (1, 1), (1, 2))
    small = torch.rand(2, 6, 4, 8)  # output of the convolution
    methods = [(method, 0.4, 5, 0.15, 0.5, 0.1, 0.9, 0.2) for method in range(3)]
    streams = torch.stack([rows, rows.flip(0)])
    upsampled = (9, 9, 0, 0.0, 0.0)
    lltm, steps = ([t.detach() for t in make_lltm(2, 5, 3, number, torch.float32)] for number in (None, 4))
    saved = []
    for inputs in (lltm, steps) if name == "lltm_backward" else ():
        hs, last_c, cs, *rest = _C.lltm_forward(*inputs)
        saved.append((hs, last_c, [last_c if inputs is lltm else cs, *rest], inputs[1:3]))
    last = images.contiguous(memory_format=torch.channels_last)
    feats, points = torch.rand(4, 8, 2), torch.rand(4, 3)
    examples: dict[str, list[tuple]] = {
        "pcl_loss_forward": [
            (rows[:4], labels[:4], weights[:4], clusters[:4], None), (rows, labels, weights, clusters, counts)
        ],
        "pcl_loss_backward": [
            (torch.rand(()), rows[:4], labels[:4], weights[:4], None),
            (torch.rand(2), rows, labels, weights, counts),
        ],
        "proposal_clusters": [(corners, streams, torch.ones(2, 3), counts, *method) for method in methods],
        "selective_search": [([torch.zeros(3, 4, 5, dtype=torch.uint8)], [0, 50, 15], 20, 0, 0)],
        "nms": [(corners, scores, groups, 0.5) for groups in (labels, None)],
        "nms_mask": [(corners, scores, groups, 0.5) for groups in (labels, None)],
        "nms_rotated": [(boxes, groups, 0.5) for groups in (labels, None)],
        "soft_nms": [(corners, scores, torch.tensor([0, 2, 2, 6]), kind, 0.5, 0.1) for kind in (True, False)],
        "quick_gelu_forward": [(rows,), (rows.t(),)],
        "quick_gelu_backward": [(rows, rows), (rows.t(), rows.t())],
        "upsample_bilinear2d_forward": [(input, *upsampled) for input in (images, last)],
        "upsample_bilinear2d_backward": [(input, *upsampled) for input in (images, last)],
        "trilinear_interpolate_forward": [(feats, points)],
        "trilinear_interpolate_backward": [
            (torch.rand(4, 2), points, given, needs) for given in (feats, None) for needs in (True, False)
        ],
        "lltm_forward": [tuple(lltm), tuple(steps)],
        "lltm_backward": [
            arguments
            for hs, c, rest, parameters in saved
            for arguments in (
                (hs, c, *parameters, *rest, *[True] * 4),
                (None, c, *parameters, *rest, False, True, False, True),
                (hs, None, *parameters, *rest, *[False] * 4),
            )
        ],
        "roi_pool_forward": [(images, boxes, 2, 2, 1.0)],
        "roi_pool_backward": [(pooled, torch.zeros_like(pooled).int(), boxes, 2, 7, 8, 1.0)],
        "roi_align_forward": [(images, boxes, 2, 2, 1.0, 2, True, nhwc) for nhwc in (False, True)],
        "roi_align_backward": [(pooled, boxes, 2, 7, 8, 1.0, 2, True, nhwc) for nhwc in (False, True)],
        "roi_align_rotated_forward": [(images, rotated, 2, 2, 1.0, 2)],
        "roi_align_rotated_backward": [(pooled, rotated, 2, 7, 8, 1.0, 2)],
        "depthwise_conv2d_forward": [(images, filters, bias, *sizes), (last, filters, None, *sizes)],
        "depthwise_conv2d_grad_input": [(small, filters, 3, (7, 8), *sizes)],
        "depthwise_conv2d_grad_weight": [
            (images, small, (3, 2), *sizes),
            (last, small.contiguous(memory_format=torch.channels_last), (3, 2), *sizes),
        ],
    }  # fmt: skip
    return examples[name]

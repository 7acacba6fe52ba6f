"""The command `detector export`."""

import logging
import os
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.nn import functional as F

from detector import __version__
from detector.config import Settings
from detector.data.build import build_dataset, build_splits, test_side
from detector.data.images import open_image
from detector.data.large_images import open_image_file
from detector.data.loader import collate
from detector.data.pictures import find_pictures
from detector.evaluation.summary import encode_json
from detector.inference import exported_student, onnx_example
from detector.inference.export import (
    SUFFIXES,
    Network,
    detection_differences,
    largest_difference,
    load_program,
    save_program,
    typical_difference,
)
from detector.inference.exported import INPUTS, LEAST_SIDE, OUTPUTS, ScoresAndBoxes, export_program
from detector.inference.exported_fcos import FCOSNetwork
from detector.inference.load import load, read_run
from detector.inference.predictor import Predictor, WeakPredictor
from detector.inference.quantize import mean_ap, quantize_onnx, spread
from detector.inference.thresholds import find_thresholds
from detector.self_training.build import Student
from detector.self_training.faster_rcnn import PADDED_TO
from detector.self_training.fcos import FCOS
from detector.self_training.networks import Model
from detector.self_training.scoring import detection_limits, score_batch
from detector.structures import Detections
from detector.utils.errors import UserError, counted
from detector.utils.files import file_digest
from detector.utils.outputs import OutputFolder
from detector.utils.progress import duration, progress_bar

logger = logging.getLogger(__name__)

EXAMPLE, PREPROCESS = "example.py", "preprocess.json"
_CALIBRATION, _MEASURED = 100, 500  # images, at most
_DEAR = 1.0  # mAP50


def export(
    weights: Path,
    form: str,
    images: Path | None = None,
    count: int = 20,
    model: Model = "auto",
    int8: bool = False,
) -> Path:
    """Write the network of a run folder or checkpoint to the folder `export` beside the checkpoint.

    Args:
        weights: a run folder or a checkpoint.
        form: a key of `SUFFIXES`.
        images: a folder of pictures to check with; None: those of the test split.
        count: how many of them.
        model: of a run folder, see :func:`detector.load`.
        int8: quantize a student in ONNX, see :func:`quantize_onnx`; its loss of AP is measured, not checked.

    Returns:
        the file.

    Raises:
        UserError: the file gives other figures than the model, and is not kept; or there is nothing to check
            it with.
    """
    if count < 1:
        raise UserError(f"--count is {count}, expected at least 1 picture to check with")
    file, _, cfg = read_run(weights, model=model)
    overrides = {"PRECISION": "float32", "INPUT.TILE": 0}  # the file takes a tile, or a whole picture
    predictor = load(file, "cpu", score_threshold=None, overrides=overrides)
    student = not isinstance(predictor, WeakPredictor)
    if int8 and not (student and form == "onnx"):
        raise UserError("--int8 is for --format onnx and for a student (--model student), which takes images")
    pictures = [read_part(path, cfg.input.tile) for path in find_check_images(cfg, images)[:count]]
    outputs = OutputFolder(file.parent / "export", file_digest(file))
    stem = f"{form}_int8" if int8 else form
    with_example = student and form == "onnx"
    name, about = f"{stem}{SUFFIXES[form]}", f"{stem}.json"
    outputs.check([name, about, *([EXAMPLE, PREPROCESS] if with_example else [])])
    with TemporaryDirectory() as folder:
        unchecked = Path(folder, name)
        print(f"traces the network and converts it to {form}", flush=True)
        began, cpu_began = time.perf_counter(), sum(os.times()[:4])
        if isinstance(predictor, WeakPredictor):
            network = _weak(predictor, cfg, pictures)
        else:
            network = _student(predictor, cfg, pictures)
        shown = find_thresholds(file, predictor.class_names).tolist()
        described = network.about | {"thresholds": dict(zip(predictor.class_names, shown, strict=True))}
        names = {key: described[key] for key in ("inputs", "outputs")}
        save_program(network.program, form, unchecked, **names, metadata=metadata(described))
        seconds = time.perf_counter() - began
        cpu_seconds = sum(os.times()[:4]) - cpu_began  # of compilers too
        checked = f"{counted(len(pictures), 'image', 'images')} and {network.made} made from them"
        print(f"done in {duration(seconds)}; compares it with the model on {checked}", flush=True)
        difference = check(network, load_program(form, unchecked), form, checked)
        cost = quantize_checked(unchecked, cfg) if int8 else {}
        path = outputs.write(name, unchecked.read_bytes())
    figures = cost | {
        "difference": difference,
        "images": len(pictures),
        "made_images": network.made,
        "bytes": path.stat().st_size,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
    }
    described |= {"versions": {"detector": __version__, "torch": torch.__version__}, "format": form}
    outputs.write(about, encode_json(described | {"check": figures}))
    if with_example:
        write_example(outputs, predictor, described["thresholds"])
    agrees = f"{'in float32 ' if int8 else ''}within {difference:.1e} of the model on {checked}"
    print(f"{path}: {figures['bytes'] / 1e6:.2f} MB, {agrees}")
    return path


def write_example(outputs: OutputFolder, predictor: Predictor, thresholds: Mapping[str, float]) -> None:
    """Write example.py and preprocess.json: how other programs feed a student in ONNX, and read its boxes."""
    model = cast(Student, predictor.model)
    transform, limits = model.transform, detection_limits(model)
    content = {
        "inputs": {
            "images": "uint8 (B, 3, height, width), RGB, any sizes, turned as their EXIF orientation says, "
            "padded with zeros at the right and the bottom to the largest of the batch",
            "sizes": "int64 (B, 2): height and width of each image without its padding",
        },
        "within_the_network": {
            "resize": {"shortest_side": transform.min_size[-1], "longest_side": transform.max_size},
            "mean": transform.image_mean,
            "std": transform.image_std,
            "padded_to": PADDED_TO,
        },
        "outputs": {
            "boxes": "float32 (D, 4): x1, y1, x2, y2 in pixels of their image, best first, of all images",
            "scores": "float32 (D,)",
            "labels": "int64 (D,), numbers of classes from 0",
            "image_index": "int64 (D,), which image of the batch a box is in, from 0",
        },
        "classes": predictor.class_names,
        "thresholds": dict(thresholds),  # example.py shows a box whose score is above that of its class
        **limits._asdict(),
    }
    outputs.write(PREPROCESS, encode_json(content))
    outputs.write(EXAMPLE, Path(onnx_example.__file__).read_bytes())


def quantize_checked(path: Path, cfg: Settings) -> dict[str, Any]:
    """Quantize a file of ONNX in its place with training images, and measure what that costs in AP."""
    train_set, test_set = build_splits(cfg)
    paths = spread([train_set.image_path(i) for i in range(len(train_set))], _CALIBRATION)
    whole, count = mean_ap(load_program("onnx", path), test_set, _MEASURED)
    quantize_onnx(path, path, (read_part(path, cfg.input.tile) for path in paths))
    left, _ = mean_ap(load_program("onnx", path), test_set, _MEASURED)
    if not count:
        logger.warning("no test image has boxes: what int8 costs in AP was not measured")
        return {"calibration_images": len(paths), "mAP50": None}
    print(f"int8: mAP50 {left:.1f}, in float32 {whole:.1f}, on {counted(count, 'image', 'images')}")
    if whole - left > _DEAR:
        logger.warning("int8 costs %.1f mAP50: prefer the file without --int8", whole - left)
    return {"calibration_images": len(paths), "mAP50": left, "mAP50_float32": whole, "mAP50_images": count}


def metadata(about: dict[str, Any]) -> dict[str, Any]:
    """What an ONNX file says of itself: `names` as Ultralytics writes them, and all of the JSON beside it."""
    return {"names": dict(enumerate(about["classes"])), "producer": f"detector {__version__}"} | about


class _Exported(NamedTuple):
    """A program and how it is checked."""

    program: ExportedProgram
    difference: Callable[[Network], float]  # how far a network is from the model on the pictures
    tolerance: float
    about: dict[str, Any]  # what comes before and after the network, for callers in other languages
    made: int  # images of the check besides the pictures


def check(network: _Exported, exported: Network, form: str, images: str) -> float:
    """How far an exported network is from the model on its `images`.

    Raises:
        UserError: by more than its tolerance.
    """
    difference = network.difference(exported)
    if not difference <= network.tolerance:
        raise UserError(
            f"{form} gives other figures than the model, by {difference:.2g} where {network.tolerance} is "
            f"allowed, on {images}; it is not kept. Another --format may agree; please report this, with "
            f"your versions of torch ({torch.__version__}) and onnxruntime"
        )
    return difference


def _weak(predictor: WeakPredictor, cfg: Settings, pictures: Sequence[Tensor]) -> _Exported:
    made = made_images(pictures, [(LEAST_SIDE, LEAST_SIDE), (LEAST_SIDE + 1, 200), (97, 50)])
    views = [predictor.views(image) for image in (*pictures, *made)]
    passes = [view.samples[0] for view in views if len(view.proposals)]
    batches = [[sample] for sample in passes] + [passes[:2]]  # images of two sizes, one of them padded
    inputs = [collate(batch).to(predictor.device).inputs for batch in batches if batch]

    def difference(exported: Network) -> float:
        return largest_difference(ScoresAndBoxes(predictor.model), exported, inputs)

    return _Exported(export_program(predictor.model), difference, 1e-5, describe(cfg), len(made))


def _student(predictor: Predictor, cfg: Settings, pictures: Sequence[Tensor]) -> _Exported:
    model = cast(Student, predictor.model)
    limits = detection_limits(model)
    about = {
        "inputs": exported_student.INPUTS,
        "outputs": exported_student.OUTPUTS,
        "classes": cfg.datasets.classes,
        "score_threshold": limits.score_threshold,
        "max_detections": limits.max_detections,
        "shortest_side": model.transform.min_size[-1],  # to which the network resizes an image
        "longest_side": model.transform.max_size,
        "tile": cfg.input.tile,  # 0: none; else the caller cuts larger pictures (docs/large_pictures.md)
        "tile_overlap": cfg.input.tile_overlap,
    }
    sides = model.transform.min_size[-1], model.transform.max_size
    made = made_images(pictures, exported_student.hard_sizes(*sides))

    images = [*pictures, *made]
    # Each alone, and the first and the last ones, of several sizes, together.
    batches = [*([image] for image in images), images[:3], images[-4:]]
    on: dict[str, Any] = {"device": predictor.device, "precision": predictor.precision}
    options: dict[str, Any] = {"floor": limits.score_threshold, "most": limits.max_detections}

    def difference(exported: Network) -> float:
        found = []
        for batch in progress_bar(batches, total=len(batches), desc="compared", unit="batch"):
            boxes, scores, labels, index = exported(*exported_student.pad_images(batch))
            expected = score_batch(model, batch, [""] * len(batch), **on)
            for number, (image, ours) in enumerate(
                zip(batch, map(predictor.detections, expected), strict=True)
            ):
                own = index == number
                pair = ours, Detections("", boxes[own], scores[own], labels[own])
                both = [
                    detection_differences(*sides, side=max(image.shape), **options)
                    for sides in (pair, pair[::-1])
                ]
                found.append((image, torch.cat(both)))
        return typical_difference(found)

    return _Exported(exported_student.export_student(make_network(model)), difference, 1e-4, about, len(made))


def make_network(model: Student) -> exported_student.StudentNetwork:
    """A student as torch.export takes it."""
    return FCOSNetwork(model) if isinstance(model, FCOS) else exported_student.FasterRCNNNetwork(model)


def made_images(pictures: Sequence[Tensor], sizes: Sequence[tuple[int, int]]) -> list[Tensor]:
    """Images (3, H, W) to check with besides pictures, whose sizes may be lucky.

    Some pictures, resized to `sizes`, and a black and a white image of the size of the first.
    """
    first, images = pictures[0], []
    for number, size in enumerate(sizes):
        image = pictures[number % len(pictures)]
        images.append(F.interpolate(image[None].float(), size, mode="bilinear")[0].byte())
    return [*images, torch.zeros_like(first), torch.full_like(first, 255)]


def read_part(path: Path, tile: int) -> Tensor:
    """A picture (3, H, W) uint8; of one that is larger than `tile` pixels, if not 0, the middle tile."""
    if not tile:
        return open_image(path)
    image = open_image_file(path, apply_orientation=True)
    top, left = (max(0, side - tile) // 2 for side in image.shape[1:])
    return image[:, top : top + tile, left : left + tile].contiguous()


def find_check_images(cfg: Settings, folder: Path | None) -> list[Path]:
    """The pictures of a folder or, where none is named, of the config's test split."""
    if folder is not None:
        return list(find_pictures([folder]).values())
    try:
        dataset = build_dataset(cfg, cfg.datasets.test_split)
    except (OSError, UserError) as error:
        raise UserError(f"no images to check with: {error}; --images names a folder of others") from None
    return [dataset.image_path(i) for i in range(len(dataset))]


def describe(cfg: Settings) -> dict[str, Any]:
    """What comes before and after the network of a weak detector: its inputs, test passes and NMS."""
    inputs, test = cfg.input, cfg.test
    return {
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "classes": cfg.datasets.classes,
        "sizes": inputs.test_sizes,
        "side": test_side(cfg.input),
        "max_sizes": [inputs.max_size] * len(inputs.test_sizes),
        "inclusive_rois": inputs.inclusive_rois,
        "flip": inputs.test_flip,
        "least_side": LEAST_SIDE,
        "proposals": vars(cfg.proposals),
        "score_threshold": test.score_threshold,
        "nms_iou": test.nms,
        "max_per_class": test.max_per_class,
        "max_detections": test.max_detections,
    }


def run(options: Namespace) -> None:
    file = export(**vars(options))
    example = file.with_name(EXAMPLE)  # of a student in ONNX
    shown = example if file.suffix == ".onnx" and example.is_file() else "docs/export.md"
    print(f"next: run it, as {shown} shows")

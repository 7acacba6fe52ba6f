"""Write a trained network to a file that runs without the code of its model, and check it."""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from yacs.config import CfgNode

from detector import __version__
from detector.api.loading import load, read_run
from detector.build_data import build_dataset, test_max_sizes, test_side
from detector.data.loader import collate
from detector.data.pictures import find_pictures
from detector.engine.export import SUFFIXES, largest_difference, load_program, save_program
from detector.engine.predictor import WeakPredictor
from detector.evaluation.report import encode_json
from detector.modeling.exported import INPUTS, LEAST_SIDE, OUTPUTS, ScoresAndBoxes, export_program
from detector.utils.errors import UserError
from detector.utils.files import file_digest
from detector.utils.outputs import OutputFolder

logger = logging.getLogger(__name__)

TOLERANCE = 1e-5


def run(weights: Path, form: str, images: Path | None = None, count: int = 20) -> None:
    """Write the network of a run folder or checkpoint to RUN/export.

    Args:
        weights: a run folder or a checkpoint.
        form: a key of `SUFFIXES`.
        images: a folder of pictures to check with; None: those of the test split.
        count: how many of them.

    Raises:
        UserError: the file gives other figures than the model; it is not kept.
    """
    file, _, cfg = read_run(weights)
    predictor = load(weights, "cpu")
    if not isinstance(predictor, WeakPredictor):
        raise UserError(f"{file} is a Faster R-CNN of self-training, which cannot be exported yet")
    paths = find_check_images(cfg, images)
    inputs = list(check_inputs(predictor, paths, count))
    folder = (weights if weights.is_dir() else file.parent) / "export"
    outputs = OutputFolder(folder, file_digest(file))
    name = f"{form}{SUFFIXES[form]}"
    about = f"{form}.json"
    outputs.check([name, about])
    folder.mkdir(parents=True, exist_ok=True)

    unchecked = folder / f".unchecked-{name}"  # it becomes `name` once it has passed the check
    try:
        began, cpu_began = time.perf_counter(), sum(os.times()[:4])
        save_program(export_program(predictor.model), form, unchecked)
        seconds, cpu_seconds = (
            time.perf_counter() - began,
            sum(os.times()[:4]) - cpu_began,
        )  # of compilers too
        exported = load_program(form, unchecked)
        difference = largest_difference(ScoresAndBoxes(predictor.model), exported, inputs)
        if not difference <= TOLERANCE:
            raise UserError(
                f"{form} gives other figures than the model, by {difference:.2g} where {TOLERANCE} "
                f"is allowed, on {len(inputs)} images; it is not kept"
            )
        path = outputs.move_in(unchecked, name)
    finally:
        unchecked.unlink(missing_ok=True)
    figures = {
        "largest_difference": difference,
        "images": len(inputs),
        "bytes": path.stat().st_size,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
    }
    outputs.write(about, encode_json(describe(cfg) | {"format": form, "check": figures}))
    print(f"{path}: {figures['bytes'] / 1e6:.2f} MB in {seconds:.0f} s, ", end="")
    print(f"at most {difference:.1e} from the model on {len(inputs)} images")


def find_check_images(cfg: CfgNode, folder: Path | None) -> list[Path]:
    """The pictures of a folder or, where none is named, of the config's test split."""
    if folder is not None:
        return list(find_pictures([folder]).values())
    try:
        dataset = build_dataset(cfg, cfg.DATASETS.TEST_SPLIT)
    except (FileNotFoundError, ValueError) as error:
        raise UserError(f"no images to check with: {error}; --images names a folder of others") from None
    return [dataset.image_path(i) for i in range(len(dataset))]


def check_inputs(predictor: WeakPredictor, paths: Sequence[Path], count: int) -> Iterator[tuple[Tensor, ...]]:
    """The network's inputs, one image each, from the first test pass of up to `count` pictures."""
    for path in paths[:count]:
        yield collate(predictor.views(path).samples[:1]).to(predictor.device).inputs


def describe(cfg: CfgNode) -> dict:
    """What goes before and after the network, for whoever calls it from elsewhere."""
    inputs, test = cfg.INPUT, cfg.TEST
    return {
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "classes": cfg.DATASETS.CLASSES,
        "sizes": inputs.TEST_SIZES,
        "side": test_side(cfg),
        "max_sizes": test_max_sizes(cfg),
        "inclusive_rois": inputs.INCLUSIVE_ROIS,
        "flip": inputs.TEST_FLIP,
        "least_side": LEAST_SIDE,
        "proposals": {key.lower(): cfg.PROPOSALS[key] for key in ("MODE", "LONGEST_SIDE", "MIN_REGION")},
        "score_threshold": test.SCORE_THRESHOLD,
        "nms_iou": test.NMS,
        "max_per_class": test.MAX_PER_CLASS,
        "max_detections": test.MAX_DETECTIONS,
        "versions": {"detector": __version__, "torch": torch.__version__},
    }

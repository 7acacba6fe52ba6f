"""`detector.load`: from a run folder or a checkpoint to a predictor."""

import logging
from numbers import Real
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from detector.config import Settings, parse_cfg
from detector.config.yaml_files import Overrides
from detector.data.build import build_test_transforms, build_tiling
from detector.data.proposals.search import make_finder
from detector.data.proposals.tiled import TiledSearch
from detector.engine.checkpoint import load_checkpoint
from detector.engine.precision import Precision
from detector.engine.run_folder import check_class_names
from detector.inference.measured import stands_for
from detector.inference.predictor import Predictor, WeakPredictor
from detector.inference.results import ignored_keys, unreliable
from detector.inference.thresholds import ScoreThreshold, describe, find_thresholds
from detector.inference.zoo import find_weights
from detector.modeling.build import build_postprocess
from detector.self_training.build import Student, build_student_postprocess
from detector.self_training.networks import Model, restore_network
from detector.utils.config_files import how_to_make
from detector.utils.distributed import find_device
from detector.utils.errors import UserError, check_path

logger = logging.getLogger(__name__)


def load(
    path: str | Path,
    device: str | torch.device = "auto",
    *,
    score_threshold: ScoreThreshold | None = "auto",
    overrides: Overrides = (),
    model: Model = "auto",
) -> Predictor:
    """A predictor of a trained detector: `detector.load("runs/demo")("picture.jpg")`.

    The file is loaded with weights_only=True. Test passes, proposals, NMS and precision are as the config of
    the run says, so that the scores are those of `detector.evaluate`.

    Args:
        path: a run folder, a checkpoint, or the name of trained weights, "toybox_faster_rcnn"
            (docs/model_zoo.md). Of a run folder with both a weak detector and the Faster R-CNN of
            self-training, the student, the latter is taken unless `detector test` measured the weak one to be
            better on the same ground-truth boxes; the log says which.
        device: "cpu", "cuda", or "auto": cuda where there is one.
        score_threshold: a detection scores more than this, from 0 to 1; "auto": than the threshold of its
            class that `detector test` has chosen for the run (docs/report.md#thresholds), or 0.3; None: than
            TEST.SCORE_THRESHOLD of the config, with which nearly all proposals that NMS leaves are
            detections; of self-training, 0.001.
        overrides: keys of the config to change, as in {"INPUT.TEST_SIZES": [480]}; docs/config.md.
        model: "weak" or "student" of a run folder; "auto": as above.

    Raises:
        FileNotFoundError: there is no such file, or training has not finished.
        UserError: it is no checkpoint of this package, a damaged one, or a hostile one; or an argument is
            not as above.
    """
    check_path("path", path, "a run folder or a checkpoint")
    named = score_threshold is None or score_threshold == "auto"
    if not named and not (isinstance(score_threshold, Real) and 0 <= score_threshold <= 1):
        raise UserError(
            f"score_threshold is {score_threshold!r}, expected a number from 0 to 1, such as 0.3, or 'auto'"
        )
    file, checkpoint, cfg = read_run(path, overrides, model)
    where, thresholds = find_device(device), None
    if score_threshold is not None:
        thresholds = find_thresholds(file, cfg.datasets.classes, score_threshold)
    if score_threshold == "auto":
        logger.info("thresholds  %s", describe(file, cfg.datasets.classes))
        if doubt := unreliable(file):
            logger.warning("%s", doubt)
    network = restore_network(cfg, checkpoint, file, model)
    if ignored := ignored_keys(overrides, isinstance(network, Student)):
        logger.warning("%s", ignored)
    return build_predictor(cfg, network, where, score_threshold=thresholds)


def build_predictor(
    cfg: Settings, model: nn.Module, device: torch.device, *, score_threshold: Tensor | None = None
) -> Predictor:
    """A model on a device with the proposals, test passes, NMS and precision of a config.

    Args:
        score_threshold: (C,), a detection scores more than that of its class; None: TEST.SCORE_THRESHOLD.
    """
    score_threshold = None if score_threshold is None else score_threshold.to(device)
    if isinstance(model, Student):
        return Predictor(
            model.to(device),
            cfg.datasets.classes,
            postprocess=build_student_postprocess(cfg.test, score_threshold),
            precision=Precision(cfg.precision, device),
            tiling=build_tiling(cfg.input),
        )
    find, _ = make_finder(
        cfg.proposals.mode, cfg.proposals.longest_side, cfg.proposals.min_region, cfg.proposals.sides
    )
    tiling = build_tiling(cfg.input)
    return WeakPredictor(
        model.to(device),
        cfg.datasets.classes,
        find=find if tiling is None else TiledSearch(find, tiling),
        transforms=build_test_transforms(cfg.input),
        postprocess=build_postprocess(cfg.test, score_threshold),
        min_size=cfg.proposals.min_size,
        max_count=cfg.proposals.max_count,
        tiling=tiling,
        precision=Precision(cfg.precision, device),
    )


def read_run(
    path: str | Path, overrides: Overrides = (), model: Model = "auto"
) -> tuple[Path, dict[str, Any], Settings]:
    """The checkpoint of a run folder, or of a file: its path, what it holds, and its config."""
    file = find_checkpoint(path, model)
    checkpoint = load_checkpoint(file)
    cfg = parse_cfg(checkpoint["config"], f"the config in {file}", overrides)
    if not cfg.datasets.classes:
        raise UserError(f"{file}: its config names no classes (DATASETS.CLASSES)")
    check_class_names(cfg.datasets.classes, checkpoint, file)
    return file, checkpoint, cfg


def find_checkpoint(path: str | Path, model: Model = "auto") -> Path:
    """The checkpoint that a run folder (:func:`choose_run`), the path of a checkpoint or a name stands for.

    Raises:
        FileNotFoundError: the folder is not a run folder, or its training has not finished.
        UserError: the path is that of a config. As :func:`find_weights`.
    """
    file = choose_run(find_weights(path), model)
    if file.is_dir():
        file = file / "model_final.pt"
        if not file.is_file():
            missing = f"{path} is no run folder: train first, or name another one"
            raise FileNotFoundError(f"checkpoint {file} does not exist; {how_to_make(file, missing)}")
    if file.suffix.lower() in (".yaml", ".yml"):
        raise UserError(
            f"{file} is a config, which holds no weights: pass the run folder that `detector train` wrote "
            "(its OUTPUT_DIR), or a checkpoint, a .pt file"
        )
    return file


def choose_run(path: str | Path, model: Model = "auto") -> Path:
    """The folder of self-training in a run folder if the student stands for it, else the run folder.

    Where there are both a weak detector and a student, the log says which is taken, and why.

    Args:
        path: a run folder; another path is returned as it is.
        model: "weak" or "student", the Faster R-CNN of self-training; "auto": the student if there is one,
            unless the weak detector was measured to be better (:func:`stands_for`).

    Raises:
        FileNotFoundError: there is no student.
        UserError: `model` is none of these.
    """
    if model not in get_args(Model):
        raise UserError(f"model is {model!r}, expected 'auto', 'weak' or 'student'")
    path = Path(path)
    student = path / "self_train"
    if not any((folder / "config.yaml").is_file() for folder in (path, student)):
        return path
    if model == "auto":
        model, why = stands_for(path)
        if why and model == "weak":
            logger.warning("%s", why)
        elif why:
            logger.info("chosen      %s", why)
    if model == "student" and (student / "model_final.pt").is_file():
        return student
    if model == "student" and path.name != student.name:
        raise FileNotFoundError(
            f"{student / 'model_final.pt'} does not exist: run detector self-train {path}"
        )
    return path

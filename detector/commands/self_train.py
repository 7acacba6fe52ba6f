"""Train a student on what a weak detector finds in its training split, and measure it.

    detector self-train runs/demo [--resume]
    detector self-train runs/a --weights runs/a/model_final.pt --weights runs/b/model_final.pt

The student is a Faster R-CNN, or with SELF_TRAIN.DETECTOR fcos an FCOS, which has one stage.
Everything goes to OUTPUT_DIR/self_train: pseudo/, a data set in VOC's layout (with COCO's JSON)
whose boxes are the detector's; log, events and checkpoints as in training; metrics.json beside the
weak detector's. The keys SELF_TRAIN decide. Image labels choose the classes; ground-truth boxes are
read for the metrics alone.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from detector.commands.forecast import announce
from detector.commands.hints import hint_to_predict
from detector.config import load_cfg
from detector.engine.resuming import last_step
from detector.engine.run_folder import hint_at_resume
from detector.inference.measured import print_how_to_measure
from detector.inference.test import run_test
from detector.self_training.self_train import self_train
from detector.utils.command_line import add_verbose_option
from detector.utils.distributed import is_main
from detector.utils.logging import STEP, setup_logging


def add_arguments(parser: ArgumentParser) -> None:
    what = "a checkpoint; default: OUTPUT_DIR/model_final.pt. Repeated: the mean of several weak detectors"
    parser.add_argument("--weights", metavar="FILE", action="append", default=[], help=what)
    parser.add_argument("--resume", action="store_true", help="resume from the folder's newest checkpoint")
    add_verbose_option(parser)


def run(options: Namespace) -> None:
    if options.verbose:
        setup_logging(console=STEP)
    cfg = load_cfg(options.config_file, options.overrides)
    student = Path(cfg.output_dir, "self_train")
    weights = [Path(path) for path in options.weights] or [Path(cfg.output_dir, "model_final.pt")]
    if not (student / "model_final.pt").exists() and all(path.is_file() for path in weights):
        announce(cfg, {"self-train": last_step(student)}, num_weights=len(weights))
    folder = self_train_and_test(options.config_file, options.overrides, options.weights, options.resume)
    print_how_to_measure(folder)
    hint_to_predict(folder)


def self_train_and_test(
    config_file: str, overrides: Sequence[str], weights: Sequence[str], resume: bool
) -> Path:
    """:func:`self_train`, then the test of the student; returns OUTPUT_DIR."""
    folder = self_train(config_file, overrides, weights, resume)
    with hint_at_resume(folder / "self_train"):
        _, metrics = run_test(folder, (), None, "student")
    if is_main() and (figures := metrics.get("pseudo_boxes")):
        print("{count} pseudo boxes: precision {precision:.1f}, recall {recall:.1f}".format(**figures))
    return folder

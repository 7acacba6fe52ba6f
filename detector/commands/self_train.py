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

from detector.commands.hints import words_to_predict
from detector.engine.run_folder import hint_at_resume
from detector.inference.measured import print_how_to_measure
from detector.inference.test import run_test
from detector.self_training.self_train import self_train
from detector.utils.command_line import next_step
from detector.utils.distributed import is_main


def add_arguments(parser: ArgumentParser) -> None:
    what = "a checkpoint; default: OUTPUT_DIR/model_final.pt. Repeated: the mean of several weak detectors"
    parser.add_argument("--weights", metavar="FILE", action="append", default=[], help=what)
    parser.add_argument("--resume", action="store_true", help="resume from the folder's newest checkpoint")


def run(options: Namespace) -> None:
    folder = self_train_and_test(**vars(options))
    print_how_to_measure(folder)
    next_step(*words_to_predict(folder))


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

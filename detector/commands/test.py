"""Measure a trained detector: AP on the test split, CorLoc on the training split.

    detector test runs/demo

Writes metrics.json, detections.npz and pictures/ to the run folder. With other weights, or keys
that change the results, they go to a folder below RUN/tests. Rerun the same command to resume a
test that was killed; under torchrun the processes share the images. AP and CorLoc need images with
ground-truth boxes; the AP of the image-level labels needs none.
"""

from argparse import ArgumentParser, Namespace

from detector.inference.measured import print_how_to_measure, stands_for
from detector.inference.test import run_test
from detector.utils.command_line import add_model_option, model_words, next_step


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--weights", metavar="FILE", help="a checkpoint; default: OUTPUT_DIR/model_final.pt")
    add_model_option(parser)


def run(options: Namespace) -> None:
    folder, _ = run_test(options.config_file, options.overrides, options.weights, options.model)
    print_how_to_measure(folder)
    other = stands_for(folder)[0] == "student"  # the report is about the student unless told otherwise
    next_step("detector", "report", folder, *model_words("weak" if other else "auto"))

"""The command `detector test`."""

from argparse import Namespace

from detector.inference.measured import print_how_to_measure, stands_for
from detector.inference.test import run_test
from detector.utils.command_line import model_words, next_step


def run(options: Namespace) -> None:
    folder, _ = run_test(options.config_file, options.overrides, options.weights, options.model)
    print_how_to_measure(folder)
    other = stands_for(folder)[0] == "student"  # the report is about the student unless told otherwise
    next_step("detector", "report", folder, *model_words("weak" if other else "auto"))

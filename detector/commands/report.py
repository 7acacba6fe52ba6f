"""The command `detector report`."""

from argparse import Namespace

from detector.commands.hints import hint_to_predict
from detector.inference.measured import print_how_to_measure
from detector.reporting.build import write_report
from detector.utils.command_line import model_words


def run(options: Namespace) -> None:
    weights = write_report(**vars(options)).weights
    print_how_to_measure(weights)
    if weights.exists():  # not, if a test of another checkpoint was moved
        hint_to_predict(weights, model_words(options.model))

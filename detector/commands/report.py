"""Write an HTML page about a run: metrics, error types, pictures, training curves and stream
attention.

    detector report runs/demo

RUN is a run folder, trained and tested. The page, report.html in the folder of the detector that it
shows unless --output names another file, is self-contained (docs/report.md).
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from detector.commands.hints import hint_to_predict
from detector.inference.measured import print_how_to_measure
from detector.reporting.build import write_report
from detector.utils.command_line import add_model_option, model_words


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", type=Path, metavar="RUN", help="a run folder, trained and tested")
    add("overrides", nargs="*", default=[], metavar="KEY VALUE", help="config keys to change")
    add("--output", type=Path, metavar="FILE", help="default: RUN/report.html, or RUN/self_train/report.html")
    add_model_option(parser)


def run(options: Namespace) -> None:
    weights = write_report(**vars(options)).weights
    print_how_to_measure(weights)
    if weights.exists():  # not, if a test of another checkpoint was moved
        hint_to_predict(weights, model_words(options.model))

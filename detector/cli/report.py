"""Write an HTML page about a run: metrics, error types, pictures, training curves and stream
attention.

    detector report runs/demo

RUN is a run folder, trained and tested. The page, RUN/report.html unless --output names another
file, is self-contained (docs/report.md).
"""

from collections.abc import Sequence
from pathlib import Path

from detector.utils.command_line import add_model_option, command_parser, next_step, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command_parser("detector report", __doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, trained and tested")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="config keys to change")
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: RUN/report.html")
    add_model_option(parser)
    options = parser.parse_intermixed_args(arguments)

    def run() -> None:
        from detector.api.report import run as report

        report(options.run, options.overrides, options.output, options.model)
        next_step("detector", "predict", "--weights", options.run, "--output", "found", "PICTURES")

    return run_command(run)

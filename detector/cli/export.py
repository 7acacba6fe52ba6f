"""Write a trained network to a file that runs without the code of its model, and check it.

    detector export runs/demo --format onnx

The network takes uint8 images, rois, counts and sizes and gives scores and boxes. docs/export.md
says how to run it and what cannot be exported.
"""

from collections.abc import Sequence
from pathlib import Path

from detector.utils.command_line import command_parser, run_command

FORMATS = ("torch_export", "aot_inductor", "onnx")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command_parser("detector export", __doc__)
    add = parser.add_argument
    add("weights", type=Path, metavar="RUN", help="a run folder or a checkpoint")
    add("--format", required=True, choices=FORMATS, help="what to write")
    add("--images", type=Path, metavar="FOLDER", help="pictures to check with (default: the test split)")
    add("--count", type=int, default=20, help="how many of them (default: 20)")
    options = parser.parse_args(arguments)

    def run() -> None:
        from detector.api.exporting import run as export

        export(options.weights, options.format, options.images, options.count)
        print("next: run it, as docs/export.md shows")

    return run_command(run)

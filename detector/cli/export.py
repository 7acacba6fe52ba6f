"""Write a trained network to a file that runs without the code of its model, and check it.

    detector export runs/demo --format onnx

The Faster R-CNN of self-training takes an image and gives boxes, scores and labels after NMS; a
weak detector takes images and proposals and gives their scores and boxes (docs/export.md).
"""

from collections.abc import Sequence
from pathlib import Path

from detector.utils.command_line import add_model_option, command_parser, run_command

FORMATS = ("torch_export", "aot_inductor", "onnx")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command_parser("detector export", __doc__)
    add = parser.add_argument
    add("weights", type=Path, metavar="RUN", help="a run folder or a checkpoint")
    add("--format", required=True, choices=FORMATS, help="what to write")
    add("--images", type=Path, metavar="FOLDER", help="pictures to check with (default: the test split)")
    add("--count", type=int, default=20, help="how many of them (default: 20)")
    add_model_option(parser)
    options = parser.parse_args(arguments)

    def run() -> None:
        from detector.api.exporting import run as export

        export(options.weights, options.format, options.images, options.count, options.model)
        print("next: run it, as docs/export.md shows")

    return run_command(run)

"""Find objects in your own images: files, folders and videos.

    detector predict --weights runs/demo --output found pictures/ more.jpg clip.mp4

Writes pictures with boxes or annotations; replaces only its own files (docs/predict.md).
"""

from collections.abc import Sequence
from pathlib import Path

from detector.utils.command_line import add_model_option, command_parser, next_step, run_command

FORMATS = ("pictures", "coco", "voc")
SCORE_THRESHOLD = 0.3  # as of detector.load


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command_parser("detector predict", __doc__)
    add = parser.add_argument
    add("paths", nargs="+", type=Path, metavar="PATH", help="an image, a folder, or a video")
    add("--weights", required=True, metavar="RUN", help="a run folder or a checkpoint")
    add("--output", required=True, type=Path, metavar="DIR", help="folder to write to")
    add("--format", action="append", choices=FORMATS, help="what to write; may be repeated")
    add(
        "--score-threshold",
        type=float,
        metavar="X",
        default=SCORE_THRESHOLD,
        help=f"a box scores more than this (default: {SCORE_THRESHOLD})",
    )
    add("--stride", type=int, default=1, metavar="N", help="of a video, every N-th frame (default: 1)")
    add("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    add_model_option(parser)
    options = parser.parse_intermixed_args(arguments)
    if not 0 <= options.score_threshold <= 1:
        parser.error(f"--score-threshold is {options.score_threshold}, expected 0 to 1")
    if options.stride < 1:
        parser.error(f"--stride is {options.stride}, expected 1 or more")

    def run() -> None:
        from detector.api.predicting import run as predict

        predict(
            options.paths,
            options.weights,
            options.output,
            formats=options.format or ["pictures"],
            score_threshold=options.score_threshold,
            stride=options.stride,
            device=options.device,
            model=options.model,
        )
        next_step("detector", "export", options.weights, "--format", "torch_export")

    return run_command(run)

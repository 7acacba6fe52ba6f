"""Make the proposals of a data set or a folder: the boxes that a detector chooses among.

The mode is quality by default; for drawings fast is enough.
    detector propose configs/toybox_pcl.yaml
    detector propose --images pictures --output pictures.npz
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from detector.utils.command_line import config_parser, next_step, parse_config, run_command

MODES = ("quality", "fast", "opencv_quality", "opencv_fast", "corners", "grid")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)

    def run() -> None:
        from detector.api.proposing import run as propose

        try:
            propose(**vars(options))
        except KeyboardInterrupt:
            print("rerun the same command to resume", file=sys.stderr)
            raise
        if options.config_file and not options.tune:
            next_step("detector", "check", options.config_file, *options.overrides)

    return run_command(run)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = config_parser("detector propose", __doc__)
    add = parser.add_argument
    add("--images", type=Path, metavar="DIR", help="a folder of images, searched with the folders in it")
    add("--voc", type=Path, metavar="DIR", help="a folder with JPEGImages and ImageSets")
    add(
        "--split",
        action="append",
        default=[],
        dest="splits",
        metavar="NAME",
        help="with --voc; may be repeated",
    )
    add("--output", type=Path, metavar="FILE", help="the .npz file to make")
    add("--mode", choices=MODES, metavar="MODE", help=f"{', '.join(MODES)}")
    add("--longest-side", type=int, metavar="N", help="search on copies of N pixels (default: 300)")
    add("--tune", type=Path, metavar="BOXES", help="only tell which mode covers most of these boxes")
    add("--workers", type=int, default=0, metavar="N", help="processes (default: one a core)")
    options = parse_config(parser, arguments, required=False)
    if sum(source is not None for source in (options.config_file, options.images, options.voc)) != 1:
        parser.error("expected one of CONFIG, --images and --voc; KEY VALUE goes with CONFIG")
    if options.splits and not options.voc:
        parser.error("--split goes with --voc")
    if not (options.output or options.config_file or options.tune):
        parser.error("--output is missing")
    if options.workers < 0 or (options.longest_side is not None and options.longest_side < 1):
        parser.error("--workers and --longest-side must be at least 1")
    return options

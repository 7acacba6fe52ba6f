"""Suggest the training images from whose boxes the detector would learn most.

    detector suggest mine.yaml -n 20 --output next
    detector suggest mine.yaml -n 20 --output next DATASETS.BOXED reviewed.json

The weak detector chooses them. Writes tasks for a labeling tool, with the boxes of the detector
that stands for the run, or of --model (docs/labeling.md).
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from detector.commands.hints import export_of
from detector.data.formats import FORMATS
from detector.labeling.suggest import RULES, suggest
from detector.utils.command_line import add_model_option, next_step
from detector.utils.errors import counted


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("-n", "--count", type=int, default=20, metavar="N", help="number of images (default: 20)")
    add("--by", choices=RULES, default=RULES[0], metavar="RULE", help=", ".join(RULES))
    add("--output", required=True, type=Path, metavar="DIR", help="folder to write to")
    names = f"{', '.join(FORMATS)}; may be repeated (default: label-studio)"
    add("--format", action="append", choices=FORMATS, dest="formats", metavar="NAME", help=names)
    add_model_option(parser)


def run(options: Namespace) -> None:
    found = suggest(**vars(options))
    print(f"{counted(len(found), 'image', 'images')} to box: {options.output}")
    corrected = export_of(options.output, options.formats or ["label-studio"])
    next_step("detector", "review-import", corrected, "--output", "reviewed.json")

"""Suggest the training images from whose boxes the detector would learn most.

    detector suggest mine.yaml -n 20 --output next
    detector suggest mine.yaml -n 20 --output next DATASETS.BOXED reviewed.json

Writes tasks for a labeling tool, with the boxes that the detector finds (docs/labeling.md).
"""

from collections.abc import Sequence
from pathlib import Path

from detector.utils.command_line import config_parser, next_step, parse_config, run_command

FORMATS = ("coco", "voc", "yolo", "label-studio", "cvat")
RULES = ("box-in-box", "entropy", "disagreement", "random")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = config_parser("detector suggest", __doc__)
    add = parser.add_argument
    add("-n", "--count", type=int, default=20, metavar="N", help="number of images (default: 20)")
    add("--by", choices=RULES, default=RULES[0], metavar="RULE", help=f"{', '.join(RULES)}")
    add("--output", required=True, type=Path, metavar="DIR", help="folder to write to")
    add("--format", choices=FORMATS, default="label-studio", metavar="NAME", help=", ".join(FORMATS))
    options = parse_config(parser, arguments)

    def run() -> None:
        from detector.api.suggesting import suggest

        found = suggest(
            options.config_file,
            options.overrides,
            count=options.count,
            by=options.by,
            output=options.output,
            form=options.format,
        )
        print(f"{len(found)} images to box: {options.output}")
        next_step("detector", "review-import", "CORRECTED", "--output", "reviewed.json")

    return run_command(run)

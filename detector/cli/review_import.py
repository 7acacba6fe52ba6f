"""Keep the boxes that a person has corrected or accepted, as a COCO file.

    detector review-import export.json --output reviewed.json

The format is recognized: a JSON file of COCO or Label Studio, an XML file of CVAT, or a folder of
VOC or YOLO. Boxes count as true where the file says that they were reviewed (docs/labeling.md).
"""

from collections.abc import Sequence
from pathlib import Path

from detector.utils.command_line import command_parser, next_step, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command_parser("detector review-import", __doc__)
    add = parser.add_argument
    add("path", type=Path, metavar="CORRECTED", help="a file or folder that the labeling tool wrote")
    add("--output", required=True, type=Path, metavar="FILE", help="the COCO file to write")
    add("--images", type=Path, metavar="DIR", help="the images, for the sizes that YOLO's files lack")
    add("--reviewed", choices=("flags", "all"), default="flags", help="all: a person saw all boxes")
    options = parser.parse_args(arguments)

    def run() -> None:
        from detector.api.labeling import import_reviewed

        found = import_reviewed(
            options.path, options.output, images=options.images, reviewed=options.reviewed
        )
        boxes = sum(len(image.boxes) for image in found)
        print(f"{boxes} ground-truth boxes in {len(found)} images: {options.output}")
        learn = ("DATASETS.BOXED", options.output, "SOLVER.BOXED_SHARE", 0.5)
        next_step("detector", "train", "CONFIG", *learn, "OUTPUT_DIR", "runs/second")

    return run_command(run)

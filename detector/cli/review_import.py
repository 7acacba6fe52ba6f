"""Keep the boxes that a person has reviewed: they count as true.

    detector review-import export.json --output reviewed.json

Reads files of COCO, VOC, YOLO, Label Studio and CVAT and writes COCO's format with the flags of the review;
docs/labeling.md says where each format has them.
"""

from collections.abc import Sequence
from pathlib import Path

from detector.utils.command_line import command_parser, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command_parser("detector review-import", __doc__)
    add = parser.add_argument
    add("path", type=Path, metavar="FILE", help="the corrected file, or the folder of VOC or YOLO")
    add("--output", required=True, type=Path, metavar="FILE", help="a new file to write")
    add("--images", type=Path, metavar="FOLDER", help="of the images, whose sizes some files lack")
    add("--reviewed", choices=("flags", "all"), default="flags", help="what counts (default: flags)")
    options = parser.parse_args(arguments)

    def run() -> None:
        from detector.api.labeling import import_reviewed

        found = import_reviewed(
            options.path, options.output, images=options.images, reviewed=options.reviewed
        )
        boxes, complete = sum(len(image.boxes) for image in found), sum(image.complete for image in found)
        print(f"{boxes} boxes in {len(found)} images, {complete} of them complete: {options.output}")
        print("next: docs/labeling.md says how to read them from Python")

    return run_command(run)

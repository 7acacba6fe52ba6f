"""Keep the boxes that a person has corrected or accepted: to train with, or to test with.

    detector review-import export.json --output reviewed.json
    detector review-import export.json --table mine/val.jsonl

The format is recognized: a JSON file of COCO or Label Studio, an XML file of CVAT, or a folder of
VOC or YOLO. Boxes count as true where the file says that they were reviewed (docs/labeling.md).
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from detector.commands.hints import config_of, output_dir_of
from detector.labeling.label import import_reviewed
from detector.labeling.table_boxes import add_boxes
from detector.utils.command_line import next_step
from detector.utils.errors import counted


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("path", type=Path, metavar="CORRECTED", help="a file or folder that the labeling tool wrote")
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--output", type=Path, metavar="FILE", help="the COCO file to write")
    kept = "a table to put them into; it is kept as FILE.bak"
    to.add_argument("--table", type=Path, metavar="FILE", help=kept)
    add("--images", type=Path, metavar="DIR", help="the images, for the sizes that YOLO's files lack")
    add("--reviewed", choices=("flags", "all"), default="flags", help="all: a person saw all boxes")


def run(options: Namespace) -> None:
    given = {"images": options.images, "reviewed": options.reviewed}
    if options.table:
        rows, table, kept = add_boxes(options.path, options.table, **given)
        boxed = sum(row.boxes is not None for row in rows)
        print(f"boxes in {boxed} of {len(rows)} images: {table}; the table before: {kept}")
        if folder := output_dir_of(config_of(options.table)):
            next_step("detector", "test", folder)
        return
    found = import_reviewed(options.path, options.output, **given)
    boxes = sum(len(image.boxes) for image in found)
    found_boxes = counted(boxes, "ground-truth box", "ground-truth boxes")
    print(f"{found_boxes} in {counted(len(found), 'image', 'images')}: {options.output}")
    learn = ("DATASETS.BOXED", options.output)
    if first := output_dir_of(config := config_of()):
        words = ("--to", "detector", *learn, "OUTPUT_DIR", f"{first}_boxed")
        next_step("detector", "train", config, *words)

"""The command `detector review-import`."""

from argparse import Namespace

from detector.commands.hints import config_of, output_dir_of
from detector.labeling.label import import_reviewed
from detector.labeling.table_boxes import add_boxes
from detector.utils.command_line import next_step
from detector.utils.errors import counted


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

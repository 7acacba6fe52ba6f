"""The commands on data: `detector init`, `propose`, `check`, `label`, `suggest` and `review-import`."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from detector.cli.runs import SCORE_THRESHOLD, Run
from detector.utils.command_line import add_model_option, next_step
from detector.utils.errors import counted

MODES = ("quality", "fast", "opencv_quality", "opencv_fast", "corners", "grid")
FORMATS = ("coco", "voc", "yolo", "label-studio", "cvat")
RULES = ("information-density", "typical", "entropy", "random")


def init(parser: ArgumentParser) -> Run:
    """Write a config for a folder of your own pictures.

        detector init pictures
        detector init pictures --labels labels.csv --output fruit.yaml

    The labels are looked for in the folder: a table (CSV, JSON lines), annotations (COCO, VOC, YOLO,
    Label Studio, CVAT; their classes only), or one folder for each class. Writes NAME.yaml and, in the
    folder NAME beside it, tables of labels for training and testing, divided by scene where file names
    tell.
    """
    add = parser.add_argument
    add("pictures", type=Path, nargs="?", metavar="PICTURES", help="a folder")
    what = "write the tables of --output anew from their source, whose labels have changed"
    add("--again", action="store_true", help=what)
    add("--labels", type=Path, metavar="FILE", help="a file, or a folder of VOC or YOLO")
    add("--output", type=Path, default=Path("mine.yaml"), metavar="FILE", help="default: mine.yaml")

    def run(options: Namespace) -> None:
        from detector.api import starting

        if options.again:
            if options.pictures or options.labels:
                parser.error(
                    "--again takes the pictures and labels of before: leave out PICTURES and --labels"
                )
            starting.run_again(options.output)
            next_step("detector", "check", options.output)
            return
        if options.pictures is None:
            parser.error("PICTURES is missing: a folder")
        config = starting.run(options.pictures, options.labels, options.output)
        next_step("detector", "propose", config)

    return run


def propose(parser: ArgumentParser) -> Run:
    """Make the proposals of a data set or a folder: the boxes that a detector chooses among.

    The mode is quality by default; for drawings fast is enough.
        detector propose configs/toybox_pcl.yaml
        detector propose --images pictures --output pictures.npz
    """
    add = parser.add_argument
    add("--images", type=Path, metavar="DIR", help="a folder of images, searched with the folders in it")
    add("--voc", type=Path, metavar="DIR", help="a folder with JPEGImages and ImageSets")
    repeated = "with --voc; may be repeated"
    add("--split", action="append", default=[], dest="splits", metavar="NAME", help=repeated)
    add("--output", type=Path, metavar="FILE", help="the .npz file to make")
    add("--mode", choices=MODES, metavar="MODE", help=", ".join(MODES))
    add("--longest-side", type=int, metavar="N", help="search on copies of N pixels (default: 300)")
    add("--tune", type=Path, metavar="BOXES", help="only tell which mode covers most of these boxes")
    add("--workers", type=int, default=0, metavar="N", help="processes (default: one per core)")

    def run(options: Namespace) -> None:
        from detector.api import proposing

        try:
            proposing.run(**vars(options))
        except KeyboardInterrupt:
            print("rerun the same command to resume", file=sys.stderr)
            raise
        if options.config_file and not options.tune:
            next_step("detector", "check", options.config_file, *options.overrides)

    return run


def check(parser: ArgumentParser) -> Run:
    """Look at a data set before training on it: counts, balance, files, boxes, what proposals cover.

        detector check configs/toybox_pcl.yaml

    Warnings name what will go wrong and what to do. The exit status is 2 where something would stop a
    run. A sheet of samples of each split is drawn, OUTPUT_DIR/check/SPLIT.png.
    """

    def run(options: Namespace) -> None:
        from detector.api import checking

        ready = checking.run(options.config_file, options.overrides)
        next_step("detector", "train" if ready else "propose", options.config_file, *options.overrides)

    return run


def label(parser: ArgumentParser) -> Run:
    """Find boxes for images whose tags are known, for a person to correct in a labeling tool.

        detector label runs/mine --labels mine/train.jsonl --output boxes --format label-studio

    Only the classes that an image is tagged with get boxes: each at least its best one, which is
    flagged as doubtful if it does not score more than the threshold (docs/labeling.md).
    """
    add = parser.add_argument
    add("weights", metavar="RUN", help="a run folder or a checkpoint")
    add("--labels", required=True, metavar="FILE", help="a table of images and tags, CSV or JSON lines")
    add("--images", metavar="DIR", help="what its files are relative to; default: its folder")
    add("--output", required=True, type=Path, metavar="DIR", help="folder to write to")
    what = f"{', '.join(FORMATS)}; may be repeated"
    add(
        "--format", required=True, action="append", choices=FORMATS, dest="formats", metavar="NAME", help=what
    )
    what = "only N images, of all classes in turns, of those without boxes in the table"
    add("-n", "--count", type=int, metavar="N", help=what)
    least = f"default: {SCORE_THRESHOLD}"
    add("--score-threshold", type=float, metavar="X", default=SCORE_THRESHOLD, help=least)
    add("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    add_model_option(parser)

    def run(options: Namespace) -> None:
        from detector.api import labeling
        from detector.utils.distributed import is_main

        found = labeling.label(**vars(options))
        if not is_main():
            return
        doubtful = sum(box.doubtful for image in found for box in image.boxes)
        boxes = counted(sum(len(image.boxes) for image in found), "box", "boxes")
        images = counted(len(found), "image", "images")
        print(f"{boxes} in {images}, {doubtful} of them doubtful: {options.output}")
        to_test = Path(options.labels).stem == "val"  # as detector init names the table
        to = ("--table", options.labels) if to_test else ("--output", "reviewed.json")
        next_step("detector", "review-import", "CORRECTED", *to)

    return run


def suggest(parser: ArgumentParser) -> Run:
    """Suggest the training images from whose boxes the detector would learn most.

        detector suggest mine.yaml -n 20 --output next
        detector suggest mine.yaml -n 20 --output next DATASETS.BOXED reviewed.json

    Writes tasks for a labeling tool, with the boxes that the detector finds (docs/labeling.md).
    """
    add = parser.add_argument
    add("-n", "--count", type=int, default=20, metavar="N", help="number of images (default: 20)")
    add("--by", choices=RULES, default=RULES[0], metavar="RULE", help=", ".join(RULES))
    add("--output", required=True, type=Path, metavar="DIR", help="folder to write to")
    names = f"{', '.join(FORMATS)}; may be repeated (default: label-studio)"
    add("--format", action="append", choices=FORMATS, dest="formats", metavar="NAME", help=names)

    def run(options: Namespace) -> None:
        from detector.api import suggesting

        found = suggesting.suggest(**vars(options))
        print(f"{counted(len(found), 'image', 'images')} to box: {options.output}")
        next_step("detector", "review-import", "CORRECTED", "--output", "reviewed.json")

    return run


def review_import(parser: ArgumentParser) -> Run:
    """Keep the boxes that a person has corrected or accepted: to train with, or to test with.

        detector review-import export.json --output reviewed.json
        detector review-import export.json --table mine/val.jsonl

    The format is recognized: a JSON file of COCO or Label Studio, an XML file of CVAT, or a folder of
    VOC or YOLO. Boxes count as true where the file says that they were reviewed (docs/labeling.md).
    """
    add = parser.add_argument
    add("path", type=Path, metavar="CORRECTED", help="a file or folder that the labeling tool wrote")
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--output", type=Path, metavar="FILE", help="the COCO file to write")
    kept = "a table to put them into; it is kept as FILE.bak"
    to.add_argument("--table", type=Path, metavar="FILE", help=kept)
    add("--images", type=Path, metavar="DIR", help="the images, for the sizes that YOLO's files lack")
    add("--reviewed", choices=("flags", "all"), default="flags", help="all: a person saw all boxes")

    def run(options: Namespace) -> None:
        from detector.api import labeling, table_boxes

        given = {"images": options.images, "reviewed": options.reviewed}
        if options.table:
            rows, table, kept = table_boxes.add_boxes(options.path, options.table, **given)
            boxed = sum(row.boxes is not None for row in rows)
            print(f"boxes in {boxed} of {len(rows)} images: {table}; the table before: {kept}")
            next_step("detector", "test", "RUN")
            return
        found = labeling.import_reviewed(options.path, options.output, **given)
        boxes = sum(len(image.boxes) for image in found)
        found_boxes = counted(boxes, "ground-truth box", "ground-truth boxes")
        print(f"{found_boxes} in {counted(len(found), 'image', 'images')}: {options.output}")
        learn = ("DATASETS.BOXED", options.output)
        next_step("detector", "train", "CONFIG", *learn, "OUTPUT_DIR", "runs/second")

    return run

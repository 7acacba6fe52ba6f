"""Find boxes for images whose tags are known, for a person to correct in a labeling tool.

    detector label runs/mine --labels mine/train.jsonl --output boxes --format label-studio

Only the classes that an image is tagged with get boxes: each at least its best one, which is
flagged as doubtful if it does not score more than the threshold (docs/labeling.md).
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from detector.data.formats import FORMATS
from detector.inference.predictor import SCORE_THRESHOLD
from detector.labeling.label import label
from detector.utils.command_line import add_model_option, next_step
from detector.utils.distributed import is_main
from detector.utils.errors import counted


def add_arguments(parser: ArgumentParser) -> None:
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
    found = label(**vars(options))
    if not is_main():
        return
    doubtful = sum(box.doubtful for image in found for box in image.boxes)
    boxes = counted(sum(len(image.boxes) for image in found), "box", "boxes")
    images = counted(len(found), "image", "images")
    print(f"{boxes} in {images}, {doubtful} of them doubtful: {options.output}")
    to_test = Path(options.labels).stem == "val"  # as detector init names the table
    to = ("--table", options.labels) if to_test else ("--output", "reviewed.json")
    next_step("detector", "review-import", "CORRECTED", *to)

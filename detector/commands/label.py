"""The command `detector label`."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from detector.commands.hints import export_of
from detector.data.formats import FORMATS, ReviewImage
from detector.data.sheets.columns import NamedColumns
from detector.labeling.label import label
from detector.labeling.training_formats import TRAINING_FORMATS, write_training_folder
from detector.utils.command_line import next_step
from detector.utils.distributed import is_main
from detector.utils.errors import UserError, counted

_TO_TRAIN = ", ".join(TRAINING_FORMATS)


def run(options: Namespace) -> None:
    if not options.formats:
        raise UserError(f"--format is missing: one of {', '.join(FORMATS)}, or to train from: {_TO_TRAIN}")
    named = vars(options)
    columns = NamedColumns(named.pop("image_column"), tuple(named.pop("label_column")))
    if {*options.formats} & {*TRAINING_FORMATS}:
        _write_to_train(options)
        return
    found = label(**named, columns=columns)
    if not is_main():
        return
    print(f"{_describe(found)}: {options.output}")
    if "yolo" in options.formats:
        print("note: these are for labeling tools; --format ultralytics writes what yolo train reads")
    to_test = Path(options.labels).stem == "val"  # as detector init names the table
    to = ("--table", options.labels) if to_test else ("--output", "reviewed.json")
    flags = [] if {"label-studio", "cvat"} & {*options.formats} else ["--reviewed", "all"]
    images = ["--images", options.images] if options.images else []
    corrected = export_of(options.output, options.formats)
    next_step("detector", "review-import", corrected, *to, *images, *flags)


def _write_to_train(options: Namespace) -> None:
    form, *others = options.formats
    if others or options.images or options.count or options.inline:
        raise UserError(
            f"{_TO_TRAIN} are written one at a time, with all of both tables: leave --images, -n, --inline "
            "and other formats out"
        )
    chosen = {"device": options.device, "score_threshold": options.score_threshold, "model": options.model}
    found = write_training_folder(form, options.weights, Path(options.labels), options.output, **chosen)
    for split, images in found.items():
        print(f"{split}: {_describe(images)}")
    if form == "ultralytics":
        next_step("yolo", "train", f"data={options.output / 'data.yaml'}", "model=yolo11n.pt")
        return
    print("note: test/ has the images of valid/ once more: what is measured on it is no independent figure")
    train = f"RFDETRNano().train(dataset_dir={str(options.output)!r})"
    next_step("python", "-c", f"from rfdetr import RFDETRNano; {train}")


def _describe(found: Sequence[ReviewImage]) -> str:
    doubtful = sum(box.doubtful for image in found for box in image.boxes)
    boxes = counted(sum(len(image.boxes) for image in found), "box", "boxes")
    return f"{boxes} in {counted(len(found), 'image', 'images')}, {doubtful} of them doubtful"

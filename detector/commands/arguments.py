"""The arguments of each command of `detector`, and its help: the docstring.

Nothing here takes time to import, so that a mistake is answered before torch is loaded. Choices are those of
the modules that act on them (tests/commands/test_arguments.py).
"""

from argparse import SUPPRESS, ArgumentParser
from pathlib import Path

from detector.config import KEYS

FORMATS = ("coco", "voc", "yolo", "label-studio", "cvat")
TRAINING_FORMATS = ("ultralytics", "rf-detr")
PREDICT_FORMATS = ("pictures", "coco", "voc")
EXPORT_FORMATS = ("torch_export", "aot_inductor", "onnx")
PROPOSAL_FORMATS = ("selective_search", "mcg", "detectron", "detectron2", "npz", "jsonl")
RULES = ("information-density", "typical", "entropy", "random", "disagreement")


def demo(parser: ArgumentParser) -> None:
    """Draw a small data set, train a detector on its tags in three minutes, and open the report.

        detector demo [FOLDER] [--no-browser]

    It needs no data, no network and no GPU: the data set, Toybox, is drawn (docs/quick_start.md).
    FOLDER, by default detector_demo, gets the images and the run. Rerun the command to continue if it
    was interrupted. Afterwards FOLDER/run is a run folder for predict, report and export.
    """
    add = parser.add_argument
    add("folder", nargs="?", type=Path, default=Path("detector_demo"), metavar="FOLDER", help="to write to")
    add("--no-browser", action="store_true", help="print the path of the report alone")


def init(parser: ArgumentParser) -> None:
    """Write a config for a folder of your own pictures.

        detector init pictures [--labels labels.csv] [--output fruit.yaml]

    The labels are looked for in the folder: a table (CSV, Excel, JSON), annotations (COCO, VOC, YOLO,
    Label Studio, CVAT), or one folder for each class. Writes NAME.yaml and tables in the folder NAME.
    """
    add = parser.add_argument
    add("pictures", type=Path, nargs="?", metavar="PICTURES", help="a folder")
    what = "write the tables of --output anew from their source, whose labels have changed"
    add("--again", action="store_true", help=what)
    add("--labels", type=Path, metavar="FILE", help="a file, or a folder of VOC or YOLO")
    add("--skip-missing", action="store_true", help=SUPPRESS)  # the error that needs it names it
    _add_columns(parser, shown=True)
    what = "says that no class is shown, such as empty (repeatable)"
    add("--no-class", action="append", default=[], metavar="L", help=what)
    what = "auto (default): by scene where file names tell; scene; picture"
    add("--split-by", choices=("auto", "scene", "picture"), default="auto", metavar="S", help=what)
    add("--tile", default="auto", metavar="N", help="INPUT.TILE, for large pictures (default: auto)")
    add("--output", type=Path, default=Path("mine.yaml"), metavar="FILE", help="default: mine.yaml")


def propose(parser: ArgumentParser) -> None:
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
    add(
        "--mode",
        choices=KEYS["PROPOSALS.MODE"].choices,
        metavar="MODE",
        help=", ".join(KEYS["PROPOSALS.MODE"].choices),
    )
    add("--longest-side", type=int, metavar="N", help="search on copies of N pixels (default: 300)")
    add("--tune", type=Path, metavar="BOXES", help="only tell which mode covers most of these boxes")
    add("--workers", type=int, default=0, metavar="N", help="processes (default: one per core)")


def convert_proposals(parser: ArgumentParser) -> None:
    """Convert proposals of other projects to the file of a data set, checked against its images.

        detector convert-proposals mine.yaml --format detectron --train train.pkl --test test.pkl

    Pickles are read without running what they ask for. A split may be in several files, as in --train a
    --train b. Writes DATASETS.PROPOSALS; docs/proposals.md lists the formats.
    """
    parser.add_argument("--format", required=True, choices=PROPOSAL_FORMATS, help="what the files are")
    for split in ("train", "test"):
        text = f"proposals of DATASETS.{split.upper()}_SPLIT; may be repeated"
        parser.add_argument(f"--{split}", type=Path, action="append", metavar="FILE", default=[], help=text)


def teacher(parser: ArgumentParser) -> None:
    """Let a model of Hugging Face find boxes in the training images, for `train --teacher`.

        detector teacher mine.yaml --model IDEA-Research/grounding-dino-tiny --output found.jsonl
        detector teacher mine.yaml --model facebook/sam-vit-base --masks --output masks.jsonl

    It is asked for the classes of the data set; with --masks it segments anything (docs/teachers.md).
    """
    add = parser.add_argument
    add("--model", required=True, metavar="MODEL", help="a folder, or a name on the Hugging Face Hub")
    add("--output", required=True, type=Path, metavar="FILE", help="the .jsonl file to write")
    add("--masks", action="store_true", help="find masks of anything, without classes")
    what = "CSV with teacher,class: what to ask the model for"
    add("--classes", type=Path, metavar="TABLE", help=what)
    add("--score-threshold", type=float, default=0.1, metavar="S", help="least score of a box (default: 0.1)")


def check(parser: ArgumentParser) -> None:
    """Look at a data set before training on it: counts, balance, files, boxes, what proposals cover.

        detector check configs/toybox_pcl.yaml

    With --teacher FOUND it says of each class how often the teacher finds what the tags say and what
    they deny and, if OUTPUT_DIR has a weak detector, how its boxes agree with that; whether to use the
    teacher alone, with tags, or not; and writes OUTPUT_DIR/check/teacher.json and teacher.png.

    With --tags it writes instead which tags are probably wrong or missing, OUTPUT_DIR/check/tags.csv
    and tags.html, best after a training (docs/own_images.md, Tags that are wrong).

    Warnings name what will go wrong and what to do. The exit status is 2 where something would stop a
    run. A sheet of samples of each split is drawn, OUTPUT_DIR/check/SPLIT.png.
    """
    _add_teacher(parser)
    parser.add_argument("--tags", action="store_true", help="which tags are probably wrong or missing")


def train(parser: ArgumentParser) -> None:
    """Train a detector from image labels.

        detector train mine.yaml --to detector [--quick] [--teacher found.json]
        torchrun --nproc_per_node 8 --max-restarts 3 -m detector train toybox_pcl SOLVER.MAX_ITER 2000

    --to weak also proposes and tests; --to detector also self-trains and reports; repeat it to go on.
    Keys SOLVER.MAX_ITER (steps), SOLVER.IMAGES_PER_BATCH, SOLVER.BASE_LR, INPUT.TRAIN_SIZES, OUTPUT_DIR
    """
    add = parser.add_argument
    add("--resume", action="store_true", help="continue from the newest checkpoint")
    add("--to", choices=("weak", "detector"), metavar="STAGE", help="weak or detector, as above")
    what = "a first try in minutes, of lower AP, in OUTPUT_DIR_quick (--to detector)"
    add("--quick", action="store_true", help=what)
    _add_teacher(parser)
    what = "1: one weak detector, recipe as it is; 2 (default): three, recipe may change"
    add("--effort", type=int, choices=(1, 2), metavar="N", help=what)
    _add_verbose(parser)


def test(parser: ArgumentParser) -> None:
    """Measure a trained detector: AP on the test split, CorLoc on the training split.

        detector test runs/demo

    Writes metrics.json, detections.npz and pictures/ to the run folder. With other weights, or keys
    that change the results, they go to a folder below RUN/tests. Rerun the same command to resume a
    test that was killed; under torchrun the processes share the images. AP and CorLoc need images with
    ground-truth boxes; the AP of the image-level labels needs none.
    """
    parser.add_argument("--weights", metavar="FILE", help="a checkpoint; default: OUTPUT_DIR/model_final.pt")
    _add_model(parser)


def self_train(parser: ArgumentParser) -> None:
    """Train a student on what a weak detector finds in its training split, and measure it.

        detector self-train runs/demo [--resume]
        detector self-train runs/a --weights runs/a/model_final.pt --weights runs/b/model_final.pt

    The student is a Faster R-CNN, or with SELF_TRAIN.DETECTOR fcos an FCOS, which has one stage.
    Everything goes to OUTPUT_DIR/self_train: pseudo/, a data set in VOC's layout (with COCO's JSON)
    whose boxes are the detector's; log, events and checkpoints as in training; metrics.json beside the
    weak detector's. The keys SELF_TRAIN decide. Image labels choose the classes; ground-truth boxes are
    read for the metrics alone.
    """
    what = "a checkpoint; default: OUTPUT_DIR/model_final.pt. Repeated: the mean of several weak detectors"
    parser.add_argument("--weights", metavar="FILE", action="append", default=[], help=what)
    parser.add_argument("--resume", action="store_true", help="resume from the folder's newest checkpoint")
    _add_verbose(parser)


def predict(parser: ArgumentParser) -> None:
    """Find objects in your own images: files, folders and videos.

        detector predict runs/demo pictures/ more.jpg clip.mp4 --output found

    Writes pictures with boxes or annotations, in place of those that it wrote there before; no other
    file is replaced (docs/predict.md). --weights RUN may take the place of the first RUN.
    """
    add = parser.add_argument
    what = "a run folder or a checkpoint, then images, folders and videos"
    add("paths", nargs="+", type=Path, metavar="RUN PICTURES", help=what)
    add("--weights", metavar="RUN", help=SUPPRESS)  # RUN as it was written before
    add("--output", type=Path, metavar="DIR", default=Path("found"), help="to write to (default: found)")
    what = "what to write; may be repeated (default: pictures)"
    add("--format", action="append", choices=PREDICT_FORMATS, dest="formats", help=what)
    _add_threshold(parser)
    add("--stride", type=int, default=1, metavar="N", help="of a video, every N-th frame (default: 1)")
    add("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    _add_model(parser)


def label(parser: ArgumentParser) -> None:
    """Find boxes for images whose tags are known, for a person to correct in a labeling tool.

        detector label runs/mine --labels mine/train.jsonl --output boxes --format label-studio

    Only classes that an image is tagged with get boxes, each at least one (docs/labeling.md).
    """
    add = parser.add_argument
    add("weights", metavar="RUN", help="a run folder or a checkpoint")
    add("--labels", required=True, metavar="FILE", help="a table of images and tags, CSV or JSON lines")
    add("--images", metavar="DIR", help="what its files are relative to; default: its folder")
    add("--output", required=True, type=Path, metavar="DIR", help="folder to write to")
    what = f"{', '.join(FORMATS)} (repeatable), or both splits to train from: {', '.join(TRAINING_FORMATS)}"
    choices = (*FORMATS, *TRAINING_FORMATS)
    add("--format", action="append", choices=choices, dest="formats", metavar="NAME", help=what)
    what = "only N images without boxes, of all classes in turns"
    add("-n", "--count", type=int, metavar="N", help=what)
    add("--inline", action="store_true", help=SUPPRESS)  # which is told where it helps
    _add_columns(parser)
    _add_threshold(parser)
    add("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    _add_model(parser)


def suggest(parser: ArgumentParser) -> None:
    """Suggest the training images from whose boxes the detector would learn most.

        detector suggest mine.yaml -n 20 --output next
        detector suggest mine.yaml -n 20 --output next DATASETS.BOXED reviewed.json

    The weak detector chooses them. Writes tasks for a labeling tool, with the boxes of the detector
    that stands for the run, or of --model (docs/labeling.md).
    """
    add = parser.add_argument
    add("-n", "--count", type=int, default=20, metavar="N", help="number of images (default: 20)")
    add("--by", choices=RULES, default=RULES[0], metavar="RULE", help=", ".join(RULES))
    add("--output", required=True, type=Path, metavar="DIR", help="folder to write to")
    names = f"{', '.join(FORMATS)}; may be repeated (default: label-studio)"
    add("--format", action="append", choices=FORMATS, dest="formats", metavar="NAME", help=names)
    _add_model(parser)


def review(parser: ArgumentParser) -> None:
    """Correct boxes in the browser, on a page of this machine, while the detector goes on learning.
    review.sqlite in the run folder keeps it all: stop with Ctrl-C, go on at any time (docs/review.md).

        detector review runs/mine
    """
    add = parser.add_argument
    add("--file", type=Path, metavar="F", help="default: review.sqlite of the run")
    add("--boxes", type=Path, metavar="P", help="go on from these, see review-import")
    add("--reviewed", choices=("flags", "all"), default="flags", metavar="R", help="all: --boxes are right")
    add("--port", type=int, metavar="N", help="default: the first free one from 8460")
    more = "learn after every N reviewed images (default: 10; 0: never)"
    add("--learn", type=int, default=10, metavar="N", help=more)
    add("--label-studio", action="store_true", help="serve Label Studio as a model, too")
    add("--no-browser", action="store_true", help="print the address alone")
    add("--output", type=Path, metavar="D", help="serve nothing, write the boxes to this folder")
    names = f"{', '.join(FORMATS)}"
    add("--format", action="append", choices=FORMATS, dest="formats", metavar="F", help=names)


def review_import(parser: ArgumentParser) -> None:
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


def report(parser: ArgumentParser) -> None:
    """Write an HTML page about a run: metrics, error types, pictures, training curves and stream
    attention.

        detector report runs/demo

    RUN is a run folder, trained and tested. The page, report.html in the folder of the detector that it
    shows unless --output names another file, is self-contained (docs/report.md).
    """
    add = parser.add_argument
    add("folder", type=Path, metavar="RUN", help="a run folder, trained and tested")
    add("overrides", nargs="*", default=[], metavar="KEY VALUE", help="config keys to change")
    add("--output", type=Path, metavar="FILE", help="default: RUN/report.html, or RUN/self_train/report.html")
    _add_model(parser)


def export(parser: ArgumentParser) -> None:
    """Write a trained network to a file that runs without the code of its model, and check it.

        detector export runs/demo --format onnx

    The student of self-training takes images and gives boxes, scores and labels after NMS; a weak
    detector takes images and proposals and gives their scores and boxes (docs/export.md). Beside a
    student in ONNX there are example.py, which runs it without torch, and preprocess.json.
    """
    add = parser.add_argument
    add("weights", type=Path, metavar="RUN", help="a run folder or a checkpoint")
    add("--format", required=True, choices=EXPORT_FORMATS, dest="form", help="what to write")
    add("--images", type=Path, metavar="FOLDER", help="pictures to check with (default: the test split)")
    add("--count", type=int, default=20, help="how many of them (default: 20)")
    add("--int8", action="store_true", help="of a student in ONNX: 8-bit convolutions; prints their AP")
    _add_model(parser)


def env(parser: ArgumentParser) -> None:
    """Print the versions and the devices that this program uses, for a report of a bug.

        detector env [RUN] > versions.txt

    With a run folder, also the type and the place of the last error in its log; the message, which may
    name private files or classes, is left out. It prints no path of this machine and writes no file.
    """
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="RUN", help="a run folder, for the last error in its log"
    )


def _add_model(parser: ArgumentParser) -> None:
    """--model, for the commands that take a run folder."""
    meaning = "weak or student; default: the one measured to be better, else the student"
    parser.add_argument(
        "--model", choices=("auto", "weak", "student"), default="auto", metavar="M", help=meaning
    )


def _add_threshold(parser: ArgumentParser) -> None:
    """--score-threshold, for the commands that write boxes; "auto" without it."""
    meaning = "default: as detector test chose for each class"
    parser.add_argument("--score-threshold", type=_threshold, metavar="X", default="auto", help=meaning)


def _threshold(text: str) -> float | str:
    return text if text == "auto" else float(text)


def _add_columns(parser: ArgumentParser, *, shown: bool = False) -> None:
    """--label-column and --image-column, for the commands that read spreadsheets."""
    what = "header of a table's tags (repeatable)" if shown else SUPPRESS
    parser.add_argument("--label-column", action="append", default=[], metavar="H", help=what)
    what = "header of the names of its pictures" if shown else SUPPRESS
    parser.add_argument("--image-column", metavar="H", help=what)


def _add_verbose(parser: ArgumentParser) -> None:
    """--verbose, for the commands that train."""
    parser.add_argument("--verbose", action="store_true", help="show on the screen what goes to log.txt")


def _add_teacher(parser: ArgumentParser) -> None:
    """--teacher, for the commands that read what a teacher found."""
    parser.add_argument("--teacher", metavar="FOUND", help="what a teacher found: DATASETS.TEACHER FOUND")

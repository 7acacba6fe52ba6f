"""The commands on runs: `detector train`, `test`, `self-train`, `predict`, `report` and `export`."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from detector.utils.command_line import add_model_option, model_words, next_step
from detector.utils.distributed import is_main

Run = Callable[[Namespace], None]

OUTPUT_FORMATS = ("pictures", "coco", "voc")
EXPORT_FORMATS = ("torch_export", "aot_inductor", "onnx")
SCORE_THRESHOLD = 0.3  # as of detector.load


def name_measuring(run: Path) -> None:
    """Name the commands that measure the boxes of a run folder, if its test had no boxes to measure with."""
    from detector.api.measured import left_to_measure

    if is_main() and (commands := left_to_measure(run)):
        print("next: measure the boxes; correct them in the labeling tool between the first two commands")
        print("".join(f"  {command}\n" for command in commands), end="")


def train(parser: ArgumentParser) -> Run:
    """Train a detector from image labels.

        detector train configs/toybox_pcl.yaml SOLVER.MAX_ITER 2000
        detector train mine.yaml --to detector
        torchrun --nproc_per_node 8 --max-restarts 3 -m detector train configs/toybox_pcl.yaml

    Writes to the run folder, OUTPUT_DIR: config.yaml, run.json (versions, commit, seed, data),
    log.txt, events for TensorBoard, checkpoints/, snapshots/ and, at the end, model_final.pt
    (docs/distributed.md). With --to weak it makes the proposals before and tests afterwards, with
    --to detector it also self-trains and writes the report; repeated, it continues from where it was.
    """
    add = parser.add_argument
    add("--resume", action="store_true", help="continue from the newest checkpoint")
    add("--to", choices=("weak", "detector"), metavar="STAGE", help="weak or detector, as above")

    def run(options: Namespace) -> None:
        if options.to:
            from detector.api import pipeline

            folder = pipeline.run_pipeline(options.config_file, options.overrides, options.to)
            name_measuring(folder)
            if options.to == "weak":
                next_step("detector", "self-train", options.config_file, *options.overrides)
            else:
                next_step("detector", "predict", "--weights", folder, "--output", "found", "PICTURES")
            return

        from detector.api import training

        folder = training.train(options.config_file, options.overrides, resume=options.resume)
        next_step("detector", "test", folder)

    return run


def test(parser: ArgumentParser) -> Run:
    """Measure a trained detector: AP on the test split, CorLoc on the training split.

        detector test runs/demo

    Writes metrics.json, detections.npz and pictures/ to the run folder. With other weights, or keys
    that change the results, they go to a folder below RUN/tests. Rerun the same command to resume a
    test that was killed; under torchrun the processes share the images. AP and CorLoc need images with
    ground-truth boxes; the AP of the image-level labels needs none.
    """
    parser.add_argument("--weights", metavar="FILE", help="a checkpoint; default: OUTPUT_DIR/model_final.pt")
    add_model_option(parser)

    def run(options: Namespace) -> None:
        from detector.api import testing
        from detector.api.measured import stands_for

        folder, _ = testing.run(options.config_file, options.overrides, options.weights, options.model)
        name_measuring(folder)
        other = stands_for(folder)[0] == "student"  # the report is about the student unless told otherwise
        next_step("detector", "report", folder, *model_words("weak" if other else "auto"))

    return run


def self_train(parser: ArgumentParser) -> Run:
    """Train a Faster R-CNN on what a weak detector finds in its training split, and measure it.

        detector self-train runs/demo [--resume]
        detector self-train runs/a --weights runs/a/model_final.pt --weights runs/b/model_final.pt

    Everything goes to OUTPUT_DIR/self_train: pseudo/, a data set in VOC's layout (with COCO's JSON)
    whose boxes are the detector's; log, events and checkpoints as in training; metrics.json beside the
    weak detector's. The keys SELF_TRAIN decide. Image labels choose the classes; ground-truth boxes are
    read for the metrics alone.
    """
    what = "a checkpoint; default: OUTPUT_DIR/model_final.pt. Repeated: the mean of several weak detectors"
    parser.add_argument("--weights", metavar="FILE", action="append", default=[], help=what)
    parser.add_argument("--resume", action="store_true", help="resume from the folder's newest checkpoint")

    def run(options: Namespace) -> None:
        from detector.api import self_training

        folder = self_training.run(**vars(options))
        name_measuring(folder)
        next_step("detector", "predict", "--weights", folder, "--output", "found", "PICTURES")

    return run


def predict(parser: ArgumentParser) -> Run:
    """Find objects in your own images: files, folders and videos.

        detector predict --weights runs/demo --output found pictures/ more.jpg clip.mp4

    Writes pictures with boxes or annotations; replaces only its own files (docs/predict.md).
    """
    add = parser.add_argument
    add("paths", nargs="+", type=Path, metavar="PATH", help="an image, a folder, or a video")
    add("--weights", required=True, metavar="RUN", help="a run folder or a checkpoint")
    add("--output", required=True, type=Path, metavar="DIR", help="folder to write to")
    what = "what to write; may be repeated (default: pictures)"
    add("--format", action="append", choices=OUTPUT_FORMATS, dest="formats", help=what)
    least = f"a box scores more than this (default: {SCORE_THRESHOLD})"
    add("--score-threshold", type=float, metavar="X", default=SCORE_THRESHOLD, help=least)
    add("--stride", type=int, default=1, metavar="N", help="of a video, every N-th frame (default: 1)")
    add("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    add_model_option(parser)

    def run(options: Namespace) -> None:
        from detector.api import predicting

        predicting.run(**vars(options))
        words = [options.weights, *model_words(options.model)]
        next_step("detector", "export", *words, "--format", "torch_export")

    return run


def report(parser: ArgumentParser) -> Run:
    """Write an HTML page about a run: metrics, error types, pictures, training curves and stream
    attention.

        detector report runs/demo

    RUN is a run folder, trained and tested. The page, report.html in the folder of the detector that it
    shows unless --output names another file, is self-contained (docs/report.md).
    """
    add = parser.add_argument
    add("folder", type=Path, metavar="RUN", help="a run folder, trained and tested")
    add("overrides", nargs="*", metavar="KEY VALUE", help="config keys to change")
    add("--output", type=Path, metavar="FILE", help="default: RUN/report.html, or RUN/self_train/report.html")
    add_model_option(parser)

    def run(options: Namespace) -> None:
        from detector.api import report

        weights = report.run(**vars(options))
        name_measuring(weights)
        if weights.exists():  # not, if a test of another checkpoint was moved
            words = [weights, *model_words(options.model), "--output", "found", "PICTURES"]
            next_step("detector", "predict", "--weights", *words)

    return run


def export(parser: ArgumentParser) -> Run:
    """Write a trained network to a file that runs without the code of its model, and check it.

        detector export runs/demo --format onnx

    The Faster R-CNN of self-training takes an image and gives boxes, scores and labels after NMS; a
    weak detector takes images and proposals and gives their scores and boxes (docs/export.md).
    """
    add = parser.add_argument
    add("weights", type=Path, metavar="RUN", help="a run folder or a checkpoint")
    add("--format", required=True, choices=EXPORT_FORMATS, dest="form", help="what to write")
    add("--images", type=Path, metavar="FOLDER", help="pictures to check with (default: the test split)")
    add("--count", type=int, default=20, help="how many of them (default: 20)")
    add_model_option(parser)

    def run(options: Namespace) -> None:
        from detector.api import exporting

        exporting.run(**vars(options))
        print("next: run it, as docs/export.md shows")

    return run

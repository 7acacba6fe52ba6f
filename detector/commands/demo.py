"""The command `detector demo`."""

import webbrowser
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from detector.commands.stages import run_stages
from detector.data.toybox import draw_toybox
from detector.utils.command_line import next_step
from detector.utils.files import read_json

CLASSES = "car", "house", "robot"  # of Toybox's six, which need three times the steps
# Fewer images, proposals and steps than configs/toybox_pcl.yaml: minutes on two cores (docs/quick_start.md).
KEYS = {
    "DATASETS.CLASSES": list(CLASSES),
    "PROPOSALS.MAX_COUNT": 150,
    "SOLVER.MAX_ITER": 500,
    "SOLVER.WARMUP_ITERS": 50,
    "SOLVER.PICTURE_PERIOD": 50,
    "SOLVER.CHECKPOINT_PERIOD": 100,  # so that little is lost where it is interrupted
    "SELF_TRAIN.MAX_ITER": 200,
}


def run(options: Namespace) -> None:
    report = demo(options.folder)
    print(f"report    {report}")
    if not options.no_browser:
        webbrowser.open(report.resolve().as_uri())
    print("next, with pictures of your own and their tags (docs/quick_start.md):")
    next_step("detector", "init", "FOLDER_OF_PICTURES")


def demo(folder: Path, overrides: Sequence[object] = (), *, train: int = 240, test: int = 60) -> Path:
    """Draw Toybox into a folder, train both detectors on it, and write the report, whose path is returned.

    What an earlier call has finished is not done again.

    Args:
        overrides: keys of the config to change, as words.
        train, test: numbers of images of the splits.

    Raises:
        UserError, OSError: as :func:`run_stages`.
    """
    toybox, run_folder = folder / "toybox", folder / "run"
    if not toybox.exists():
        shown = ", ".join(CLASSES)
        print(f"draws {train} images to train on and {test} to test on, of {shown}: {toybox}", flush=True)
        draw_toybox(toybox, train=train, test=test, classes=CLASSES)
    keys: dict[str, object] = {
        "DATASETS.ROOT": toybox,
        "DATASETS.PROPOSALS": toybox / "proposals.npz",
        "OUTPUT_DIR": run_folder,
    }
    keys |= KEYS
    run_stages("toybox_pcl", [*(str(word) for pair in keys.items() for word in pair), *map(str, overrides)])
    student = run_folder / "self_train"
    reached = read_json(student / "metrics.json")["mAP50"]
    print(f"\nlearned from tags alone: boxes with mAP50 {reached:.1f} in images not used in training")
    return student / "report.html"

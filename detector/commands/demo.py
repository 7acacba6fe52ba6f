"""The command `detector demo`."""

import webbrowser
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from detector.commands.stages import run_stages
from detector.data.toybox import draw_toybox
from detector.utils.command_line import next_step
from detector.utils.files import read_json

# Half of the images and of the steps of configs/toybox_pcl.yaml, or less: five minutes on two cores.
STEPS = {
    "SOLVER.MAX_ITER": 900,
    "SOLVER.PICTURE_PERIOD": 90,
    "SOLVER.CHECKPOINT_PERIOD": 150,  # so that little is lost where it is interrupted
    "SELF_TRAIN.MAX_ITER": 300,
}


def run(options: Namespace) -> None:
    report = demo(options.folder)
    print(f"report    {report}")
    if not options.no_browser:
        webbrowser.open(report.resolve().as_uri())
    print("next, with pictures of your own and their tags (docs/quick_start.md):")
    next_step("detector", "init", "FOLDER_OF_PICTURES")


def demo(folder: Path, overrides: Sequence[object] = (), *, train: int = 300, test: int = 100) -> Path:
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
        print(f"draws {train} images to train on and {test} to test on: {toybox}", flush=True)
        draw_toybox(toybox, train=train, test=test)
    keys: dict[str, object] = {
        "DATASETS.ROOT": toybox,
        "DATASETS.PROPOSALS": toybox / "proposals.npz",
        "OUTPUT_DIR": run_folder,
    }
    keys |= STEPS
    run_stages("toybox_pcl", [*(str(word) for pair in keys.items() for word in pair), *map(str, overrides)])
    student = run_folder / "self_train"
    reached = read_json(student / "metrics.json")["mAP50"]
    print(f"\nlearned from tags alone: boxes with mAP50 {reached:.1f} in images not used in training")
    return student / "report.html"

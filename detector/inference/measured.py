"""Which of a run's two detectors was measured to be better, and how boxes are measured where none were."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from detector.config import load_cfg
from detector.config.settings import DatasetSettings
from detector.data.datasets.image_labels import find_table
from detector.utils.distributed import is_main
from detector.utils.errors import UserError
from detector.utils.files import file_digest, read_json

_TEST_DATA = ("tags", "boxes", "iscrowd regions")  # of `truth` in metrics.json, what is of the test split
TO_MEASURE = 20  # images to draw boxes in, for a first figure


class Comparison(NamedTuple):
    """The weak detector and the student of a run folder, both tested on the same ground-truth boxes."""

    run: Path
    weak: float  # mAP50 in percent
    student: float
    boxes: str  # how many

    @property
    def better(self) -> Literal["weak", "student"]:
        return "weak" if self.weak > self.student else "student"

    def __str__(self) -> str:
        figures = f"weak detector {self.weak:.1f}, its student {self.student:.1f} mAP50 on the same"
        other = "student" if self.better == "weak" else "weak"
        better = "weak detector" if self.better == "weak" else "student"
        return (
            f"{self.run}: {figures} {self.boxes} boxes; the {better} stands for the run "
            f"(--model {other} takes the other)"
        )


def compare(run: Path) -> Comparison | None:
    """The own tests of both detectors of a run folder; None if they were not both measured on the same boxes.

    A test of other weights than those that are there, or before labels or boxes changed, does not count.
    """
    weak, student = (own_metrics(folder) for folder in (run, run / "self_train"))
    if weak is None or student is None:
        return None
    before, after = weak["truth"], student["truth"]
    if any(before.get(part) != after.get(part) for part in _TEST_DATA):
        return None
    count = str(after.get("boxes", "")).partition(",")[0]
    return Comparison(run, weak["mAP50"], student["mAP50"], count)


def own_metrics(folder: Path) -> dict[str, Any] | None:
    """The metrics of the model_final.pt in a folder; None without AP, or if they are of other weights."""
    path, weights = folder / "metrics.json", folder / "model_final.pt"
    try:
        metrics = read_json(path)
        measured = isinstance(metrics.get("mAP50"), float | int) and isinstance(metrics.get("truth"), dict)
        return metrics if measured and metrics.get("weights_sha256") == file_digest(weights) else None
    except (UserError, OSError):  # a missing or damaged file measures nothing; `detector report` names it
        return None


def stands_for(run: Path) -> tuple[Literal["weak", "student"], str]:
    """Which detector of a run folder stands for it, and why, in one line; "" where there is only one.

    The student, unless the weak detector was measured to be better on the same boxes: a student that learned
    from wrong boxes, or for too few steps, may be far worse.
    """
    weak, student = ((folder / "model_final.pt").is_file() for folder in (run, run / "self_train"))
    if not (weak and student):
        return ("student" if student else "weak"), ""
    if comparison := compare(run):
        return comparison.better, str(comparison)
    return "student", (
        f"{run}: the student stands for the run; whether it is better than the weak detector is not known, "
        "as not both were measured on the same boxes (--model weak takes the other)"
    )


def how_to_measure(data: DatasetSettings, run: Path) -> list[str]:
    """The commands that measure the boxes of a run whose test split has none: label, import, test.

    Only tables of image labels can be without boxes. A person corrects the boxes between the first two.
    """
    if data.format != "image_labels":
        return []
    table = nearby(find_table(data.root, data.test_split))
    output = nearby(run if run.is_dir() else run.parent) / "boxes_to_correct"
    chosen = ("--count", TO_MEASURE, "--format", "label-studio")
    commands: list[tuple[object, ...]] = [
        ("label", run, "--labels", table, *chosen, "--output", output),
        ("review-import", "export.json", "--table", table),
        ("test", run),
    ]
    return [shlex.join(["detector", *map(str, words)]) for words in commands]


def left_to_measure(run: Path) -> list[str]:
    """The commands of :func:`how_to_measure` if the test of the run had no boxes to measure; else none."""
    run = run.parent if run.name == "self_train" else run
    folder = run / "self_train" if stands_for(run)[0] == "student" else run
    if not all((folder / name).is_file() for name in ("config.yaml", "model_final.pt", "metrics.json")):
        return []
    if read_json(folder / "metrics.json").get("mAP50") is not None:
        return []
    return how_to_measure(load_cfg(folder / "config.yaml").datasets, run)


def unmeasured(metrics: Mapping[str, Any], test_name: str) -> str:
    """What to say first of metrics without AP; "" if there is AP."""
    if metrics.get("mAP50") is not None:
        return ""
    return (
        f"AP50 was not measured, as no image of {test_name} has ground-truth boxes: how good the boxes are "
        "is not known. Image AP rates the labels of whole images alone and may be high where boxes are wrong"
    )


def nearby(path: Path) -> Path:
    """The path relative to the working directory if it is below."""
    path, here = path.resolve(), Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def print_how_to_measure(run: Path) -> None:
    """Name the commands that measure the boxes of a run folder, if its test had no boxes to measure with."""
    if is_main() and (commands := left_to_measure(run)):
        print("next: measure the boxes; correct them in the labeling tool between the first two commands")
        print("".join(f"  {command}\n" for command in commands), end="")

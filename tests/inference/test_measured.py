"""Which detector of a run folder stands for it, and what is said where no boxes were measured."""

import json
from pathlib import Path

import pytest

from detector.inference.load import choose_run
from detector.inference.measured import stands_for, unmeasured
from detector.utils.files import file_digest

TRUTH = {"tags": "3, sha256 a", "boxes": "9, sha256 b", "iscrowd regions": "0, sha256 c"}


def measured(folder: Path, ap: float | None, truth: dict[str, str]) -> None:
    folder.mkdir()
    (folder / "config.yaml").touch()
    (folder / "model_final.pt").write_text(folder.name)
    metrics = {"mAP50": ap, "truth": truth, "weights_sha256": file_digest(folder / "model_final.pt")}
    (folder / "metrics.json").write_text(json.dumps(metrics))


@pytest.mark.parametrize(
    ("weak", "student", "truth", "chosen"),
    [
        (29.2, 13.4, TRUTH, "weak"),
        (13.4, 29.2, TRUTH, "student"),
        (20.0, 20.0, TRUTH, "student"),
        (29.2, None, TRUTH, "student"),
        (29.2, 13.4, TRUTH | {"boxes": "8, sha256 d"}, "student"),
    ],
)
def test_the_better_of_two_that_were_measured_on_the_same_boxes(tmp_path, weak, student, truth, chosen):
    run = tmp_path / "run"
    measured(run, weak, TRUTH)
    measured(run / "self_train", student, truth)
    found, why = stands_for(run)
    comparable = student is not None and truth == TRUTH
    assert found == chosen
    assert (f"{weak:.1f}, its student" in why) == comparable
    assert ("is not known" in why) != comparable
    assert choose_run(run) == (run if chosen == "weak" else run / "self_train")
    assert (choose_run(run, "weak"), choose_run(run, "student")) == (run, run / "self_train")


def test_a_test_of_other_weights_does_not_count(tmp_path):
    measured(tmp_path / "run", 29.2, TRUTH)
    measured(tmp_path / "run" / "self_train", 13.4, TRUTH)
    (tmp_path / "run" / "model_final.pt").write_text("trained anew")
    assert stands_for(tmp_path / "run")[0] == "student"


def test_without_boxes_this_is_said():
    assert unmeasured({"mAP50": 0.0}, "toys") == ""
    assert "AP50 was not measured, as no image of toys" in unmeasured({"mAP50": None}, "toys")

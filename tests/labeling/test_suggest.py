"""detector suggest: tasks for a labeling tool, of the images to box next."""

import json
import shutil
from itertools import count as count_up
from pathlib import Path

import numpy as np
import pytest
import torch
from random_run import make_student, make_toybox_run

from detector.commands.main import main
from detector.config import load_cfg
from detector.data.build import build_dataset
from detector.data.formats import review_import
from detector.labeling import suggest as suggesting
from detector.labeling.label import import_reviewed
from detector.labeling.suggest import RULES, suggest
from detector.structures import Scores
from detector.utils.errors import UserError

pytestmark = pytest.mark.usefixtures("process_as_before")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_toybox_run(tmp_path_factory.mktemp("few"), train=8)


@pytest.fixture(scope="module")
def with_student(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = shutil.copytree(run, tmp_path_factory.mktemp("student") / "run")
    make_student(copy)
    return copy


def suggested(run: Path, output: Path, by: str = "entropy", count: int = 3, words=(), formats=("coco",)):
    return suggest(str(run), words, count=count, by=by, output=output, formats=formats)


@pytest.mark.parametrize("by", [rule for rule in RULES if rule != "disagreement"])
def test_each_rule_chooses_different_images_with_their_boxes(run: Path, tmp_path: Path, by: str) -> None:
    found = suggested(run, tmp_path / "next", by)
    ids = (tmp_path / "next" / "images.txt").read_text().split()
    assert len(set(ids)) == 3
    assert [image.name for image in found] == [f"{image_id}.jpg" for image_id in ids]
    read = review_import(tmp_path / "next" / "coco.json", reviewed="all")
    assert [(image.name, len(image.boxes)) for image in read] == [(i.name, len(i.boxes)) for i in found]
    assert suggested(run, tmp_path / "next", by) == found


def test_an_image_in_which_a_teacher_lacks_a_tagged_class_comes_first(run: Path, tmp_path: Path) -> None:
    cfg = load_cfg(run / "config.yaml")
    dataset = build_dataset(cfg, cfg.datasets.train_split)
    most = int(dataset.all_labels().sum(axis=0).argmax())
    odd = int(np.flatnonzero(dataset.all_labels()[:, most])[1])
    teacher = {}
    for index, image_id in enumerate(dataset.image_ids):
        labels = {int(label) for label in np.flatnonzero(dataset.all_labels()[index])}
        shown = [dataset.class_names[label] for label in labels - ({most} if index == odd else set())]
        teacher[image_id] = [
            {"label": name, "box": [0, 0, *dataset.image_size(index)[::-1]]} for name in shown
        ]
    (tmp_path / "found.json").write_text(json.dumps(teacher))
    keys = ("DATASETS.TEACHER", tmp_path / "found.json")
    found = suggested(run, tmp_path / "next", "disagreement", 1, keys)
    assert found[0].name == f"{dataset.image_ids[odd]}.jpg"
    with pytest.raises(UserError, match=r"compares tags with a teacher: name its file, DATASETS\.TEACHER"):
        suggested(run, tmp_path / "none", "disagreement")


def test_large_pictures_are_seen_in_tiles(with_student: Path, tmp_path: Path) -> None:
    found = suggested(with_student, tmp_path / "next", words=("INPUT.TILE", "80"))
    assert len(found) == 3
    assert all(image.boxes for image in found)


@pytest.fixture
def candidates(run: Path) -> dict[int, str]:
    """Rows and names of three images of the most frequent class, of which the first suggestion is one."""
    cfg = load_cfg(run / "config.yaml")
    dataset = build_dataset(cfg, cfg.datasets.train_split)
    labels = dataset.all_labels()
    rows = np.flatnonzero(labels[:, labels.sum(axis=0).argmax()])[:3].tolist()
    assert len(rows) == 3
    return {row: f"{dataset.image_ids[row]}.jpg" for row in rows}


def favor(monkeypatch: pytest.MonkeyPatch, function: str, values: dict[int, float]) -> None:
    """Replace a function of one image, or of all, by one that has these values for some, and 0 for others."""
    if function == "typicality":
        rows, given = torch.tensor([*values]), torch.tensor([*values.values()])
        monkeypatch.setattr(
            suggesting, function, lambda features: torch.zeros(len(features)).index_put((rows,), given)
        )
    else:
        calls = count_up()
        monkeypatch.setattr(suggesting, function, lambda *_: values.get(next(calls), 0.0))


@pytest.mark.parametrize(("by", "function"), [("entropy", "entropy"), ("typical", "typicality")])
def test_the_image_that_a_rule_values_most_comes_first(
    run: Path, tmp_path: Path, monkeypatch, candidates: dict[int, str], by: str, function: str
) -> None:
    found = []
    for row in candidates:
        favor(monkeypatch, function, {row: 1.0})
        found += suggested(run, tmp_path / str(row), by, count=1)
    assert [image.name for image in found] == list(candidates.values())


def test_information_density_values_images_that_are_uncertain_and_typical(
    run: Path, tmp_path: Path, monkeypatch, candidates: dict[int, str]
) -> None:
    for both in candidates:
        uncertain, typical = candidates.keys() - {both}
        favor(monkeypatch, "entropy", {uncertain: 1.0, both: 0.6})
        favor(monkeypatch, "typicality", {typical: 1.0, both: 0.6})
        (found,) = suggested(run, tmp_path / str(both), "information-density", count=1)
        assert found.name == candidates[both]


def test_classes_with_counts_are_tags_of_their_images(run: Path, tmp_path: Path) -> None:
    cfg = load_cfg(run / "config.yaml")
    dataset = build_dataset(cfg, cfg.datasets.train_split)
    absent = [dataset.class_names[column] for column in dataset.all_labels().argmin(axis=1)]
    counts = zip(dataset.image_ids, absent, strict=True)
    lines = [json.dumps({"file": image_id, "counts": {name: 1}}) for image_id, name in counts]
    hints = tmp_path / "hints.jsonl"
    hints.write_text("\n".join(lines))
    found = suggested(run, tmp_path / "next", count=8, words=("DATASETS.HINTS", str(hints)))
    boxed = {image.name.removesuffix(".jpg"): {box.label for box in image.boxes} for image in found}
    assert all(name in boxed[image_id] for image_id, name in zip(dataset.image_ids, absent, strict=True))


def test_reviewed_images_are_not_suggested_again(run: Path, tmp_path: Path) -> None:
    first = suggested(run, tmp_path / "first", count=5)
    import_reviewed(tmp_path / "first" / "coco.json", tmp_path / "reviewed.json", reviewed="all")
    words = ("DATASETS.BOXED", str(tmp_path / "reviewed.json"))
    second = suggested(run, tmp_path / "second", count=5, words=words)
    assert len(second) == 3
    assert not {image.name for image in first} & {image.name for image in second}
    with pytest.raises(UserError, match="all 8 images"):
        suggested(run, tmp_path / "third", words=("DATASETS.BOXED_SHARE", "1.0"))


@pytest.mark.parametrize("name", ["images.txt", "coco.json", "tasks.json"])
def test_the_tasks_of_someone_else_stay(run: Path, tmp_path: Path, monkeypatch, name: str) -> None:
    """That is an error before any image is read."""
    monkeypatch.setattr(suggesting, "assess", lambda *_: pytest.fail("the images are assessed"))
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match=f"{name} exists"):
        suggested(run, tmp_path, formats=("coco", "label-studio"))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]


def test_all_formats_are_written(run: Path, tmp_path: Path) -> None:
    words = ["suggest", str(run), "-n", "2", "--by", "random", "--output", str(tmp_path / "next")]
    assert main([*words, "--format", "coco", "--format", "label-studio", "--format", "coco"]) == 0
    for name in ("coco.json", "tasks.json"):
        assert len(review_import(tmp_path / "next" / name, reviewed="all")) == 2
    assert main([*words[:-1], str(tmp_path / "default")]) == 0
    assert (tmp_path / "default" / "tasks.json").is_file()
    assert not (tmp_path / "default" / "coco.json").exists()


def test_the_detector_that_stands_for_the_run_finds_the_boxes(with_student, tmp_path, monkeypatch) -> None:
    """The weak one chooses the images; `--model` names another for their boxes."""
    run, boxes = with_student, {}
    for model in ("auto", "weak", "student"):
        found = suggest(str(run), (), count=3, by="entropy", output=tmp_path / model, model=model)
        boxes[model] = {image.name: image.boxes for image in found}
    assert boxes["auto"] == boxes["student"] != boxes["weak"]
    assert list(boxes["weak"]) == list(boxes["student"])
    with monkeypatch.context() as patch:  # as measured
        patch.setattr("detector.inference.load.stands_for", lambda _: ("weak", "the weak detector stands"))
        found = suggested(run, tmp_path / "measured")
    assert {image.name: image.boxes for image in found} == boxes["weak"]
    with pytest.raises(UserError, match="exists"):  # another's boxes are not replaced
        suggest(str(run), (), count=3, by="entropy", output=tmp_path / "weak", model="student")


class OnGPU:
    """Scores that nothing can use before they are on the CPU, where the labels are."""

    def __init__(self, scores: Scores) -> None:
        self.to = lambda device: scores.to(device) if device == "cpu" else self


def test_scores_of_a_gpu_are_moved_to_the_labels(run: Path, tmp_path: Path, monkeypatch) -> None:
    found, predict = suggested(run, tmp_path / "cpu"), suggesting.predict
    monkeypatch.setattr(suggesting, "predict", lambda *args, **keys: map(OnGPU, predict(*args, **keys)))
    assert suggested(run, tmp_path / "gpu") == found


def test_a_run_that_was_moved(run: Path, tmp_path: Path) -> None:
    """The detector in the folder that is named finds the boxes, not that of the folder in its config."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / "model_final.pt").write_bytes(b"another detector")
    with pytest.raises(UserError, match=r"copy/model_final\.pt is damaged"):
        suggested(copy, tmp_path / "next")
    found = suggested(copy, tmp_path / "next", words=("OUTPUT_DIR", str(run)))
    assert found == suggested(run, tmp_path / "same")


def test_the_folder_is_locked_while_images_are_scored(run: Path, tmp_path: Path, monkeypatch) -> None:
    assess, seen = suggesting.assess, []

    def look(*arguments):
        seen.append((tmp_path / "next" / ".lock").exists())
        return assess(*arguments)

    monkeypatch.setattr(suggesting, "assess", look)
    suggested(run, tmp_path / "next")
    assert seen == [True]
    assert not (tmp_path / "next" / ".lock").exists()


@pytest.mark.parametrize(("precision", "expected"), [("tf32", "tf32"), ("float32", "ieee")])
def test_it_runs_as_the_config_says(run: Path, tmp_path: Path, monkeypatch, precision, expected) -> None:
    assess, seen = suggesting.assess, []

    def look(*arguments):
        seen.append(torch.backends.cuda.matmul.fp32_precision)
        return assess(*arguments)

    monkeypatch.setattr(suggesting, "assess", look)
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    suggested(run, tmp_path / "next", words=("PRECISION", precision, "THREADS", 3))
    assert seen == [3, expected]
    assert "the weak detector" in (tmp_path / "next" / "log.txt").read_text()


def test_without_a_detector_the_folder_is_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"third \(OUTPUT_DIR\) does not exist.*train first"):
        suggested(run, tmp_path / "next", words=("OUTPUT_DIR", str(tmp_path / "third")))
    with pytest.raises(UserError, match=r"there is no run folder .*third: train first"):
        suggested(tmp_path / "third", tmp_path / "next")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "at least 1"),
        ({"by": "best"}, "information-density"),
        ({"formats": ["coco", "csv"]}, "the format is 'csv'"),
    ],
)
def test_bad_arguments(run: Path, tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        suggested(run, tmp_path, **options)


def test_a_random_choice_depends_on_the_seed(run: Path, tmp_path: Path) -> None:
    chosen = {
        tuple(image.name for image in suggested(run, tmp_path / str(seed), "random", words=("SEED", seed)))
        for seed in range(3)
    }
    assert len(chosen) > 1

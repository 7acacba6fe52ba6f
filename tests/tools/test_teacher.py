"""From a teacher's file to a detector, and what `detector check --teacher` says of it."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from detector.config import load_cfg
from detector.data.build import build_training_set
from detector.data.datasets.voc import VOCDataset
from detector.data.toybox import CLASSES
from detector.self_training import trials
from detector.self_training.pseudo_set import read_weights
from detector.utils.errors import UserError

CONFIG = str(Path(__file__).parents[2] / "configs" / "toybox_pcl.yaml")


@pytest.fixture
def dataset(toybox):
    return VOCDataset(toybox, "trainval", CLASSES)


def write_found(path, dataset, names=CLASSES):
    """The ground truth as a teacher's file; its names of the classes are `names`."""
    found = {}
    for index, image_id in enumerate(dataset.image_ids):
        truth = dataset.annotation(index)
        pairs = zip(truth.labels.tolist(), truth.boxes.tolist(), strict=True)
        found[image_id] = [{"label": names[label], "box": box, "score": 0.8} for label, box in pairs]
    path.write_text(json.dumps(found))
    return path


@pytest.fixture
def keys(overrides):
    words = ["SELF_TRAIN.SIZES", "(48,)", "SELF_TRAIN.MAX_ITER", "2", "SELF_TRAIN.IMAGES_PER_BATCH", "1"]
    return ["--config-file", CONFIG, *overrides, *words, "SOLVER.MAX_ITER", "1"]


@pytest.fixture
def tried(tmp_path, monkeypatch):
    """The names of the trials. Only the first one is trained; the others get its weights, for time."""
    names, train, kept = [], trials.train_detector, tmp_path / "trained"

    def train_once(run, *rest):
        names.append(run.folder.name)
        if not kept.exists():
            train(run, *rest)
            shutil.copytree(run.folder, kept)
        shutil.copytree(kept, run.folder, dirs_exist_ok=True)

    monkeypatch.setattr(trials, "train_detector", train_once)
    return names


def test_train_with_a_teacher(command, keys, dataset, tmp_path, capsys):
    names = [f"a {name}." for name in CLASSES[:-1]] + ["android"]
    path = write_found(tmp_path / "found.json", dataset, names)
    (tmp_path / "classes.csv").write_text(f"teacher,class\nandroid,{CLASSES[-1]}\n")
    words = ["--to", "detector", "--teacher", path, "DATASETS.TEACHER_CLASSES", tmp_path / "classes.csv"]
    keys += ["--effort", "1"]
    assert command("train")([*keys, *words]) == 0
    folder = tmp_path / "run" / "self_train"
    values = json.loads((folder / "teacher.json").read_text())
    assert set(values) == set(CLASSES)
    shown = [name for name, count in zip(CLASSES, dataset.all_labels().sum(axis=0), strict=True) if count]
    assert all(values[name]["recall"] == 1 and values[name]["denied"] == 0 for name in shown)
    assert all(set(of_class["image_AP"]) == {"tags", "both", "teacher"} for of_class in values.values())
    assert not (folder / "trials").exists()
    weights = torch.cat(read_weights(folder / "pseudo", "trainval"))
    assert len(weights)
    assert float(weights.min()) >= 0.1
    assert float(weights.max()) <= 1
    assert json.loads((folder / "metrics.json").read_text())["pseudo_boxes"]["count"] == len(weights)
    capsys.readouterr()

    assert command("train")([*keys, *words]) == 0  # all stages are done
    assert command("check")([*keys[:-2], *words[2:]]) in (0, 1)  # with what the trials say
    printed = capsys.readouterr().out
    assert "image AP from teacher" in printed
    report = json.loads((tmp_path / "run/check/teacher.json").read_text())
    assert {name: each["advice"] for name, each in report.items()} == {
        name: each["advice"] for name, each in values.items()
    }
    path.write_text(path.read_text().replace("0.8", "0.7"))
    assert command("train")([*keys, *words]) == 2
    assert "boxes of the teacher" in capsys.readouterr().err


@pytest.mark.usefixtures("tried")
def test_tags_a_teacher_and_a_person_together(command, keys, dataset, tmp_path):
    """Images with reviewed boxes have these alone; in the others the teacher's boxes are beside ours."""
    path = write_found(tmp_path / "found.json", dataset)
    boxed = ["DATASETS.BOXED_SHARE", "0.25", "SOLVER.BOXED_SHARE", "0.5"]
    assert command("train")([*keys, "--to", "detector", "--teacher", path, *boxed]) == 0
    cfg = load_cfg(tmp_path / "run" / "config.yaml")
    training_set = build_training_set(cfg)
    reviewed, teacher = training_set.reviewed, training_set.teacher
    assert 0 < len(reviewed) < len(dataset) == len(teacher)
    folder = tmp_path / "run" / "self_train" / "pseudo"
    learned = VOCDataset(folder, "trainval", CLASSES)
    weights = read_weights(folder, "trainval")
    has_boxes_of_teacher = False
    for index, image_id in enumerate(dataset.image_ids):
        boxes = learned.annotation(index).boxes
        if image_id in reviewed:
            torch.testing.assert_close(boxes, reviewed[image_id].boxes, atol=0.01, rtol=0)
            assert weights[index].tolist() == [1] * len(boxes)
        else:
            same = torch.cdist(boxes, teacher[image_id].boxes).amin(dim=1) < 0.1
            has_boxes_of_teacher |= bool((same & (weights[index] < 1)).any())
    assert has_boxes_of_teacher


def test_check(command, keys, dataset, tmp_path, capsys):
    path = write_found(tmp_path / "found.json", dataset)
    check = [*keys, "PROPOSALS.MIN_SIZE", "1", "--teacher", path]
    assert command("check")(check) == 0
    told = capsys.readouterr().out
    assert "found where tagged  found where denied  boxes beyond chance  agree with ours" in told
    assert "is not known before there is" in told
    report = json.loads((tmp_path / "run/check/teacher.json").read_text())
    assert {report[name]["agreement"] for name in CLASSES} == {None}
    assert "with tags" in {report[name]["advice"] for name in CLASSES}  # nobody has judged the places
    assert "alone" not in {report[name]["advice"] for name in CLASSES}

    assert command("train")(keys) == 0
    assert command("check")(check) == 0
    assert "is not known" not in capsys.readouterr().out
    report = json.loads((tmp_path / "run/check/teacher.json").read_text())
    with Image.open(tmp_path / "run/check/teacher.png") as sheet:
        assert sheet.width == 4 * 320
    assert all(0 <= (report[name]["agreement"] or 0) <= 1 for name in CLASSES)

    path.write_text(
        json.dumps({dataset.image_ids[0]: [{"label": CLASSES[0], "box": [0, 0, 9, 9], "score": 7}]})
    )
    assert command("check")(check) == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert "has the score 7" in error


def test_trials_of_a_stopped_run_go_on_or_begin_anew(command, keys, dataset, tmp_path, tried, monkeypatch):
    """They go on with the same weights, tags and config, else they are made again."""
    path = write_found(tmp_path / "found.json", dataset)
    assert command("train")([*keys]) == 0
    train, stop = trials.train_detector, 3

    def train_some(*arguments):
        if len(tried) == stop:
            raise UserError("stopped")
        train(*arguments)

    monkeypatch.setattr(trials, "train_detector", train_some)
    words = [*keys, "DATASETS.TEACHER", path]
    assert command("self-train")(words) == 2
    stop = 99
    assert command("self-train")([*words, "SELF_TRAIN.RELATIVE_SCORES", "False"]) == 0
    assert tried[3:] == ["tags_0", "tags_1", "both_0", "both_1", "teacher_0", "teacher_1"]
    shutil.rmtree(tmp_path / "run/self_train")

    tried.clear()
    stop = 3
    assert command("self-train")(words) == 2
    stop = 99
    assert command("self-train")(words) == 0
    assert tried[3:] == ["both_1", "teacher_0", "teacher_1"]

"""`detector self-train`: from a weak detector to one that was trained on its boxes."""

import json
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

import detector
from detector.data.datasets.voc import VOCDataset
from detector.data.formats import review_import
from detector.data.proposals import load_proposals, save_proposals
from detector.data.toybox import CLASSES
from detector.modeling.merge_tiles import merge_tiles
from detector.self_training.pseudo_set import read_reviewed_counts

CONFIG = str(Path(__file__).parents[2] / "configs" / "toybox_pcl.yaml")
PRESS_CTRL_C = patch("detector.self_training.pseudo_boxes.predict_all", side_effect=KeyboardInterrupt)


@pytest.fixture
def keys(overrides):
    values = {
        "SELF_TRAIN.SIZES": "(48,)",
        "SELF_TRAIN.MAX_ITER": 2,
        "SELF_TRAIN.IMAGES_PER_BATCH": 1,
        "SOLVER.CHECKPOINT_PERIOD": 1,
        "SOLVER.MAX_ITER": 1,
    }
    return ["--config-file", CONFIG, *overrides, *(str(word) for pair in values.items() for word in pair)]


@pytest.fixture
def weak(command, keys, tmp_path, tmp_path_factory):
    """The run folder of a weak detector, which is trained once for all tests of a process."""
    kept = tmp_path_factory.getbasetemp() / "weak"
    if not kept.exists():
        assert command("train")([*keys, "OUTPUT_DIR", kept]) == 0
    return shutil.copytree(kept, tmp_path / "run")


def test_from_pseudo_boxes_to_figures_and_resumed_to_the_same_bits(weak, command, keys, tmp_path, capsys):
    self_train, folder = command("self-train"), tmp_path / "run" / "self_train"
    with PRESS_CTRL_C:  # while it looks for pseudo boxes
        assert self_train(keys) == 130
    assert "the same command starts over, as there is no checkpoint yet" in capsys.readouterr().err
    assert self_train([*keys, "--resume"]) == 0
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["method"] == "pcl + self-training"
    assert set(metrics["per_class"]) == set(CLASSES)
    pseudo = VOCDataset(folder / "pseudo", "trainval", CLASSES)
    assert metrics["pseudo_boxes"]["count"] == sum(len(pseudo.annotation(i).boxes) for i in range(8))
    assert "pseudo boxes: precision" in capsys.readouterr().out

    assert self_train(keys) == 2
    assert "add --resume" in capsys.readouterr().err
    for words, message in (
        (["SELF_TRAIN.NMS", "0.5"], "was made with other values of SELF_TRAIN.NMS"),
        (["SELF_TRAIN.SIZES", "(64,)"], "began with another config: SELF_TRAIN.SIZES: (48,) -> (64,)"),
        (
            ["SELF_TRAIN.IMAGES_PER_BATCH", "2"],
            "began with another config: SELF_TRAIN.IMAGES_PER_BATCH: 1 -> 2",
        ),
        (["SEED", "3"], "began with another config: SEED: 0 -> 3"),
    ):
        assert self_train([*keys, *words, "--resume"]) == 2
        assert message in capsys.readouterr().err
    whole = torch.load(folder / "model_final.pt", weights_only=True)["model"]
    (folder / "checkpoints" / "000002.pt").unlink()
    (folder / "model_final.pt").unlink()
    (tmp_path / "run").rename(tmp_path / "moved")
    folder = tmp_path / "moved" / "self_train"
    assert self_train([str(tmp_path / "moved"), "--resume"]) == 0
    assert not (tmp_path / "run").exists()
    resumed = torch.load(folder / "model_final.pt", weights_only=True)["model"]
    assert all(resumed[name].equal(value) for name, value in whole.items())


def test_the_mean_of_several_weak_detectors_finds_the_boxes(weak, command, keys, tmp_path, capsys):
    self_train, folder = command("self-train"), weak / "self_train"
    paths, found = [weak / "model_final.pt", tmp_path / "other.pt"], []
    checkpoint = torch.load(paths[0], weights_only=True)
    for name, value in checkpoint["model"].items():
        if name.startswith("head."):
            checkpoint["model"][name] = torch.randn_like(value)
    torch.save(checkpoint, paths[1])
    for chosen in (paths[:1], paths[1:], paths):
        shutil.rmtree(folder, ignore_errors=True)
        weights = [word for path in chosen for word in ("--weights", str(path))]
        assert self_train([*keys, *weights]) == 0
        pseudo = VOCDataset(folder / "pseudo", "trainval", CLASSES)
        found.append(torch.cat([pseudo.annotation(i).boxes for i in range(8)]).flatten().tolist())
    assert found[2] not in found[:2]

    assert self_train([*keys, *weights[:2], "--resume"]) == 2
    assert "was made with other values of weights" in capsys.readouterr().err
    student = shutil.move(folder / "model_final.pt", tmp_path / "student.pt")
    shutil.rmtree(folder)
    assert self_train([*keys, *weights[:2], "--weights", str(student)]) == 2
    assert "is the checkpoint of a student detector, expected that of a weak one" in capsys.readouterr().err


def test_the_average_teaches_and_is_what_is_kept(weak, command, keys, tmp_path, capsys, monkeypatch):
    distorted = []  # batches; the teacher's steps have views of their own

    def distort(model, inputs):
        distorted.extend([inputs] * model.training)

    monkeypatch.setattr("detector.self_training.student.distort_images", distort)
    keys = [*keys, "SELF_TRAIN.STRONG_VIEWS", "True", "SELF_TRAIN.SCALE_JITTER", "(0.5,1.25)"]
    self_train, folder = command("self-train"), tmp_path / "run" / "self_train"
    keys = [*keys, "SELF_TRAIN.TEACHER_STEPS", "4"]
    assert self_train(keys) == 0
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["iteration"] == 4
    assert len(distorted) == 2
    assert metrics["pseudo_boxes"]["count"] > 0
    whole = torch.load(folder / "model_final.pt", weights_only=True)["model"]
    last = torch.load(folder / "checkpoints" / "000004.pt", weights_only=True)["model"]
    assert all(last[f"average.module.{name}"].equal(value) for name, value in whole.items())
    assert any(not last[f"student.{name}"].equal(value) for name, value in whole.items())

    assert self_train([*keys, "SELF_TRAIN.TEACHER_STEPS", "0", "--resume"]) == 2
    assert "SELF_TRAIN.TEACHER_STEPS" in capsys.readouterr().err
    (folder / "checkpoints" / "000004.pt").unlink()
    (folder / "model_final.pt").unlink()
    assert self_train([*keys, "--resume"]) == 0
    resumed = torch.load(folder / "model_final.pt", weights_only=True)["model"]
    assert all(resumed[name].equal(value) for name, value in whole.items())


def test_reviewed_boxes_and_pseudo_boxes_have_weights(command, keys, overrides, tmp_path, capsys):
    """The pseudo set says which boxes are reviewed, and the losses of the student read that."""
    root = overrides[overrides.index("DATASETS.ROOT") + 1]
    source = VOCDataset(root, "trainval", CLASSES)
    boxed = [image_id for i, image_id in enumerate(source.image_ids) if len(source.annotation(i).boxes)][:3]
    (tmp_path / "boxed.txt").write_text("\n".join(boxed))
    keys = [*keys, "DATASETS.BOXED", str(tmp_path / "boxed.txt"), "SELF_TRAIN.IMAGES_PER_BATCH", "4"]
    assert command("train")(keys) == 0
    self_train, folder = command("self-train"), tmp_path / "run" / "self_train"

    def trained(*words):
        shutil.rmtree(folder, ignore_errors=True)
        assert self_train([*keys, *words]) == 0
        return torch.load(folder / "model_final.pt", weights_only=True)["model"]

    plain = trained()
    counts = read_reviewed_counts(folder / "pseudo", "trainval")
    for i, image_id in enumerate(source.image_ids):
        truth, count = source.annotation(i), int(image_id in boxed) * len(source.annotation(i).boxes)
        assert counts[i] == (count, image_id in boxed)
        first = VOCDataset(folder / "pseudo", "trainval", CLASSES).annotation(i)
        assert not count or torch.equal(first.boxes, truth.boxes)
    (read,) = [image for image in review_import(folder / "pseudo") if Path(image.name).stem == boxed[0]]
    assert read.complete

    words = ["SELF_TRAIN.PSEUDO_WEIGHT", "0.25"]
    words += ["SELF_TRAIN.COPY_PASTE", "0.5", "SELF_TRAIN.MOSAIC", "0.5", "SELF_TRAIN.STRONG_VIEWS", "True"]
    words += ["SELF_TRAIN.SCALE_JITTER", "(0.5,1.25)"]
    text = (tmp_path / "boxed.txt").read_text()
    (tmp_path / "boxed.txt").write_text("\n".join(boxed[:2]))  # edited in place
    assert self_train([*keys, "--resume"]) == 2
    error = capsys.readouterr().err
    assert f"{folder / 'pseudo'} was made from other data: reviewed boxes: " in error
    assert f"remove {folder} to start over" in error
    (tmp_path / "boxed.txt").write_text(text)
    found, other = load_proposals(Path(root) / "proposals.npz"), tmp_path / "other.npz"
    save_proposals(other, list(found), [0.5 * each for each in found.values()], found.sizes.tolist())
    assert self_train([*keys, "--resume", "DATASETS.PROPOSALS", other]) == 2
    assert "was made from other data: proposals: " in capsys.readouterr().err
    origin = json.loads((folder / "pseudo_origin.json").read_text())
    del origin["data"]  # as an older version left it
    (folder / "pseudo_origin.json").write_text(json.dumps(origin))
    assert self_train([*keys, "--resume"]) == 0

    whole = trained(*words)
    assert any(not plain[name].equal(value) for name, value in whole.items())
    assert self_train([*keys, "--resume"]) == 2
    assert "SELF_TRAIN.PSEUDO_WEIGHT: 0.25 -> 1.0" in capsys.readouterr().err
    (folder / "checkpoints" / "000002.pt").unlink()
    (folder / "model_final.pt").unlink()
    assert self_train([*keys, *words, "--resume"]) == 0
    resumed = torch.load(folder / "model_final.pt", weights_only=True)["model"]
    assert all(resumed[name].equal(value) for name, value in whole.items())
    steps = ["SELF_TRAIN.TEACHER_STEPS", "1", *words[:2]]
    assert any(not whole[name].equal(value) for name, value in trained(*steps).items())


def test_points_choose_the_boxes(weak, command, keys, overrides, tmp_path):
    root = overrides[overrides.index("DATASETS.ROOT") + 1]
    source, points = VOCDataset(root, "trainval", CLASSES), {}
    for i, image_id in enumerate(source.image_ids):
        truth = source.annotation(i)
        centers = ((truth.boxes[:, :2] + truth.boxes[:, 2:]) / 2).tolist()
        names = [CLASSES[label] for label in truth.labels.tolist()]
        points[image_id] = list(zip(names, centers, strict=True))
    lines = [
        json.dumps({"file": name, "points": [{"label": label, "point": point} for label, point in each]})
        for name, each in points.items()
    ]
    file = tmp_path / "points.jsonl"
    file.write_text("\n".join(lines))
    keys = [*keys, "DATASETS.HINTS", str(file)]
    assert command("self-train")(keys) == 0
    pseudo = VOCDataset(tmp_path / "run" / "self_train" / "pseudo", "trainval", CLASSES)
    boxes = 0
    for i, image_id in enumerate(pseudo.image_ids):
        found = pseudo.annotation(i)
        for (x1, y1, x2, y2), label in zip(found.boxes.tolist(), found.labels.tolist(), strict=True):
            inside = [(x, y) for name, (x, y) in points[image_id] if name == CLASSES[label]]
            assert sum(x1 <= x <= x2 and y1 <= y <= y2 for x, y in inside) == 1
            boxes += 1
    assert 0 < boxes <= sum(map(len, points.values()))


def test_weights_of_other_classes_or_of_another_run_are_refused(weak, command, keys, tmp_path, capsys):
    folder = tmp_path / "run"
    self_train = command("self-train")
    words = ["DATASETS.CLASSES", "['car','bird','fish','flower','house','robot']"]
    assert self_train([*keys, *words]) == 2
    assert "class 1 is 'bird' there and 'car' here" in capsys.readouterr().err
    assert self_train(keys) == 0
    other = torch.load(folder / "model_final.pt", weights_only=True)
    torch.save({**other, "train_seconds": 1.0}, folder / "model_final.pt")
    assert self_train([*keys, "--resume"]) == 2
    assert "was made with other values of weights" in capsys.readouterr().err


def test_weights_that_do_not_fit(weak, command, keys, tmp_path, capsys):
    torch.save({"conv.weight": torch.zeros(1)}, tmp_path / "weights.pth")
    words = ["SELF_TRAIN.WEIGHTS", str(tmp_path / "weights.pth"), "SELF_TRAIN.BACKBONE", "mobilenet_v3"]
    words += ["SELF_TRAIN.CHANNELS", "256"]
    assert command("self-train")([*keys, *words]) == 2
    assert "which does not fit: weights hold no 0.0.weight" in capsys.readouterr().err


def test_a_small_student_begins_with_the_backbone_of_the_weak_detector(weak, command, keys, tmp_path):
    assert command("self-train")([*keys, "SELF_TRAIN.BASE_LR", "1e-20"]) == 0
    weak, student = (
        torch.load(tmp_path / "run" / name, weights_only=True)["model"]
        for name in ("model_final.pt", "self_train/model_final.pt")
    )
    own = [name for name in weak if name.startswith("backbone.")]
    assert len(own) > 20
    assert all(student[name.replace("backbone.", "backbone.body.")].equal(weak[name]) for name in own)


def test_a_student_of_one_stage_goes_through_all_stages(weak, command, keys, tmp_path, capsys):
    self_train, run = command("self-train"), tmp_path / "run"
    keys = [*keys, "SELF_TRAIN.TEACHER_STEPS", "1", "SELF_TRAIN.PSEUDO_WEIGHT", "0.5"]
    one_stage = [*keys, "SELF_TRAIN.DETECTOR", "fcos", "SELF_TRAIN.STRONG_VIEWS", "True"]
    assert self_train(one_stage) == 0
    metrics = json.loads((run / "self_train" / "metrics.json").read_text())
    assert (metrics["iteration"], set(metrics["per_class"])) == (1, set(CLASSES))
    assert "FCOS, after 1 steps" in capsys.readouterr().err
    predictor = detector.load(run, score_threshold=None)
    assert repr(predictor).startswith("Predictor(FCOS, 6 classes")
    found = predictor(torch.randint(256, (3, 40, 60)).byte())
    assert len(found) > 0
    assert found.boxes.amax(dim=0).le(torch.tensor([60, 40, 60, 40])).all()
    assert self_train([*keys, "--resume"]) == 2
    assert "SELF_TRAIN.DETECTOR: fcos -> faster_rcnn" in capsys.readouterr().err.replace("'", "")


def test_a_small_student_needs_a_small_weak_detector(command, keys, capsys):
    assert command("self-train")([*keys, "MODEL.BACKBONE.NAME", "resnet18"]) == 2
    assert "SELF_TRAIN.BACKBONE is 'small', but MODEL.BACKBONE.NAME is 'resnet18'" in capsys.readouterr().err


def test_processes_must_share_the_images_of_a_step(command, keys, monkeypatch, capsys):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert command("self-train")(keys) == 2
    assert "SELF_TRAIN.IMAGES_PER_BATCH is 1, expected a multiple of 2" in capsys.readouterr().err


def test_without_a_weak_detector(command, keys, tmp_path, capsys):
    assert command("self-train")(keys) == 2
    assert "train first, or name another file" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_large_pictures_are_learned_and_tested_in_tiles(command, keys, tmp_path, capsys):
    keys = [*keys, "INPUT.TILE", "80", "INPUT.TILES_PER_STEP", "3", "SELF_TRAIN.TEACHER_STEPS", "2"]
    keys += ["SELF_TRAIN.MOSAIC", "1", "SELF_TRAIN.COPY_PASTE", "1"]
    assert command("train")(keys) == 0
    with patch("detector.self_training.scoring.merge_tiles", side_effect=merge_tiles) as merged:
        assert command("self-train")(keys) == 0
    sizes = {tuple(call.args[1][-1, 2:].tolist()) for call in merged.call_args_list}
    assert sizes
    assert all(max(size) > 80 for size in sizes)
    assert "the student takes whole pictures" not in capsys.readouterr().err
    metrics = json.loads((tmp_path / "run" / "self_train" / "metrics.json").read_text())
    assert (metrics["iteration"], metrics["mAP50"] is None) == (2, False)

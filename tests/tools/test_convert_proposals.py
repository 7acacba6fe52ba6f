"""detector convert-proposals: from a file of another project to one that a run accepts."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from detector.data.datasets.voc import VOCDataset
from detector.data.proposals import load_proposals
from detector.data.toybox import CLASSES

CONFIG = str(Path(__file__).parents[2] / "configs" / "toybox_pcl.yaml")


@pytest.fixture
def convert(command, overrides, tmp_path):
    """Runs the command on Toybox; returns its exit status."""
    keys = ["DATASETS.PROPOSALS", str(tmp_path / "new" / "converted.npz")]
    return lambda *words: command("convert-proposals")(["--config-file", CONFIG, *words, *overrides, *keys])


@pytest.fixture
def files(toybox, tmp_path):
    """The ground-truth boxes as a pickle of Detectron and as JSON lines, of each split."""
    for split in ("trainval", "test"):
        dataset = VOCDataset(toybox, split, CLASSES)
        boxes = [dataset.annotation(i).boxes.numpy() for i in range(len(dataset))]
        content = {
            "boxes": [each - np.array([0, 0, 1, 1]) for each in boxes],
            "indexes": [int(image_id) for image_id in dataset.image_ids],
            "scores": [np.ones(len(each)) for each in boxes],
        }
        (tmp_path / f"{split}.pkl").write_bytes(pickle.dumps(content, 2))
        lines = zip(dataset.image_ids, boxes, strict=True)
        (tmp_path / f"{split}.jsonl").write_text(
            "\n".join(json.dumps({"image": name, "boxes": each.tolist()}) for name, each in lines)
        )
    return tmp_path


@pytest.mark.filterwarnings("ignore:.*made for smaller copies")
@pytest.mark.parametrize(("form", "suffix"), [("detectron", "pkl"), ("jsonl", "jsonl")])
def test_both_splits(convert, files, toybox, tmp_path, capsys, form, suffix):
    train, test = files / f"trainval.{suffix}", files / f"test.{suffix}"
    assert convert("--format", form, "--train", train, "--test", test) == 0
    told = capsys.readouterr().out
    assert "converted.npz: 12 images" in told
    assert f"next: detector train {CONFIG}" in told
    proposals = load_proposals(tmp_path / "new" / "converted.npz")
    for split in ("trainval", "test"):
        dataset = VOCDataset(toybox, split, CLASSES)
        proposals.check(dataset)
        np.testing.assert_allclose(proposals[dataset.image_ids[0]], dataset.annotation(0).boxes, atol=1e-4)
    assert convert("--format", form, "--train", train) == 2  # never over a file that is there
    assert "converted.npz exists: delete it" in capsys.readouterr().err


def test_files_of_the_other_split_are_refused(convert, files, capsys, tmp_path):
    assert convert("--format", "jsonl", "--test", files / "trainval.jsonl") == 2
    assert "trainval.jsonl has no proposals for 4 of 4 images" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.filterwarnings("ignore:.*made for smaller copies")
def test_a_split_in_two_files(convert, files, toybox, tmp_path, capsys):
    """As the code of MIST has VOC's train and val."""
    lines = (files / "trainval.jsonl").read_text().splitlines(keepends=True)
    parts = [files / "train.jsonl", files / "val.jsonl"]
    parts[0].write_text("".join(lines[:3]))
    parts[1].write_text("".join(lines[3:]))
    assert convert("--format", "jsonl", "--train", parts[0], "--train", parts[1]) == 0
    proposals, dataset = (
        load_proposals(tmp_path / "new" / "converted.npz"),
        VOCDataset(toybox, "trainval", CLASSES),
    )
    for i, image_id in enumerate(dataset.image_ids):
        np.testing.assert_allclose(proposals[image_id], dataset.annotation(i).boxes)
    (tmp_path / "new" / "converted.npz").unlink()
    assert convert("--format", "jsonl", "--train", parts[0], "--train", parts[0]) == 2
    assert "train.jsonl and " in capsys.readouterr().err


def test_one_of_several_files_has_no_names(convert, tmp_path, capsys):
    boxes = np.empty((2, 1), dtype=object)
    boxes[:] = [[np.array([[1, 1, 9, 9]])]] * 2
    pytest.importorskip("scipy.io").savemat(tmp_path / "a.mat", {"boxes": boxes})
    twice = ["--train", tmp_path / "a.mat"] * 2
    assert convert("--format", "selective_search", *twice) == 2
    assert "a.mat has no image names" in capsys.readouterr().err


def test_no_file_is_named(convert, capsys):
    assert convert("--format", "jsonl") == 2
    assert "--train FILE or --test FILE, or both, is missing" in capsys.readouterr().err

"""`detector check`: what it says of a sound data set, and of others."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from detector.data.datasets.voc import VOCDataset
from detector.data.proposals import load_proposals, save_proposals
from detector.data.toybox import CLASSES

CONFIG = str(Path(__file__).parents[2] / "configs" / "toybox_pcl.yaml")


@pytest.fixture
def check(command, overrides):
    """Runs the tool on Toybox; returns its exit status."""
    main = command("check")
    return lambda *words: main(
        ["--config-file", CONFIG, *overrides, "PROPOSALS.MIN_SIZE", "1", *map(str, words)]
    )


def test_a_sound_data_set(check, tmp_path, capsys):
    assert check("TEST.PICTURES", "4") == 0
    told = capsys.readouterr().out
    assert "toybox_trainval: 8 images, " in told
    assert "toybox_test: 4 images, " in told
    assert re.search(r"class +images +share +boxes +recall 0\.5 +recall 0\.7\n", told)
    rows = re.findall(r"^all +(\d+) +\d+ +(\S+) +(\S+)$", told, re.MULTILINE)
    assert rows == [("8", "1.000", "1.000"), ("4", "1.000", "1.000")]
    assert "per image (min/median/max)" in told
    assert "fewer than 20 images show" in told
    assert "nearly the same" not in told
    assert f"next: detector train {CONFIG} " in told
    assert {path.name for path in (tmp_path / "run" / "check").glob("[!.]*")} == {"trainval.png", "test.png"}
    assert check() == 0  # its own sheets are replaced


def test_a_picture_of_somebody_else_is_not_replaced(check, tmp_path, capsys):
    sheet = tmp_path / "run" / "check" / "test.png"
    sheet.parent.mkdir(parents=True)
    sheet.write_bytes(b"mine")
    assert check() == 2
    assert f"{sheet} exists and is not what this command wrote there" in capsys.readouterr().err
    assert sheet.read_bytes() == b"mine"


def test_files_that_would_stop_a_run(check, toybox, tmp_path, capsys):
    root = tmp_path / "toybox"
    shutil.copytree(toybox, root)
    first, second, third = sorted((root / "JPEGImages").iterdir())[:3]
    first.write_bytes(first.read_bytes()[:-500])
    shutil.copy(second, third)
    status = check("DATASETS.ROOT", root, "DATASETS.PROPOSALS", tmp_path / "none.npz")
    told = capsys.readouterr()
    assert status == 2
    assert f"error: what would stop a run:\n  image {first} cannot be read" in told.err
    tagged = VOCDataset(root, "trainval", CLASSES)
    tags = [", ".join(CLASSES[c] for c in tagged.labels(i).nonzero()[:, 0]) for i in (1, 2)]
    pair = [f"toybox_trainval {path.stem} ({of})" for path, of in zip((second, third), tags, strict=True)]
    assert " = ".join(pair) in told.out


def test_an_image_in_both_splits_is_a_warning(check, toybox, tmp_path, capsys):
    root = tmp_path / "toybox"
    shutil.copytree(toybox, root)
    of_train, of_test = (
        root / "JPEGImages" / f"{(root / 'ImageSets' / 'Main' / f'{split}.txt').read_text().split()[0]}"
        for split in ("trainval", "test")
    )
    suffix = next((root / "JPEGImages").iterdir()).suffix
    shutil.copy(of_train.with_name(of_train.name + suffix), of_test.with_name(of_test.name + suffix))
    check("DATASETS.ROOT", root, "DATASETS.PROPOSALS", tmp_path / "none.npz")
    told = capsys.readouterr().out
    assert "1 image to test on nearly the same as some to train on" in told
    assert f"{of_train.name} and {of_test.name}" in told


def test_no_proposals_yet_and_proposals_of_another_set(check, toybox, tmp_path, capsys):
    assert check("DATASETS.PROPOSALS", tmp_path / "none.npz") == 0
    told = capsys.readouterr().out
    assert "no proposals at" in told
    assert f"next: detector train {CONFIG} " in told  # which makes them
    assert " --to detector" in told
    assert "recall" not in told
    sound = load_proposals(toybox / "proposals.npz")
    boxes, sizes = list(sound.values()), sound.sizes + np.array([1, 0])
    save_proposals(tmp_path / "other.npz", sound.image_ids, boxes, sizes)
    assert check("DATASETS.PROPOSALS", tmp_path / "other.npz") == 2
    assert "was made for an image" in capsys.readouterr().err


def test_reviewed_boxes(check, toybox, tmp_path, capsys):
    """One image with boxes is of the training split, one of the test split, and one of another set."""
    words = ("DATASETS.PROPOSALS", tmp_path / "none.npz", "DATASETS.BOXED")
    main = toybox / "ImageSets" / "Main"
    names = [(main / f"{split}.txt").read_text().split()[0] for split in ("trainval", "test")]
    for name, file in zip([*names, "other"], [*names, names[0]], strict=True):
        xml = (toybox / "Annotations" / f"{file}.xml").read_text()
        xml = xml.replace("<annotation>", '<annotation verified="yes">').replace(f"{file}.", f"{name}.")
        (tmp_path / "boxes").mkdir(exist_ok=True)
        (tmp_path / "boxes" / f"{name}.xml").write_text(xml)
    assert check(*words, tmp_path / "boxes") == 0
    told = capsys.readouterr()
    assert "toybox_trainval: reviewed boxes in 1 of 8 images" in told.out
    assert "boxes: 1 reviewed image is in toybox_test and not used; 1 reviewed image is in no" in told.err
    assert check(*words, tmp_path / "gone.json") == 2
    assert "gone.json does not exist" in capsys.readouterr().err


def test_own_pictures_without_boxes(check, toybox, tmp_path, capsys):
    root = tmp_path / "mine"
    shutil.copytree(toybox / "JPEGImages", root)
    files = sorted(path.name for path in root.iterdir())
    rows = (f"{file},{'big' if index % 3 else 'small'}" for index, file in enumerate(files))
    (root / "all.csv").write_text("\n".join(rows))
    splits = ("DATASETS.TRAIN_SPLIT", "all", "DATASETS.TEST_SPLIT", "all")
    keys = ("DATASETS.FORMAT", "image_labels", "DATASETS.ROOT", root, "DATASETS.CLASSES", "()", *splits)
    assert check(*keys, "DATASETS.PROPOSALS", tmp_path / "none.npz") == 0
    told = capsys.readouterr().out
    assert "no image has ground-truth boxes: only how well the labels are predicted can be measured" in told
    assert re.search(r"class +images +share\nbig +8 +66\.7 %\nsmall +4 +33\.3 %\nall +12\n", told)
    assert told.count("mine_all: 12 images") == 1


def test_a_class_that_only_reviewed_boxes_and_hints_show(check, toybox, tmp_path, capsys):
    root = tmp_path / "mine"
    shutil.copytree(toybox / "JPEGImages", root)
    files = sorted(path.name for path in root.iterdir())
    (root / "all.csv").write_text(
        "\n".join(f"{file},{'big' * (index % 2)}" for index, file in enumerate(files))
    )
    with Image.open(root / files[0]) as image:
        width, height = image.size
    content = {
        "images": [{"id": 0, "file_name": files[0], "height": height, "width": width}],
        "categories": [{"id": 0, "name": "small"}],
        "annotations": [{"id": 0, "image_id": 0, "category_id": 0, "bbox": [1, 1, 9, 9], "reviewed": True}],
    }
    (tmp_path / "boxes.json").write_text(json.dumps(content))
    (tmp_path / "points.jsonl").write_text(json.dumps({"file": files[1], "counts": {"round": 2}}))
    splits = ("DATASETS.TRAIN_SPLIT", "all", "DATASETS.TEST_SPLIT", "all")
    keys = ("DATASETS.FORMAT", "image_labels", "DATASETS.ROOT", root, *splits)
    keys += ("DATASETS.CLASSES", "big,small,round,none", "DATASETS.PROPOSALS", tmp_path / "none.npz")
    keys += ("DATASETS.BOXED", tmp_path / "boxes.json", "DATASETS.HINTS", tmp_path / "points.jsonl")
    assert check(*keys) == 0
    told = capsys.readouterr().out
    assert "mine_all: 1 of 12 images have points or counts" in told
    assert re.search(r"\nbig +6 +50\.0 %\nsmall +1 +8\.3 %\nround +1 +8\.3 %\nnone +0 +0\.0 %\n", told)
    assert "no image shows 'none', which" in told
    assert "fewer than 20 images show big (6), small (1), round (1)" in told
    (tmp_path / "points.jsonl").write_text("{}")
    assert check(*keys) == 2  # as training would stop
    assert "points.jsonl, line 1" in capsys.readouterr().err


def test_a_strip_among_others_is_named(check, toybox, tmp_path, capsys):
    root = tmp_path / "toybox"
    shutil.copytree(toybox, root)
    first = root / "JPEGImages" / f"{(root / 'ImageSets/Main/trainval.txt').read_text().split()[0]}.jpg"
    Image.new("RGB", (700, 5)).save(first)
    annotation = root / "Annotations" / f"{first.stem}.xml"
    text = re.sub("<object>.*</object>", "", annotation.read_text(), flags=re.DOTALL)
    text = re.sub("<width>.*?</width>", "<width>700</width>", text)
    annotation.write_text(re.sub("<height>.*?</height>", "<height>5</height>", text))
    words = ("DATASETS.ROOT", root, "DATASETS.PROPOSALS", tmp_path / "none.npz", "INPUT.MAX_SIZE", 2000)
    check(*words, "SOLVER.IMAGES_PER_BATCH", 2)
    told = capsys.readouterr().out
    assert f"1 image is over 4 times as long as wide or high, {first}: padded to them" in told


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_would_stop_a_run(check, capsys):
    assert check("DEVICE", "cuda") == 2
    told = capsys.readouterr()
    assert re.search(r"what would stop a run:\n  device is 'cuda', but torch finds no CUDA device", told.err)
    assert "toybox_test: 4 images" in told.out  # all else was looked at

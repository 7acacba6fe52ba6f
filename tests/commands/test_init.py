"""`detector init`: the config that it writes loads, and names its data set."""

import shlex
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from detector.commands import init as starting
from detector.commands.main import main
from detector.config import load_cfg
from detector.data.build import build_dataset, build_reviewed, name_classes
from detector.data.datasets.image_table import picture_name, read_table
from detector.data.datasets.table_writer import replace_table
from detector.data.formats import ReviewImage, encode_review
from detector.data.labeled_box import LabeledBox


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """A folder of ten pictures of cats and ten of dogs, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("cat", "dog"):
        (tmp_path / "my pictures" / name).mkdir(parents=True)
        for i in range(10):
            noise = np.random.default_rng([i, ord(name[0])]).integers(0, 255, (24, 32, 3), dtype=np.uint8)
            Image.fromarray(noise).save(tmp_path / "my pictures" / name / f"{i}.png")
    return tmp_path / "my pictures"


def test_the_config_that_it_writes_is_enough(pictures, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["init", "my pictures"]) == 0
    out = capsys.readouterr().out
    assert "20 pictures, 2 classes (cat, dog)" in out
    assert "16 to train on, 4 to test on" in out
    assert "no GPU, so 64 steps at 320 pixels" in out
    first = "a first try in a third of the time: detector train mine.yaml --quick"
    assert out.endswith(f"{first}\nnext: detector train mine.yaml --to detector\n")
    cfg = load_cfg("mine.yaml")
    assert Path("mine.yaml").read_text().startswith("# Written by: detector init 'my pictures'\n")
    assert (cfg.output_dir, cfg.solver.max_iter, cfg.input.train_sizes) == ("runs/mine", 64, (320,))
    assert cfg.solver.warmup_iters == 12
    train_set = build_dataset(cfg, cfg.datasets.train_split)
    assert train_set.class_names == ("cat", "dog")
    assert len(build_dataset(name_classes(cfg, train_set), cfg.datasets.test_split)) == 4


def test_on_a_gpu_the_sizes_of_the_recipe_stay(pictures, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    command = ["detector", "init", "my pictures", "--output", "odd: name.yaml", "--split-by", "picture"]
    assert main([*command[1:], "--skip-missing"]) == 0
    first = Path("odd: name.yaml").read_text().splitlines()[0]
    assert first == f"# Written by: {shlex.join([*command, '--skip-missing'])}"
    cfg = load_cfg("odd: name.yaml")
    assert (Path(cfg.datasets.root), cfg.solver.max_iter) == (pictures.parent / "odd: name", 500)
    assert cfg.input == load_cfg("own_mist_lite0").input


def test_boxes_that_were_drawn_for_the_table_are_those_of_the_training_images(
    pictures, tmp_path, monkeypatch
):
    names = [f"{name}/{i}.png" for name in ("cat", "dog") for i in range(10)]
    (tmp_path / "labels.csv").write_text("".join(f"{name},{name[:3]}\n" for name in names))
    assert main(["init", "my pictures", "--labels", "labels.csv"]) == 0
    assert (
        Path("mine.yaml")
        .read_text()
        .startswith("# Written by: detector init 'my pictures' --labels labels.csv\n")
    )
    # `detector label` names images as the table does, relative to --images.
    box = LabeledBox("cat", (0, 0, 16, 12), score=0.5)
    images = [ReviewImage(name, (24, 32), (box,) if name.startswith("cat") else ()) for name in names]
    ((name, content),) = encode_review("coco", images, ["cat", "dog"])
    (tmp_path / name).write_bytes(content)
    assert main(["review-import", name, "--output", "reviewed.json", "--reviewed", "all"]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # the config is good in any working directory
    cfg = load_cfg("../mine.yaml", ["DATASETS.BOXED", "../reviewed.json"])
    dataset = build_dataset(cfg, cfg.datasets.train_split)
    assert {f"{image_id}.png" for image_id in dataset.image_ids} < set(names)
    reviewed = build_reviewed(cfg, dataset)
    assert reviewed.keys() == set(dataset.image_ids)
    assert all(len(boxes.boxes) == image_id.startswith("cat") for image_id, boxes in reviewed.items())


@pytest.mark.parametrize(("width", "small"), [(64, False), (8, True)])
def test_known_boxes_tell_the_size_of_objects(pictures, capsys, monkeypatch, width, small):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    names = [f"{name}/{i}.png" for name in ("cat", "dog") for i in range(10)]
    images = [
        ReviewImage(name, size=(24, 32), boxes=(LabeledBox(name[:3], (4, 4, 4 + width / 32, 4 + width / 8)),))
        for name in names
    ]
    ((_, content),) = encode_review("coco", images, ["cat", "dog"])
    (pictures / "boxes.json").write_bytes(content)
    assert main(["init", "my pictures"]) == 0
    out = capsys.readouterr().out
    side = width / 16 / 32
    assert f"median side {100 * side:.0f} % of the picture, {320 * side:.0f} pixels" in out
    assert ("detector propose mine.yaml --tune" in out) == small


@pytest.mark.parametrize(
    ("words", "tile"), [([], 320), (["--tile", "0"], 0), (["--tile", "500"], 500)], ids=str
)
def test_large_pictures_are_cut_into_tiles_unless_told_otherwise(pictures, capsys, monkeypatch, words, tile):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for path in pictures.rglob("*.png"):
        Image.open(path).resize((1600, 30)).save(path)
    assert main(["init", "my pictures", *words]) == 0
    out = capsys.readouterr().out
    assert load_cfg("mine.yaml").input.tile == tile
    assert (f"tiles    pictures are 1600 pixels long, objects are unknown: INPUT.TILE {tile}" in out) == bool(
        tile
    )
    assert load_cfg("mine.yaml").input.train_sizes == (320,)


def test_one_picture_that_is_read_in_parts_asks_for_tiles(pictures, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    path = next(iter(pictures.rglob("*.png")))
    Image.open(path).resize((1600, 30)).save(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20_000)
    assert main(["init", "my pictures"]) == 0
    assert "pictures are 1600 pixels long" in capsys.readouterr().out
    assert load_cfg("mine.yaml").input.tile == 320


def test_small_known_objects_choose_the_tiles(pictures, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    names = [f"{name}/{i}.png" for name in ("cat", "dog") for i in range(10)]
    images = [
        ReviewImage(name, size=(900, 1200), boxes=(LabeledBox(name[:3], (0, 0, 40, 40)),)) for name in names
    ]
    for name in names:
        Image.open(pictures / name).resize((1200, 900), Image.Resampling.NEAREST).save(pictures / name)
    ((_, content),) = encode_review("coco", images, ["cat", "dog"])
    (pictures / "boxes.json").write_bytes(content)
    assert main(["init", "my pictures"]) == 0
    assert load_cfg("mine.yaml").input.tile == 416  # 40 pixels are then 31 of the 320 of the input
    assert (
        "a quarter of the objects less than 40: INPUT.TILE 416 cuts them into 13 views"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("tile", ["large", "-5"])
def test_tiles_of_no_number_are_refused(pictures, capsys, tile):
    assert main(["init", "my pictures", f"--tile={tile}"]) == 2
    assert f"--tile is {tile!r}, expected auto or a number of pixels" in capsys.readouterr().err


def test_known_boxes_of_the_pictures_to_test_on_are_kept(pictures, capsys):
    names = [f"{name}/{i}.png" for name in ("cat", "dog") for i in range(10)]
    images = [ReviewImage(name, (24, 32), (LabeledBox(name[:3], (1.0, 2.0, 9.0, 9.0)),)) for name in names]
    images[3] = ReviewImage(names[3], (48, 64), images[3].boxes)  # a picture to train on, scaled since
    ((_, content),) = encode_review("coco", images, ["cat", "dog"])
    (pictures / "boxes.json").write_bytes(content)
    assert main(["init", "my pictures"]) == 0
    said = capsys.readouterr()
    assert "1 picture has another size there" in said.err
    assert "the first is cat/3.png, (height, width) (48, 64) there, (24, 32) in the file" in said.err
    assert "boxes    of 4 pictures to test on" in said.out
    cfg = load_cfg("mine.yaml", ["DATASETS.CLASSES", ["cat", "dog"]])
    train, val = (build_dataset(cfg, split) for split in (cfg.datasets.train_split, cfg.datasets.test_split))
    assert [train.annotation(i) for i in range(len(train))] == [None] * 16
    assert all(val.annotation(i).boxes.tolist() == [[1, 2, 9, 9]] for i in range(len(val)))
    # The tables that it wrote may be those of another config.
    assert main(["init", "mine", "--output", "second.yaml"]) == 0
    assert Path("second/val.jsonl").read_text() == Path("mine/val.jsonl").read_text()


def test_a_class_that_means_no_class(pictures, capsys):
    (pictures / "cat").rename(pictures / "other")
    assert main(["init", "my pictures"]) == 0
    said = capsys.readouterr()
    assert "other will be learned and boxed like every other class" in said.err
    assert "add --no-class other;" in said.err
    assert "2 classes (dog, other)" in said.out
    assert main(["init", "my pictures", "--no-class", "Other", "--output", "told.yaml"]) == 0
    assert "1 class (dog)" in capsys.readouterr().out
    assert main(["init", "--again", "--output", "told.yaml"]) == 0
    assert "other" not in {label for row in read_table(Path("told/train.jsonl"))[0] for label in row.labels}
    assert main(["init", "my pictures", "--no-class", "othr", "--output", "third.yaml"]) == 2
    assert "--no-class 'othr': no picture has this label, but dog, other" in capsys.readouterr().err


def test_none_is_no_class_unless_it_stands_beside_one(pictures, capsys):
    (pictures / "cat").rename(pictures / "None")
    assert main(["init", "my pictures"]) == 0
    said = capsys.readouterr()
    assert "'None' says that no class is shown, in " in said.out + said.err
    assert "1 class (dog)" in said.out
    names = [path.relative_to(pictures).as_posix() for path in sorted(pictures.rglob("*.png"))]
    Path("tags.csv").write_text("file,labels\n" + "".join(f"{name},none\n" for name in names))
    assert main(["init", "my pictures", "--labels", "tags.csv", "--output", "a.yaml"]) == 2
    assert "the only labels are none, which say that a picture shows no class" in capsys.readouterr().err
    assert not Path("a.yaml").exists()
    lines = [f"{name},{'dog;None' if i % 2 else 'dog'}\n" for i, name in enumerate(names)]
    Path("tags.csv").write_text("file,labels\n" + "".join(lines))
    assert main(["init", "my pictures", "--labels", "tags.csv", "--output", "b.yaml"]) == 0
    said = capsys.readouterr()
    assert "2 classes (None, dog)" in said.out
    assert "None will be learned" in said.err


def test_what_exists_is_not_replaced_and_nothing_is_left_behind(pictures, capsys):
    assert main(["init", "nowhere"]) == 2
    assert "nowhere is no folder of pictures" in capsys.readouterr().err
    assert main(["init", "my pictures/cat"]) == 2
    assert "is in no folder that names its class" in capsys.readouterr().err
    assert [path.name for path in pictures.parent.iterdir()] == ["my pictures"]
    (pictures.parent / "mine").mkdir()
    assert main(["init", "my pictures"]) == 2
    assert "already there: mine; name another config with --output" in capsys.readouterr().err
    Path("file").touch()
    assert main(["init", "my pictures", "--output", "file/new.yaml"]) == 2
    assert "file is a file, expected a folder to write to" in capsys.readouterr().err


def test_a_failure_removes_its_own_files_alone(pictures, monkeypatch, capsys):
    def fail(folder, *_):
        (folder / "notes.txt").write_text("of the user, meanwhile")
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(starting, "record_source", fail)
        assert main(["init", "my pictures"]) == 2
    assert [path.name for path in Path("mine").iterdir()] == ["notes.txt"]
    assert not Path("mine.yaml").exists()
    Path("mine/notes.txt").unlink()
    Path("mine").rmdir()
    assert main(["init", "my pictures"]) == 0


def test_corrected_labels_are_told_and_taken_over(pictures, tmp_path, capsys):
    names = [f"{name}/{i}.png" for name in ("cat", "dog") for i in range(10)]
    table = tmp_path / "tags and labels.csv"
    table.write_text("".join(f"{name},{name[:3]}\n" for name in names))
    assert main(["init", "my pictures", "--labels", "tags and labels.csv"]) == 0
    with open("mine.yaml", "a") as file:
        file.write("SEED: 7  # mine\n")
    cfg, config = load_cfg("mine.yaml"), Path("mine.yaml").read_text()
    split = {each: build_dataset(cfg, each).image_ids for each in ("train", "val")}
    first = split["train"][0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing to tell yet
        build_dataset(cfg, "train")
    table.write_text(table.read_text().replace(f"{first}.png,{first[:3]}", f"{first}.png,cat;dog"))
    with pytest.warns(
        UserWarning, match=r"older than changes of .*labels\.csv.* detector init --again --output"
    ):
        build_dataset(cfg, "train")
    assert main(["init", "--again"]) == 0
    assert "1 of 20 pictures are new or have other labels" in capsys.readouterr().out
    assert Path("mine.yaml").read_text() == config
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = build_dataset(cfg, "train")
    assert sorted(dataset.image_ids) == sorted(split["train"])
    assert dataset.labels(list(dataset.image_ids).index(first)).tolist() == [True, True]
    assert f'{first}.png", "labels": ["{first[:3]}"]' in Path("mine/train.jsonl.bak").read_text()


@pytest.mark.parametrize("folder", ["my pictures", "my pictures/cat"])
def test_nobody_is_told_to_remove_the_pictures(pictures, capsys, folder):
    assert main(["init", folder, "--output", "my pictures.yaml"]) == 2
    error = capsys.readouterr().err
    assert "would have its tables in my pictures, which contains the pictures" in error
    assert "--output 'my pictures_config.yaml'" in error
    assert "remove" not in error


def test_a_class_that_only_pictures_to_test_on_show(pictures, capsys):
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            (pictures / split / name).mkdir(parents=True)
            (pictures / name / f"{len(split)}.png").rename(pictures / split / name / "1.png")
    (pictures / "val" / "dog").rename(pictures / "val" / "bird")
    for name in ("cat", "dog"):
        (pictures / name).rename(pictures.parent / name)
    assert main(["init", "my pictures"]) == 2
    assert "the pictures to test on show bird, but none to train on does" in capsys.readouterr().err


def test_drawn_boxes_are_carried_over_where_they_agree_with_the_labels(pictures, tmp_path, capsys):
    names = [f"{name}/{i}.png" for name in ("cat", "dog") for i in range(10)]
    table = tmp_path / "tags.csv"
    table.write_text("".join(f"{name},{name[:3]}\n" for name in names))
    assert main(["init", "my pictures", "--labels", "tags.csv"]) == 0
    rows = read_table(Path("mine/val.jsonl"))[0]
    box = LabeledBox(rows[0].labels[0], (1.0, 2.0, 20.0, 20.0), difficult=False)
    other = LabeledBox(rows[1].labels[0], (3.0, 2.0, 20.0, 20.0), difficult=False)
    drawn = [rows[0]._replace(boxes=(box,)), rows[1]._replace(boxes=(other,)), *rows[2:]]
    replace_table(Path("mine/val.jsonl"), drawn)
    changed = picture_name(rows[1].file)
    table.write_text(table.read_text().replace(f"{changed},{changed[:3]}", f"{changed},cat;dog"))
    with pytest.warns(UserWarning, match=r"the boxes of 1 picture contradict the new labels .*\.bak"):
        starting.init_again(Path("mine.yaml"))
    after = {row.file: row for row in read_table(Path("mine/val.jsonl"))[0]}
    assert after[rows[0].file].boxes == (box,)
    assert (after[rows[1].file].boxes, after[rows[1].file].labels) == (None, ("cat", "dog"))
    assert read_table(Path("mine/val.jsonl.bak2"))[0][1].boxes == (other,)

"""What the chaos tests share: a small world to work in, and the table at the end."""

import json
import math
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from chaos import harness
from chaos.harness import ROOT, run_once
from PIL import Image

from detector.data.toybox import CLASSES, draw_toybox

KEYS = {
    "OUTPUT_DIR": "run",
    "DEVICE": "cpu",
    "DATASETS.ROOT": "toybox",
    "DATASETS.PROPOSALS": "toybox/proposals.npz",
    "DATASETS.WORKERS": 0,
    "PROPOSALS.MODE": "grid",
    "PROPOSALS.MAX_COUNT": 60,
    "INPUT.TRAIN_SIZES": "(64, 80)",
    "INPUT.TEST_SIZES": "(64,)",
    "MODEL.BOX_FEATURES.WIDTHS": "(16,)",
    "SOLVER.IMAGES_PER_BATCH": 1,
    "SOLVER.ACCUMULATE": 2,
    "SOLVER.MAX_ITER": 4,
    "SOLVER.WARMUP_ITERS": 2,
    "SOLVER.CHECKPOINT_PERIOD": 2,
    "SOLVER.PICTURE_PERIOD": 2,
    "SOLVER.LOG_PERIOD": 1,
    "TEST.PICTURES": 2,
}


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> Path:
    """A folder that holds all that a command reads, with relative paths: cases run in copies of it.

    config.yaml, toybox/ (VOC's layout), own/ (a table of labels), coco/, pictures/ (a file of each format),
    weights.pth and run/, trained and tested by the tools.
    """
    import detector.commands.stages  # noqa: F401  so that children need not import it again

    folder = tmp_path_factory.mktemp("world")
    draw_toybox(folder / "toybox", train=6, test=3)
    (folder / "config.yaml").write_text(_config_text(KEYS))
    _write_own(folder)
    _write_coco(folder)
    _write_pictures(folder)
    _write_weights(folder)
    for words in (
        ("propose", "--voc", "toybox", "--mode", "grid", "--output", "toybox/proposals.npz", "--workers", 1),
        ("propose", "--images", "own", "--mode", "grid", "--output", "own/proposals.npz", "--workers", 1),
        ("convert_weights", "classifier.pth", "weights.pth"),
        ("train", "--config-file", "config.yaml"),
        ("test", "--config-file", "config.yaml"),
    ):
        outcome = run_once(words, folder)
        assert outcome.status == 0, outcome.output
    shutil.rmtree(folder / "tmp")
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if math.isfinite(harness.MINUTES):  # which tests are left out changes with the seed
        random.Random(harness.SEED).shuffle(items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("chaos") and harness.minutes_used() > harness.MINUTES:
        pytest.skip(f"CHAOS_MINUTES={harness.MINUTES:g} are used up")


def pytest_terminal_summary(terminalreporter) -> None:
    if harness.table:
        terminalreporter.write_line(
            f"\nCHAOS_SEED={harness.SEED} CHAOS_COUNT={harness.SCALE:g} CHAOS_MINUTES={harness.MINUTES:g}"
            f" repeats this; {harness.minutes_used():.1f} minutes of one core"
        )
        for offense in harness.offenses:
            terminalreporter.write_line(offense)
        terminalreporter.write_line("")
        terminalreporter.write_line(harness.table_text())
        if path := os.environ.get("CHAOS_REPORT"):
            Path(path).write_text(f"{harness.table_text()}\n\n" + "\n".join(harness.offenses) + "\n")
        if path := os.environ.get("CHAOS_PAGE"):  # docs/reliability.md, whose last section is the table
            before, heading, _ = Path(path).read_text().partition("## The table\n")
            Path(path).write_text(f"{before}{heading}\n{harness.table_text()}\n")


def _config_text(keys: dict) -> str:
    import yaml

    tree: dict = {"_BASE_": str(ROOT / "configs" / "toybox_pcl.yaml")}
    for key, value in keys.items():
        node = tree
        *groups, last = key.split(".")
        for group in groups:
            node = node.setdefault(group, {})
        node[last] = value
    return yaml.safe_dump(tree)


def _write_own(folder: Path) -> None:
    """The same pictures with a table of labels: train.csv and val.jsonl."""
    import xml.etree.ElementTree as ET

    (folder / "own" / "pictures").mkdir(parents=True)
    for split, name in (("trainval", "train"), ("test", "val")):
        rows = []
        for image_id in (folder / "toybox/ImageSets/Main" / f"{split}.txt").read_text().split():
            (source,) = (folder / "toybox/JPEGImages").glob(f"{image_id}.*")
            shutil.copy(source, folder / "own/pictures")
            objects = ET.parse(folder / f"toybox/Annotations/{image_id}.xml").iter("object")
            labels = sorted({each.findtext("name") for each in objects})
            rows.append((f"pictures/{source.name}", labels))
        if name == "train":
            lines = ["file,labels", *(f"{file},{';'.join(labels)}" for file, labels in rows)]
            (folder / "own/train.csv").write_text("\n".join(lines) + "\n")
        else:
            lines = [json.dumps({"file": file, "labels": labels}) for file, labels in rows]
            (folder / "own/val.jsonl").write_text("\n".join(lines) + "\n")


def _write_coco(folder: Path) -> None:
    """The same pictures with a JSON of COCO's format for each split."""
    import xml.etree.ElementTree as ET

    (folder / "coco").mkdir()
    for split in ("trainval", "test"):
        images, annotations = [], []
        for number, image_id in enumerate(
            (folder / f"toybox/ImageSets/Main/{split}.txt").read_text().split(), 1
        ):
            (source,) = (folder / "toybox/JPEGImages").glob(f"{image_id}.*")
            width, height = Image.open(source).size
            images.append({"id": number, "file_name": source.name, "width": width, "height": height})
            for each in ET.parse(folder / f"toybox/Annotations/{image_id}.xml").iter("object"):
                x1, y1, x2, y2 = (
                    float(each.findtext(f"bndbox/{k}")) for k in ("xmin", "ymin", "xmax", "ymax")
                )
                box = [x1 - 1, y1 - 1, x2 - x1 + 1, y2 - y1 + 1]
                category = CLASSES.index(each.findtext("name")) + 1
                annotations.append(
                    {"id": len(annotations) + 1, "image_id": number, "category_id": category, "bbox": box}
                    | {"area": box[2] * box[3], "iscrowd": 0}
                )
        categories = [{"id": i, "name": name} for i, name in enumerate(CLASSES, 1)]
        content = {"images": images, "annotations": annotations, "categories": categories}
        (folder / f"coco/{split}.json").write_text(json.dumps(content))


def _write_pictures(folder: Path) -> None:
    (folder / "pictures").mkdir()
    source = sorted((folder / "toybox/JPEGImages").iterdir())[0]
    image = Image.open(source).convert("RGB")
    for suffix in ("png", "jpg", "webp", "tif", "gif", "bmp"):
        (folder / "pictures" / suffix).mkdir()
        image.save(folder / "pictures" / suffix / f"picture.{suffix}")


def _write_weights(folder: Path) -> None:
    import torch

    generator = np.random.default_rng(0)
    tensors = {
        f"layer{i}.weight": torch.from_numpy(generator.normal(size=(64, 64))).float() for i in range(4)
    }
    torch.save(tensors, folder / "classifier.pth")


@pytest.fixture(scope="session")
def reference(world, tmp_path_factory):
    """The result of a command in an undamaged copy of the world, and the seconds that it took."""
    known: dict = {}

    def get(command, result, prepare=lambda folder: None):
        key = (tuple(command), result.__name__, getattr(prepare, "__name__", ""))
        if key not in known:
            folder = tmp_path_factory.mktemp("reference") / "world"
            shutil.copytree(world, folder, symlinks=True)
            prepare(folder)
            outcome = run_once(command, folder)
            assert outcome.status == 0, outcome.output
            known[key] = result(folder, outcome), outcome.seconds
            shutil.rmtree(folder)
        return known[key]

    return get

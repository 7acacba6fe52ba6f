"""The same boxes from the same files as other libraries find in them, which wrote most of the files, too.

PEERS names the Python in which these are installed, if it is not this one:

    python -m venv peers && peers/bin/pip install datumaro labelformat pycocotools supervision
    PEERS=peers/bin/python python -m pytest tests/data/formats/test_peers.py
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from detector.data.formats import review_import

PACKAGES = ("datumaro", "labelformat", "pycocotools", "supervision")
PYTHON = os.environ.get("PEERS") or sys.executable
MISSING = [] if "PEERS" in os.environ else [name for name in PACKAGES if not importlib.util.find_spec(name)]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}, here or in the Python of PEERS"),
]
# labelformat counts corners of VOC from 0, as Datumaro, supervision from 1, as VOC: they read each other's
# one pixel off. Here files of Datumaro are told, and all others are taken for those of VOC.
TOLERANCE = {"voc": 1.01}
EXPECTED = 30  # comparisons; fewer: a library has changed, and reads less of the others' files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("peers") / "files"
    words = [PYTHON, Path(__file__).with_name("peers.py"), folder]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(words, check=True, capture_output=True, env=environment)
    return folder


def ours(path: Path) -> dict[str, list]:
    """What review_import finds in a file, or in all that are in a folder."""
    files = sorted(path.glob("**/*.json" if path.name == "coco" else "*.xml"))
    places = files if path.name in ("coco", "cvat") else [path]
    images = path / "JPEGImages" if path.name == "voc" else None
    found = [image for place in places for image in review_import(place, images=images, reviewed="all")]
    return {Path(image.name).stem: [[box.label, *box.box] for box in image.boxes] for image in found}


def apart(box: list, other: list) -> float:
    """The largest difference of a corner of two boxes; infinite if they are of two classes."""
    return (
        max(abs(a - b) for a, b in zip(box[1:], other[1:], strict=True))
        if box[0] == other[0]
        else float("inf")
    )


def difference(found: dict[str, list], others: dict[str, list]) -> float:
    """The largest difference of a corner; infinite where other images, boxes or classes are found."""
    if {name: len(boxes) for name, boxes in found.items()} != {
        name: len(each) for name, each in others.items()
    }:
        return float("inf")
    worst = 0.0
    for name, boxes in found.items():
        left = list(others[name])
        for box in boxes:
            far = [apart(box, other) for other in left]
            worst = max(worst, min(far))
            del left[far.index(min(far))]
    return worst


def test_the_same_boxes_from_the_same_files(folder: Path) -> None:
    compared, wrong = 0, []
    for each in json.loads((folder / "read.json").read_text()):
        if isinstance(each["images"], str):  # it cannot read a file of another
            continue
        compared += 1
        far = difference(ours(folder / each["folder"]), each["images"])
        if far > TOLERANCE.get(each["format"], 0.02):
            wrong.append(f"{each['folder']} as {each['reader']} reads it: {far:g} pixels")
    assert not wrong
    assert compared >= EXPECTED


def test_polygons_without_boxes(folder: Path, tmp_path: Path) -> None:
    """The box around a polygon is that of its pixels in pycocotools, but for the rounding to pixels."""
    path = folder / "masks/coco/instances.json"
    content = json.loads(path.read_text())
    found = 0
    for row in content["annotations"]:
        if isinstance(row["segmentation"], list):
            del row["bbox"]
            found += 1
    (tmp_path / "polygons.json").write_text(json.dumps(content))
    assert found > 5
    assert difference(ours(tmp_path / "polygons.json"), ours(path)) <= 1.01

"""Times reading and validating the annotations of a data set at the start of a run, on one core.

python benchmarks/bench_reading.py --device cpu

The data is synthetic: a VOC folder with images of 500 x 375 pixels and 3 objects, and a COCO file with the
number of images and objects of COCO train2017, including polygons. CPU time is measured with files in the
page cache, so other load hardly matters. The baselines do not validate what they read.
"""

import json
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import torch
from measure import device_parser, report
from PIL import Image
from pycocotools.coco import COCO

from detector.data.datasets.coco import COCODataset
from detector.data.datasets.voc import VOCDataset
from detector.data.datasets.voc_writer import write_annotation
from detector.data.labeled_box import LabeledBox
from detector.data.toybox import CLASSES

VOC_IMAGES = 10_000
COCO_IMAGES, COCO_OBJECTS, COCO_CATEGORIES = 118_287, 860_001, 80
TARGET_SECONDS = 10.0


@dataclass(frozen=True)
class Reading:
    """One row of the table."""

    case: str
    seconds: float
    baseline: str
    baseline_seconds: float
    target_seconds: float
    reached: bool


def write_voc(root: Path, images: int) -> None:
    """Write a VOC folder with the split "train"; all images and annotations are equal."""
    objects = [LabeledBox("bird", (9, 9, 99 + i, 99)) for i in range(3)]
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (root / folder).mkdir(parents=True)
    picture = BytesIO()
    Image.new("RGB", (500, 375)).save(picture, format="jpeg")
    write_annotation(root, "a.jpg", (375, 500), objects, folder="voc")
    xml = (root / "Annotations/a.xml").read_bytes()
    for index in range(images):
        (root / "JPEGImages" / f"{index:06d}.jpg").write_bytes(picture.getvalue())
        (root / "Annotations" / f"{index:06d}.xml").write_bytes(xml)
    names = "".join(f"{index:06d}\n" for index in range(images))
    (root / "ImageSets" / "Main" / "train.txt").write_text(names)


def write_coco(root: Path) -> Path:
    """Write a data set in COCO layout with empty image files; returns the path of the JSON file."""
    rng = np.random.default_rng(0)
    (root / "train").mkdir(parents=True)
    (root / "annotations").mkdir()
    images = []
    for index in range(COCO_IMAGES):
        name = f"{index:012d}.jpg"
        (root / "train" / name).touch()
        url = f"http://images.cocodataset.org/train2017/{name}"
        images.append({"file_name": name, "coco_url": url, "height": 480, "width": 640, "id": index})
    polygons = [rng.uniform(0, 480, 2 * rng.integers(10, 40)).round(2).tolist() for _ in range(1000)]
    boxes = rng.uniform(1, 240, (COCO_OBJECTS, 4)).round(2)
    image_ids = rng.integers(COCO_IMAGES, size=COCO_OBJECTS)
    category_ids = rng.integers(COCO_CATEGORIES, size=COCO_OBJECTS)
    objects = [
        {
            "segmentation": [polygons[index % len(polygons)]],
            "area": box[2] * box[3],
            "iscrowd": 0,
            "image_id": image,
            "bbox": box,
            "category_id": category,
            "id": index,
        }
        for index, (box, image, category) in enumerate(
            zip(boxes.tolist(), image_ids.tolist(), category_ids.tolist(), strict=True)
        )
    ]
    categories = [{"id": index, "name": f"class {index}"} for index in range(COCO_CATEGORIES)]
    path = root / "annotations" / "instances_train.json"
    path.write_text(json.dumps({"images": images, "annotations": objects, "categories": categories}))
    return path


def cpu_seconds(call: Callable[[], object]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def bench_voc(root: Path) -> Reading:
    write_voc(root, VOC_IMAGES)
    paths = sorted((root / "Annotations").glob("*.xml"))
    ours = cpu_seconds(lambda: VOCDataset(root, "train", CLASSES))
    baseline = cpu_seconds(lambda: deque(map(ElementTree.parse, paths), maxlen=0))
    case = f"VOC, {VOC_IMAGES:,} images: XML and sizes"
    return Reading(case, ours, "ElementTree.parse", baseline, TARGET_SECONDS, ours < TARGET_SECONDS)


def bench_coco(root: Path) -> Reading:
    path = write_coco(root)
    ours = cpu_seconds(lambda: COCODataset(root, "train"))
    with redirect_stdout(StringIO()):
        baseline = cpu_seconds(lambda: COCO(str(path)))
    megabytes = path.stat().st_size / 1e6
    case = f"COCO, {COCO_IMAGES:,} images, {COCO_OBJECTS:,} objects, {megabytes:.0f} MB"
    return Reading(case, ours, "pycocotools.COCO", baseline, TARGET_SECONDS, ours < TARGET_SECONDS)


def main() -> None:
    if device_parser(__doc__).parse_args().device == "cuda":
        return  # CPU only
    warnings.simplefilter("ignore")  # about images without objects
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows = [bench_voc(Path(folder, "voc")), bench_coco(Path(folder, "coco"))]
    report("reading", torch.device("cpu"), rows)


if __name__ == "__main__":
    main()

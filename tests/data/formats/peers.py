"""Writes boxes with other libraries, and reads the files with all of them; test_peers.py runs it.

    python peers.py FOLDER

It needs datumaro, labelformat, pycocotools and supervision, and nothing of detector: it may run in another
Python. FOLDER gets a folder of each writer and format, and read.json:

    [{"folder": "datumaro/coco/annotations/instances_train.json", "format": "coco", "reader": "pycocotools",
      "images": {"a": [["cat", 1.0, 2.0, 30.5, 40.0], ...]}}, ...]
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datumaro
import labelformat.formats as labelformat
import numpy as np
import supervision
from labelformat.model.bounding_box import BoundingBox
from labelformat.model.category import Category
from labelformat.model.image import Image as LabelformatImage
from labelformat.model.object_detection import (
    ImageObjectDetection,
    ObjectDetectionInput,
    SingleObjectDetection,
)
from PIL import Image
from pycocotools import mask
from pycocotools.coco import COCO

CLASSES = ["cat", "dog", "big bird"]
Truth = dict[str, tuple[int, int, list[tuple[int, float, float, float, float]]]]
Boxes = dict[str, list[list[Any]]]


def draw(folder: Path) -> Truth:
    """Pictures, and width, height and boxes of each: class, x1, y1, x2, y2."""
    draw, found = random.Random(0), {}
    folder.mkdir(parents=True)
    for number in range(12):
        width, height = draw.randint(40, 200), draw.randint(40, 200)
        name = ("im {}.png", "im{}.png", "größe{}.png")[number % 3].format(number)
        Image.fromarray(np.full((height, width, 3), number * 20, np.uint8)).save(folder / name)
        boxes = []
        for _ in range(number % 4 + 1):
            x, y = draw.uniform(0, width - 12), draw.uniform(0, height - 12)
            sides = draw.uniform(3, width - x), draw.uniform(3, height - y)
            boxes.append((draw.randrange(3), x, y, x + sides[0], y + sides[1]))
        found[name] = width, height, boxes
    return found


def write_datumaro(truth: Truth, pictures: Path, folder: Path) -> None:
    items = []
    for number, (name, (_, _, boxes)) in enumerate(truth.items()):
        media = datumaro.components.media.Image.from_file(path=str(pictures / name))
        annotations = [
            datumaro.Bbox(x1, y1, x2 - x1, y2 - y1, label=label, id=100 * number + count, group=count)
            for count, (label, x1, y1, x2, y2) in enumerate(boxes, start=1)
        ]
        options = {"id": Path(name).stem, "subset": ("train", "val")[number % 2], "media": media}
        items.append(datumaro.DatasetItem(annotations=annotations, **options))
    dataset = datumaro.Dataset.from_iterable(items, categories=CLASSES)
    for form, name in DATUMARO.items():
        dataset.export(str(folder / form), name, save_media=True)


DATUMARO = {
    "coco": "coco_instances",
    "voc": "voc_detection",
    "yolo": "yolo",
    "ultralytics": "yolo_ultralytics",
    "cvat": "cvat",
}


def write_supervision(truth: Truth, pictures: Path, folder: Path) -> None:
    found = {
        str(pictures / name): supervision.Detections(
            xyxy=np.array([corners for _, *corners in boxes]),
            class_id=np.array([label for label, *_ in boxes]),
        )
        for name, (_, _, boxes) in truth.items()
    }
    dataset = supervision.DetectionDataset(classes=CLASSES, images=list(found), annotations=found)
    coco, yolo, voc = (folder / form for form in ("coco", "yolo", "voc"))
    dataset.as_coco(str(coco), str(coco / "_annotations.coco.json"))
    dataset.as_yolo(str(yolo / "images"), str(yolo / "labels"), str(yolo / "data.yaml"))
    dataset.as_pascal_voc(str(voc / "JPEGImages"), str(voc / "Annotations"))


class Labels(ObjectDetectionInput):
    """The boxes, for labelformat's writers."""

    def __init__(self, truth: Truth) -> None:
        self.categories = [Category(id=number, name=name) for number, name in enumerate(CLASSES)]
        self.rows = [
            ImageObjectDetection(
                image=LabelformatImage(id=number, filename=name, width=width, height=height),
                objects=[
                    SingleObjectDetection(self.categories[label], BoundingBox(*corners))
                    for label, *corners in boxes
                ],
            )
            for number, (name, (width, height, boxes)) in enumerate(truth.items())
        ]

    @staticmethod
    def add_cli_arguments(parser: Any) -> None:
        pass

    def get_categories(self) -> list[Category]:
        return self.categories

    def get_images(self) -> list[LabelformatImage]:
        return [row.image for row in self.rows]

    def get_labels(self) -> list[ImageObjectDetection]:
        return self.rows


def write_labelformat(truth: Truth, pictures: Path, folder: Path) -> None:
    labels = Labels(truth)
    outputs = {
        "coco": labelformat.COCOObjectDetectionOutput(folder / "coco/instances.json"),
        "voc": labelformat.PascalVOCObjectDetectionOutput(folder / "voc/Annotations"),
        "ultralytics": labelformat.YOLOv8ObjectDetectionOutput(folder / "ultralytics/data.yaml", "train"),
        "cvat": labelformat.CVATObjectDetectionOutput(folder / "cvat"),
    }
    for form, output in outputs.items():
        (folder / form).mkdir(parents=True, exist_ok=True)
        output.save(labels)
    link_pictures(pictures, folder / "voc/JPEGImages")
    link_pictures(pictures, folder / "ultralytics/images")


def link_pictures(pictures: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in pictures.iterdir():
        (folder / path.name).symlink_to(path.resolve())


def write_masks(truth: Truth, pictures: Path, folder: Path) -> None:
    """COCO with masks as CVAT, Label Studio and others write them: polygons, and RLE of both kinds."""
    images, annotations = [], []
    for number, (name, (width, height, boxes)) in enumerate(truth.items(), start=1):
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        for count, (label, x1, y1, x2, y2) in enumerate(boxes):
            polygon = [x1, y1, x2, y1, x2, (y1 + y2) / 2, x2, y2, x1, y2]  # thin parts cover no pixel
            encoded = mask.merge(mask.frPyObjects([polygon], height, width))
            box = mask.toBbox(encoded).tolist()
            pixels = mask.decode(encoded).T.ravel()  # column by column
            edges = np.flatnonzero(np.diff(pixels, prepend=0)).tolist()
            counts = np.diff([0, *edges, len(pixels)]).tolist()
            masks = [
                [polygon],
                {"size": [height, width], "counts": counts},
                {"size": [height, width], "counts": encoded["counts"].decode()},
            ]
            row = {"id": len(annotations) + 1, "image_id": number, "category_id": label + 1, "bbox": box}
            row |= {"segmentation": masks[count % 3], "area": float(pixels.sum()), "iscrowd": 0}
            annotations.append(row)
    categories = [{"id": number, "name": name} for number, name in enumerate(CLASSES, start=1)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "coco").mkdir(parents=True)
    (folder / "coco/instances.json").write_text(json.dumps(content))


def read_pycocotools(path: Path) -> Boxes:
    data = COCO(str(path))
    names = {number: category["name"] for number, category in data.cats.items()}
    found = {}
    for number, image in data.imgs.items():
        rows = data.loadAnns(data.getAnnIds(imgIds=number))
        corners = ([x, y, x + w, y + h] for x, y, w, h in (row["bbox"] for row in rows))
        labels = (names[row["category_id"]] for row in rows)
        found[Path(image["file_name"]).stem] = [
            [label, *box] for label, box in zip(labels, corners, strict=True)
        ]
    return found


def read_supervision(form: str, folder: Path, pictures: Path, path: Path | None) -> Boxes:
    options = {"images_directory_path": str(pictures)}
    if form == "coco":
        data = supervision.DetectionDataset.from_coco(annotations_path=str(path), **options)
    elif form == "voc":
        options = {"images_directory_path": str(folder / "JPEGImages")}
        data = supervision.DetectionDataset.from_pascal_voc(
            annotations_directory_path=str(folder / "Annotations"), **options
        )
    else:
        data = supervision.DetectionDataset.from_yolo(
            images_directory_path=str(folder / "images"),
            annotations_directory_path=str(folder / "labels"),
            data_yaml_path=str(folder / "data.yaml"),
        )
    return {
        Path(name).stem: [
            [data.classes[label], *box]
            for label, box in zip(found.class_id.tolist(), found.xyxy.tolist(), strict=True)
        ]
        for name, _, found in data
    }


def read_datumaro(name: str, folder: Path) -> Boxes:
    data = datumaro.Dataset.import_from(str(folder), name)
    categories = data.categories()[datumaro.AnnotationType.label]
    return {
        Path(item.id).name: [
            [categories[each.label].name, *(each.points if each.type.name == "bbox" else each.get_bbox())]
            for each in item.annotations
            if each.type == datumaro.AnnotationType.bbox
        ]
        for item in data
    }


def read_labelformat(form: str, path: Path) -> Boxes:
    if form == "coco":
        data = labelformat.COCOObjectDetectionInput(path)
    elif form == "voc":
        data = labelformat.PascalVOCObjectDetectionInput(path, ",".join(CLASSES))
    elif form == "cvat":
        data = labelformat.CVATObjectDetectionInput(path)
    else:
        data = labelformat.YOLOv8ObjectDetectionInput(path, "train")
    return {
        Path(row.image.filename).stem: [
            [each.category.name, each.box.xmin, each.box.ymin, each.box.xmax, each.box.ymax]
            for each in row.objects
        ]
        for row in data.get_labels()
    }


def read_all(folder: Path, pictures: Path) -> Iterator[tuple[str, str, str, Any]]:
    """Folder, format, reader, and a function that reads."""
    for path in sorted(folder.glob("*/coco/**/*.json")):
        where = path.relative_to(folder).as_posix()
        yield where, "coco", "pycocotools", lambda path=path: read_pycocotools(path)
        yield where, "coco", "supervision", lambda path=path: read_supervision("coco", path, pictures, path)
        yield where, "coco", "labelformat", lambda path=path: read_labelformat("coco", path)
    for place in sorted(folder.glob("*/voc")):
        where = place.relative_to(folder).as_posix()
        yield where, "voc", "supervision", lambda place=place: read_supervision("voc", place, pictures, None)
        yield where, "voc", "labelformat", lambda place=place: read_labelformat("voc", place / "Annotations")
    for place in sorted(folder.glob("*/yolo")):
        if (place / "data.yaml").exists():
            where = place.relative_to(folder).as_posix()
            yield (
                where,
                "yolo",
                "supervision",
                lambda place=place: read_supervision("yolo", place, pictures, None),
            )
    for path in sorted(folder.glob("*/cvat/*.xml")):
        where = path.relative_to(folder).as_posix()
        yield where, "cvat", "labelformat", lambda path=path: read_labelformat("cvat", path)
    for form, name in DATUMARO.items():
        place = folder / "datumaro" / form
        yield f"datumaro/{form}", form, "datumaro", lambda name=name, place=place: read_datumaro(name, place)


def main(folder: Path) -> None:
    pictures = folder / "pictures"
    truth = draw(pictures)
    writers = {
        "datumaro": write_datumaro,
        "supervision": write_supervision,
        "labelformat": write_labelformat,
        "masks": write_masks,
    }
    for name, write in writers.items():
        write(truth, pictures, folder / name)
    written = {
        Path(name).stem: [[CLASSES[label], *corners] for label, *corners in boxes]
        for name, (_, _, boxes) in truth.items()
    }
    places = [path for path in sorted(folder.glob("*/*")) if path.is_dir() and path.parts[-2] != "masks"]
    found = [
        {
            "folder": path.relative_to(folder).as_posix(),
            "format": path.name,
            "reader": "what was written",
            "images": written,
        }
        for path in places
    ]
    for where, form, reader, read in read_all(folder, pictures):
        try:
            images = read()
        except Exception as error:  # what a library cannot read of another's files is no fault of ours
            images = f"{type(error).__name__}: {error}"
        found.append({"folder": where, "format": form, "reader": reader, "images": images})
    (folder / "read.json").write_text(json.dumps(found, default=float))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

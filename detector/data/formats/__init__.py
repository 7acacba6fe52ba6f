"""Files of boxes for labeling tools: COCO, VOC, YOLO, Label Studio and CVAT, written and read back.

Each format has a module, which describes it; this one maps formats to files, and files to formats.
"""

import json
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from detector.data.formats import coco, cvat, label_studio, label_studio_storage, review_file, voc, yolo
from detector.data.formats.coco import encode as encode_coco
from detector.data.formats.review import ReviewImage, check_images, renamed, review_image, turn_images
from detector.utils.errors import DataError, counted
from detector.utils.files import read_text, reading

__all__ = [
    "FORMATS",
    "ReviewImage",
    "encode_coco",
    "encode_review",
    "review_image",
    "review_import",
    "turn_images",
]
FORMATS = ("coco", "voc", "yolo", "label-studio", "cvat")


def encode_review(
    form: str,
    images: Sequence[ReviewImage],
    class_names: Sequence[str],
    *,
    folder: str | Path = "images",
    inline: bool = False,
) -> Iterator[tuple[str, bytes]]:
    """Name, relative to the output folder, and content of each file of one of FORMATS.

    Args:
        folder: the folder of images, or its name, below which Label Studio serves them.
        inline: write the pictures themselves into the tasks of Label Studio; `folder` is their path.
    """
    if form == "coco":
        yield "coco.json", coco.encode(images, class_names)
    elif form == "voc":
        for image in images:
            yield f"Annotations/{Path(image.name).with_suffix('.xml').as_posix()}", voc.encode(image)
    elif form == "yolo":
        yield from yolo.encode(images, class_names)
    elif form == "label-studio":
        place = Path(folder)
        yield "tasks.json", label_studio.encode(images, place.name, place if inline else None)
        if place.is_absolute() and not inline:
            yield "local_storage.json", label_studio_storage.encode_storage(place)
        yield "label_config.xml", label_studio.label_config(class_names)
    elif form == "cvat":
        yield "annotations.xml", cvat.encode(images, class_names)
    else:
        raise DataError(f"the format is {form!r}, expected one of {', '.join(FORMATS)}")


def review_import(
    path: str | Path,
    *,
    images: str | Path | None = None,
    reviewed: Literal["flags", "all"] = "flags",
) -> list[ReviewImage]:
    """Read boxes that a person has corrected; `ReviewImage.true_boxes` are those that count as true.

    Args:
        path: what :func:`encode_review` wrote or the tool exported: a JSON file of COCO or Label Studio, an
            XML file of CVAT, the SQLite file of detector review, the folder of VOC's Annotations or the one
            above, or YOLO's, with data.yaml or another file of the class names
            (:func:`detector.data.formats.yolo.find_names`).
        images: the folder of images, for the sizes that YOLO's files and tasks of others lack, and for the
            names that VOC's do.
        reviewed: "flags": only what the file says was reviewed; "all": all boxes of all images were.

    Raises:
        FileNotFoundError: the path, or an image whose size is needed, does not exist.
        DataError: the file is in none of the formats or damaged, or no box or image in it is flagged as
            reviewed; names the file.
    """
    path = Path(path)
    found = (_read_folder if path.is_dir() else _read_file)(path, images, reviewed)
    if reviewed == "flags" and all(image.reviewed == "none" for image in found):
        raise DataError(
            f"{path}: none of its {len(found)} images has a reviewed box. If a person has gone through all "
            "of them, pass --reviewed all (reviewed='all' in Python)"
        )
    left_out = [image.name for image in found for box in image.boxes if not box.reviewed]
    if path.suffix.lower() == ".xml" and left_out:
        warnings.warn(
            f"{path}: {counted(len(left_out), 'box is', 'boxes are')} left out, neither drawn nor corrected "
            "in CVAT (source manual, semi-auto or consensus) nor marked as reviewed, such as one in "
            f"{left_out[0]}",
            stacklevel=2,
        )
    return found


def _read_folder(
    path: Path, images: str | Path | None, reviewed: Literal["flags", "all"]
) -> list[ReviewImage]:
    annotations = voc.annotations_folder(path)
    if names := yolo.find_names(path):
        if annotations:
            raise DataError(
                f"{path} has files of YOLO and of VOC, of which one may be out of date: name {annotations}, "
                "or move it away to read those of YOLO"
            )
        with reading(names, "YOLO data set"):
            return check_images(yolo.read(path, images), reviewed, path)
    if not (found := voc.read(annotations or path, images)):
        yolo.check_has_names(path)
        raise DataError(f"{path} has neither data.yaml (YOLO) nor XML files (VOC)")
    try:
        return check_images(found, reviewed, path)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _read_file(path: Path, images: str | Path | None, reviewed: Literal["flags", "all"]) -> list[ReviewImage]:
    with reading(path, "file of boxes"):
        if path.suffix.lower() == ".xml":
            return check_images(renamed(cvat.read(path, images), images), reviewed, path)
        if path.suffix.lower() == ".json":
            content = json.loads(read_text(path, "file of boxes"))
            if tool := other_tool(content):
                raise DataError(f"it is a file of {tool}")
            tasks = isinstance(content, list)
            found = label_studio.read(content, images, path) if tasks else coco.read(path, images)
            return check_images(found, reviewed, path)
        if path.suffix.lower() == review_file.SUFFIX:
            return check_images(review_file.read(path), reviewed, path)
        raise DataError(
            "it is neither .json (COCO, Label Studio) nor .xml (CVAT) nor .sqlite (detector review); VOC and "
            "YOLO are folders"
        )


def other_tool(content: object) -> str:
    """The tool that wrote an unsupported JSON file, and what to do; "": it is unknown."""
    if isinstance(content, dict):
        if isinstance(content.get("shapes"), list) and "imagePath" in content:
            return (
                "LabelMe, which is not supported: make one COCO file of its folder (pip install "
                "labelme2coco, then labelme2coco FOLDER)"
            )
        metadata = content.get("_via_img_metadata", content)
        first = next(iter(metadata.values()), None) if isinstance(metadata, dict) else None
        if (
            "_via_img_metadata" in content
            or {"config", "attribute", "metadata"} <= content.keys()  # version 3
            or (isinstance(first, dict) and {"filename", "regions"} <= first.keys())
        ):
            return (
                "VIA, the VGG Image Annotator, which is not supported: in its menu Annotation choose Export "
                "Annotations (COCO format)"
            )
        return "" if "images" in content else _tool_of_keys(content)
    first = content[0] if isinstance(content, list) and content else None
    if not isinstance(first, dict) or "data" in first:
        return ""
    if {"image_id", "category_id"} <= first.keys():
        return (
            "results of COCO, whose images and classes have no names: put them as `annotations` beside the "
            "`images` and `categories` of the annotation file, each with an id"
        )
    if isinstance(first.get("annotations"), list) and ("image" in first or "imagefilename" in first):
        return (
            "CreateML, which is not supported: choose PascalVOC in LabelImg, or export COCO from the tool "
            "that wrote it, such as Roboflow or RectLabel"
        )
    return _tool_of_keys(first)


# Keys of other files of JSON, or of the first of their entries, and the tools that write them.
_OTHERS = (
    ({"assets"}, "VoTT, which is not supported: export Pascal VOC from it"),
    ({"asset", "regions"}, "VoTT, which is not supported: export Pascal VOC from it"),
    ({"objects", "size", "tags"}, "Supervisely, which is not supported: export COCO or Pascal VOC from it"),
    ({"item", "annotations"}, "V7 Darwin, which is not supported: export COCO from it"),
    ({"items", "categories"}, "Datumaro, which is not supported: export the data set as coco_instances"),
    ({"openlabel"}, "ASAM OpenLABEL, which is not supported: export COCO from the tool that wrote it"),
    ({"Labeled Data", "Label"}, "Labelbox, which is not supported: convert it to COCO, as labelformat does"),
    ({"data_row", "projects"}, "Labelbox, which is not supported: convert it to COCO, as labelformat does"),
    ({"LabelName", "Subcategory"}, "Open Images: pass the table of its boxes or labels (--labels)"),
    ({"filename", "ann"}, "MMDetection, which is not supported: convert it to COCO"),
    ({"file_name", "annotations"}, "detectron2, which is not supported: write COCO (convert_to_coco_json)"),
    ({"name", "labels"}, "Scalabel or BDD100K, which is not supported: convert it to COCO"),
    ({"source-ref"}, "SageMaker Ground Truth, which is not supported: convert it to COCO"),
)


def _tool_of_keys(entry: dict) -> str:
    return next((tool for keys, tool in _OTHERS if keys <= entry.keys()), "")

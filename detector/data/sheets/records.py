"""Finds the tags of pictures in JSON, JSON lines and YAML of any common form: a record for each picture.

Files with boxes of COCO and Label Studio are left to detector/data/formats, which reads the boxes as well.
"""

from collections.abc import Callable, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from detector.data.sheets.answers import SURE

Record = dict[str, Any]
_ANSWERS = {"choices", "taxonomy"}  # types of results of Label Studio that are tags
# Of the entries of MMDetection and detectron2, whose classes are numbers.
_OF_BOXES = ({"ann"}, {"file_name", "annotations"})
_METADATA = "-metadata"  # of SageMaker, behind the name of a job


def records_of(content: object, is_name: Callable[[object], bool]) -> list[Record] | None:
    """The records of a file, each with the name of a picture and its labels somewhere.

    Args:
        is_name: whether a value is the name of a file of a picture.

    Returns:
        the records; None: there are none, or the file has boxes that a reader of its format reads.
    """
    if isinstance(content, list) and content:
        if all(isinstance(entry, dict) for entry in content):
            if any(keys <= content[0].keys() for keys in _OF_BOXES):
                return None
            return _of_tasks(content) if "data" in content[0] else [*map(_of_manifest, content)]
        if all(isinstance(entry, list) and len(entry) == 2 and is_name(entry[0]) for entry in content):
            return [{"file": name, "labels": label} for name, label in content]
        return None
    if not isinstance(content, dict) or not content:
        return None
    if {"images", "annotations", "categories"} <= content.keys():
        return _of_coco(content)
    if isinstance(names := content.get("detection_categories"), dict):  # MegaDetector
        return [
            {"file": image["file"], "labels": [names[x["category"]] for x in _sure(image)]}
            for image in content.get("images") or ()
        ]
    values = content.values()
    if isinstance(inner := content.get("_via_img_metadata"), dict):
        values = inner.values()
    if all(isinstance(value, dict) and {"filename", "regions"} <= value.keys() for value in values):
        return [record for value in values for record in _of_via(value)]
    if isinstance(found := content.get("labels"), dict) and isinstance(names := content.get("classes"), list):
        return [{"file": name, "labels": _named(label, names)} for name, label in found.items()]
    if all(map(is_name, content)):
        return [
            {"file": name, **(value if isinstance(value, dict) else {"labels": value})}
            for name, value in content.items()
        ]
    first = next(iter(values))
    if isinstance(first, dict) and all(isinstance(x, dict) and x.keys() == first.keys() for x in values):
        return [{column: cells[row] for column, cells in content.items()} for row in first]  # of pandas
    lists = [value for value in values if isinstance(value, list) and value]
    if len(lists) == len(content) and all(is_name(name) for names in lists for name in names):
        return [{"file": name, "labels": label} for label, names in content.items() for name in names]
    found_in = [found for entries in lists if (found := records_of(entries, is_name))]
    return found_in[0] if len(found_in) == 1 else None


def records_of_cvat(root: Element) -> list[Record] | None:
    """The images of a file of CVAT with tags alone; None: it has shapes, or no tag."""
    images = root.findall("image")
    if not any(image.find("tag") is not None for image in images) or root.find("track") is not None:
        return None
    if any(node.tag != "tag" for image in images for node in image):
        return None
    return [
        {"file": image.get("name"), "labels": [tag.get("label") for tag in image.iterfind("tag")]}
        for image in images
    ]


def _named(label: object, names: list[Any]) -> object:
    """The names of classes that numbers from 0 stand for."""
    if isinstance(label, list):
        return [_named(entry, names) for entry in label]
    return names[label] if isinstance(label, int) and 0 <= label < len(names) else label


def _of_tasks(tasks: list[Record]) -> list[Record] | None:
    """Tasks of Label Studio with tags alone; those that nobody has submitted are left out."""
    records, kinds = [], set()
    for task in tasks:
        submitted = [each for each in task.get("annotations") or () if not each.get("was_cancelled")]
        entries = [entry for each in submitted for entry in each.get("result") or ()]
        kinds |= {entry.get("type") for entry in entries}
        if submitted:
            records.append({**task["data"], "labels": [entry.get("value") for entry in entries]})
    return records if kinds and kinds <= _ANSWERS else None


def _of_coco(content: Mapping[str, Any]) -> list[Record] | None:
    """The images of a file of COCO without any box, as of camera traps, with the names of their classes."""
    if any("bbox" in entry or "segmentation" in entry for entry in content["annotations"]):
        return None
    names = {entry.get("id"): entry.get("name") for entry in content["categories"]}
    labels: dict[object, list[object]] = {image.get("id"): [] for image in content["images"]}
    for entry in content["annotations"]:
        labels.setdefault(entry.get("image_id"), []).append(names.get(entry.get("category_id")))
    return [
        {"file": image.get("file_name"), "labels": labels[image.get("id")]} for image in content["images"]
    ]


def _sure(image: Record) -> list[Record]:
    return [entry for entry in image.get("detections") or () if entry["conf"] >= SURE]


def _of_via(image: Record) -> list[Record]:
    regions = image["regions"]
    found = regions.values() if isinstance(regions, dict) else regions
    of_regions = [{"file": image["filename"], "region_attributes": x.get("region_attributes")} for x in found]
    return of_regions or [{"file": image["filename"], "region_attributes": {}}]


def _of_manifest(entry: Record) -> Record:
    """An entry; that of SageMaker has names of classes beside the results, that of Prodigy in `accept`."""
    if isinstance(entry.get("accept"), list):
        return {
            "file": entry.get("image"),
            "labels": entry["accept"] if entry.get("answer") == "accept" else [],
        }
    if "source-ref" not in entry:
        return entry
    labels: list[str] = []
    for key, about in entry.items():
        if key.endswith(_METADATA) and isinstance(about, dict):
            name, names = about.get("class-name"), about.get("class-map") or {}
            result = entry.get(key.removesuffix(_METADATA))
            boxes = result.get("annotations") or [] if isinstance(result, dict) else []
            shown = {str(box.get("class_id")) for box in boxes} if boxes else names.keys()
            labels += [name] if name else [names[number] for number in names if number in shown]
    return {"file": entry["source-ref"], "labels": labels}

"""Label Studio's JSON: a list of tasks. Boxes of complete images are annotations, others predictions.

https://labelstud.io/guide/predictions describes it, https://labelstud.io/tags/keypointlabels points. Both are
in percentages of the image; flags of a box are the text that the tool shows with the region.
"""

import base64
import json
import mimetypes
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from detector.data.datasets.label_studio_names import name_of_address
from detector.data.formats.review import Point, ReviewImage
from detector.data.images import in_any_form, read_image_size
from detector.data.labeled_box import LabeledBox
from detector.data.picture_index import index_folder
from detector.data.pictures import IMAGE_SUFFIXES
from detector.utils.errors import DataError, counted, shortened
from detector.utils.files import reading

# The tool serves files below LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT under this address.
_LOCAL_FILES = "/data/local-files/?d="
_VIDEOS = (".mp4", ".webm", ".mov", ".avi", ".mkv")
_T = TypeVar("_T")
# Types of results that are not regions: answers about a region or the image, and links of two regions.
_NO_REGION = {
    *("relation", "choices", "textarea", "rating", "number", "datetime", "taxonomy", "ranker", "pairwise"),
    "chatmessage",
}


def label_config(class_names: Sequence[str]) -> bytes:
    """The labeling interface of a project: rectangles that cannot be rotated, with the classes as labels."""
    view = Element("View")
    SubElement(view, "Image", name="image", value="$image", zoom="true")
    labels = SubElement(view, "RectangleLabels", name="label", toName="image", canRotate="false")
    for name in class_names:
        SubElement(labels, "Label", value=name)
    indent(view)
    return tostring(view, encoding="utf-8")


def encode(images: Iterable[ReviewImage], folder: str, inline: Path | None = None) -> bytes:
    """The file of tasks.

    Args:
        folder: that of the images, below the root of the files that the tool serves.
        inline: the folder of the images, whose content is written into the tasks, so that no file is served;
            None: tasks have links.
    """
    return json.dumps(
        [_task(image, folder, inline) for image in images], ensure_ascii=False, allow_nan=False
    ).encode()


def _data_address(file: Path) -> str:
    kind = mimetypes.guess_type(file.name)[0] or "image/jpeg"
    with reading(file, "image"):
        return f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"


def _task(image: ReviewImage, folder: str, inline: Path | None) -> dict[str, Any]:
    height, width = image.size
    address = _LOCAL_FILES + quote(f"{folder}/{image.name}")
    if inline is not None:
        address = _data_address(in_any_form(inline / image.name))
    data = {"image": address, "file": image.name, "width": width, "height": height}
    result = [_region(number, box, image.size) for number, box in enumerate(image.boxes)]
    if image.complete:
        return {"data": data, "annotations": [{"result": result}]}
    scores = [box.score for box in image.boxes if box.score is not None]
    prediction = {"model_version": "detector", "score": min(scores, default=0.0), "result": result}
    return {"data": data, "predictions": [prediction]}


def _region(number: int, box: LabeledBox, size: tuple[int, int]) -> dict[str, Any]:
    (height, width), (x1, y1, x2, y2) = size, box.box
    value = {
        "x": 100 * x1 / width,
        "y": 100 * y1 / height,
        "width": 100 * (x2 - x1) / width,
        "height": 100 * (y2 - y1) / height,
        "rotation": 0,
        "rectanglelabels": [box.label],
    }
    region: dict[str, Any] = {
        "id": f"box{number}",
        "type": "rectanglelabels",
        "from_name": "label",
        "to_name": "image",
        "original_width": width,
        "original_height": height,
        "image_rotation": 0,
        "value": value,
    }
    if box.score is not None:
        region["score"] = box.score
    if texts := [flag for flag in ("reviewed", "doubtful") if getattr(box, flag)]:
        region["meta"] = {"text": texts}
    return region


def read(tasks: Sequence[Any], folder: str | Path | None, source: object = "") -> Iterator[ReviewImage]:
    """The images of an export in the format JSON. One that a person has submitted is complete.

    A task that nobody has submitted counts with its prediction. Without a prediction, or if it was skipped,
    it is left out: it may show objects.

    Args:
        folder: the folder of images, for the sizes that tasks of others lack.
        source: the file, for warnings that count the tasks whose annotations are not all used.
    """
    yield from _each_task(tasks, partial(_read_boxes, folder=folder), folder)
    _warn_of_annotations(tasks, source)


def read_points(tasks: Sequence[Any]) -> Iterator[tuple[str, list[Point]]]:
    """The name of each image of an export in the format JSON, and the points that a person submitted."""
    return _each_task(tasks, _read_points)


def _each_task(
    tasks: Sequence[Any], read_task: Callable[[dict[str, Any], str], _T], folder: str | Path | None = None
) -> Iterator[_T]:
    """The result of `read_task(task, name of its image)` for each task."""
    if not isinstance(tasks, list):
        raise DataError("it is not a list of tasks, as Label Studio exports in the format JSON")
    names = image_names(tasks)
    if folder is not None and Path(folder).is_dir():  # uploaded files are found by their original names
        names = index_folder(Path(folder)).rename(names)
    kinds = {
        str(result.get("type")) for task in tasks for result in _chosen(task) if isinstance(result, dict)
    }
    if kinds - {"relation"} and kinds <= _NO_REGION:
        raise DataError(
            f"no task has a box: they have regions of type {', '.join(map(repr, sorted(kinds)))}, expected "
            "rectanglelabels with one label; put tags of images into a table, as in a.jpg,cat;dog"
        )
    for number, (task, name) in enumerate(zip(tasks, names, strict=True)):
        if not _submitted(task) and not _predicted(task):
            continue
        try:
            yield read_task(task, name)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise DataError(
                f"task {task.get('id', number)} lacks {error} or has it of another type"
            ) from None


def image_names(tasks: Sequence[Any]) -> list[str]:
    """The name of the image of each task: its path below the folder that all images have in common."""
    found: list[tuple[str, bool]] = []
    for number, task in enumerate(tasks):
        data = task.get("data") if isinstance(task, dict) else None
        if not isinstance(data, dict):
            raise DataError(f"task {number} has no `data`: export the project as JSON, not as JSON-MIN")
        if "completions" in task:
            raise DataError(
                f"task {task.get('id', number)} has `completions`, as Label Studio before 1.0 exported: "
                "rename the key to annotations, or import the file into a later version and export it as JSON"
            )
        if {"file", "image", "width", "height"} <= data.keys():  # a task that this module has written
            found.append((data["file"], False))
        else:
            found.append(name_of_address(_address(data, task.get("id", number))))
    stored = [PurePosixPath(name).parent.parts for name, in_storage in found if in_storage]
    shared = 0
    while stored and len({parts[: shared + 1] for parts in stored}) == 1 and len(stored[0]) > shared:
        shared += 1
    return [
        PurePosixPath(*PurePosixPath(name).parts[shared:]).as_posix() if in_storage else name
        for name, in_storage in found
    ]


def _address(data: dict[str, Any], task: object) -> str:
    """The address of the image: under "image", else under the only key that has one."""
    # A tag with valueList has a list of images, whose regions have an index.
    lists = {key: value for key, value in data.items() if isinstance(value, list)}
    data = data | {key: value[0] for key, value in lists.items() if len(value) == 1}
    if isinstance(data.get("image"), str):
        return data["image"]
    for key, value in lists.items():
        if key == "image" or any(isinstance(item, str) and _is_image(item) for item in value):
            raise DataError(f"task {task}: `{key}` has {len(value)} images: make a task of each")
    texts = {key: value for key, value in data.items() if isinstance(value, str)}
    if videos := [value for value in texts.values() if name_of_address(value)[0].lower().endswith(_VIDEOS)]:
        raise DataError(f"task {task} has the video {videos[0]!r}: save its frames as images and box these")
    keys = [key for key, value in texts.items() if "fileuri=" in value or _is_image(value)]
    if len(keys) != 1:
        found = (
            f"the keys {', '.join(keys)} have addresses"
            if keys
            else f"none of the keys {', '.join(data)} has one"
        )
        raise DataError(
            f"task {task}: expected the address of one image in `data`, but {found}; name it image"
        )
    return texts[keys[0]]


def _is_image(address: str) -> bool:
    return name_of_address(address)[0].lower().endswith(IMAGE_SUFFIXES)


def _annotations(task: dict[str, Any]) -> list[dict[str, Any]]:
    return [annotation for annotation in task.get("annotations") or [] if isinstance(annotation, dict)]


def _predicted(task: dict[str, Any]) -> list[dict[str, Any]]:
    """The predictions of a task that nobody skipped; ids alone, as some exports have them, are dropped."""
    skipped = any(map(_skipped, _annotations(task)))
    predictions = [] if skipped else task.get("predictions") or []
    return [prediction for prediction in predictions if isinstance(prediction, dict)]


def _skipped(annotation: dict[str, Any]) -> bool:
    return bool(annotation.get("was_cancelled") or annotation.get("skipped"))


def _accepted(annotation: dict[str, Any]) -> bool | None:
    """The verdict of the newest review, a feature of the Enterprise edition; None: there is none."""
    reviews = [review for review in annotation.get("reviews") or [] if isinstance(review, dict)]
    newest = max(reviews, key=lambda review: review.get("created_at") or "", default={})
    return newest.get("accepted")


def _submitted(task: dict[str, Any]) -> list[dict[str, Any]]:
    """The annotations that a person has submitted and no reviewer rejected.

    If some are marked as ground truth, only these; else only those that a reviewer accepted, if any.
    """
    given = [
        annotation
        for annotation in _annotations(task)
        if not _skipped(annotation) and _accepted(annotation) is not False
    ]
    truth = [annotation for annotation in given if annotation.get("ground_truth")]
    return truth or list(filter(_accepted, given)) or given


def _newest(annotations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of the annotation or prediction that was changed last."""

    def changed(annotation: dict[str, Any]) -> str:
        return annotation.get("updated_at") or annotation.get("created_at") or ""

    newest = sorted(annotations, key=changed)[-1:]
    return (newest[0].get("result") or []) if newest else []


def _chosen(task: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of the annotation that counts, else of the newest prediction."""
    return _newest(_submitted(task) or _predicted(task))


def _warn_of_annotations(tasks: Sequence[Any], source: object) -> None:
    found: dict[str, list[str]] = {}
    for number, task in enumerate(tasks):
        given, what = _submitted(task), ""
        shapes = (_shapes(annotation.get("result") or []) for annotation in given)
        if len({json.dumps(shape, sort_keys=True) for shape in shapes}) > 1:
            what = "several annotations that differ, of which the newest counts: mark one as ground truth"
        elif not given and any(isinstance(draft, dict) for draft in task.get("drafts") or []):
            what = "a draft that nobody has submitted, left out: submit it"
        elif not given and any(_accepted(annotation) is False for annotation in _annotations(task)):
            what = "only annotations that a reviewer rejected, left out: correct and accept them"
        elif not given and any(map(_skipped, _annotations(task))):
            what = "been skipped, left out: submit those whose objects can be boxed"
        elif not given and not _predicted(task):
            what = "no annotation, left out: submit an empty one where the image shows no class"
        if what:
            found.setdefault(what, []).append(str(task.get("id", number)))
    for what, numbers in found.items():
        have = counted(len(numbers), "task has", "tasks have")
        warnings.warn(f"{source}: {have} {what} (task {shortened(numbers, 3)})", stacklevel=2)
    if tasks and not any(map(_submitted, tasks)) and any(map(_predicted, tasks)):
        warnings.warn(
            f"{source}: no task has a submitted annotation: the boxes are predictions of a model",
            stacklevel=2,
        )


def _shapes(results: Sequence[dict[str, Any]]) -> list[Any]:
    return [result.get("value") for result in results if result.get("type") not in _NO_REGION]


def _regions(task: dict[str, Any], results: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The regions among results, with one label each under `kind`.

    A shape without labels, of <Rectangle> or <KeyPoint>, has those of the result of <Labels> with its id.
    """
    shape = kind.removesuffix("labels")
    named = {
        result.get("id"): result["value"].get("labels")
        for result in results
        if result.get("type") == "labels"
    }
    shapes = {result.get("id") for result in results if result.get("type") == shape}
    regions = []
    for result in results:
        found = result.get("type")
        if found in _NO_REGION or (found == "labels" and result.get("id") in shapes):
            continue
        value = dict(result["value"])
        if found in (shape, "labels") and kind not in value:
            value[kind] = value.get("labels") or named.get(result.get("id")) or []
        labels = value.get(kind, [])
        if len(labels) != 1 or "x" not in value:
            raise DataError(
                f"task {task.get('id')} has the region {result.get('id')!r} of type {found!r} with the "
                f"labels {labels}, expected {kind} with one label: correct or delete it in Label Studio"
            )
        regions.append(result | {"value": value})
    return regions


def _read_points(task: dict[str, Any], name: str) -> tuple[str, list[Point]]:
    points: list[Point] = []
    for region in _regions(task, _newest(_submitted(task)), "keypointlabels"):
        value, sides = region["value"], (region["original_width"], region["original_height"])
        xy = [value[axis] * side / 100 for axis, side in zip("xy", sides, strict=True)]
        points.append({"label": value["keypointlabels"][0], "point": xy})
    return name, points


def _read_boxes(task: dict[str, Any], name: str, folder: str | Path | None) -> ReviewImage:
    regions = _regions(task, _chosen(task), "rectanglelabels")
    size = _size(task["data"], regions, name, folder)
    boxes = tuple(_read_region(region, size, f"task {task.get('id')} ({name})") for region in regions)
    return ReviewImage(name, size, boxes, complete=bool(_submitted(task)))


def _size(
    data: dict[str, Any], regions: Sequence[dict[str, Any]], name: str, folder: str | Path | None
) -> tuple[int, int]:
    """(height, width); of a task without boxes only known if detector wrote it, else read from the image."""
    for region in regions:
        if region.get("original_height") and region.get("original_width"):
            return int(region["original_height"]), int(region["original_width"])
    if "height" in data and "width" in data:
        return int(data["height"]), int(data["width"])
    if folder is None:
        raise DataError(f"image {name!r} has no boxes and no size: name the folder of images (--images)")
    return read_image_size(in_any_form(Path(folder, name)), apply_orientation=True)


def _read_region(region: dict[str, Any], size: tuple[int, int], place: str) -> LabeledBox:
    value, (height, width) = region["value"], size
    if (value.get("rotation") or 0) % 360 or region.get("image_rotation"):
        raise DataError(
            f"{place} has the region {region.get('id')!r}, which is rotated or in a rotated image, expected "
            "no rotation: turn it back in Label Studio"
        )
    x1, y1 = value["x"] * width / 100, value["y"] * height / 100
    box = x1, y1, x1 + value["width"] * width / 100, y1 + value["height"] * height / 100
    texts = (region.get("meta") or {}).get("text") or []
    return LabeledBox(
        value["rectanglelabels"][0], box, region.get("score"), "reviewed" in texts, "doubtful" in texts
    )

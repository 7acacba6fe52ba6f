"""Reader of folders in the PASCAL VOC layout.

    ROOT/ImageSets/Main/SPLIT.txt    one image id a line
    ROOT/JPEGImages/ID.jpg           or .jpeg, .png
    ROOT/Annotations/ID.xml          objects: class name, box, difficult flag

All annotations are read and checked when the data set is made, so that a bad file stops a run at its start
and not hours later. Pixels are read on demand.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from detector.structures import Annotation

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")

# What Pillow raises on files that are not, or only partly, images.
_DECODE_ERRORS = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)

# Published VOC boxes reach one pixel outside their image here and there; more than that is a mistake.
_OUTSIDE_TOLERANCE = 1.0


@dataclass(frozen=True)
class _Record:
    """One image and its objects. Arrays, as a tensor costs a file handle on its way to a worker process."""

    image_path: Path
    size: tuple[int, int]  # height, width
    boxes: np.ndarray  # (G, 4) float32
    labels: np.ndarray  # (G,) int64
    difficult: np.ndarray  # (G,) bool


class VOCDataset:
    """The images of one split, their image-level labels and, for evaluation, their true boxes.

    Boxes leave as half-open xyxy: the file's inclusive 1-based (xmin, ymin, xmax, ymax) becomes
    (xmin - 1, ymin - 1, xmax, ymax). A box that reaches at most one pixel outside its image is clipped.
    An image without objects is allowed: its labels are all zero, and one warning counts such images.

    Args:
        root: folder that holds JPEGImages, Annotations and ImageSets.
        split: name of a list in ImageSets/Main, without ".txt".
        class_names: the C foreground classes; their order is the order of the labels.
        difficult_labels: whether a difficult object gives its image the label of its class.

    Raises:
        FileNotFoundError: the folder, the split, an image or an annotation is missing.
        ValueError: an empty split, a repeated image id, an unreadable image, a bad annotation.
            Each error names the file.
    """

    def __init__(
        self, root: str | Path, split: str, class_names: Sequence[str], *, difficult_labels: bool = True
    ):
        root = Path(root)
        self.name = f"{root.name}_{split}"
        self.class_names = tuple(class_names)
        self.image_ids = _read_split(root, split)
        self._difficult_labels = difficult_labels
        self._records = [_read_record(root, image_id, self.class_names) for image_id in self.image_ids]
        unlabelled = sum(not self.labels(index).any() for index in range(len(self)))
        if unlabelled:
            warnings.warn(
                f"{self.name}: {unlabelled} of {len(self)} images have no object; their labels are all 0",
                stacklevel=2,
            )

    def __len__(self) -> int:
        return len(self.image_ids)

    def image_path(self, index: int) -> Path:
        return self._records[index].image_path

    def image_size(self, index: int) -> tuple[int, int]:
        """(height, width) in pixels, as the image's header says."""
        return self._records[index].size

    def read_image(self, index: int) -> Tensor:
        """Image (3, H, W), uint8 RGB. Orientation tags are ignored: boxes are given on the stored pixels."""
        return read_image(self._records[index].image_path)

    def labels(self, index: int) -> Tensor:
        """Image-level labels (C,), float32: 1 where the image shows the class, else 0."""
        record = self._records[index]
        counted = record.labels if self._difficult_labels else record.labels[~record.difficult]
        labels = torch.zeros(len(self.class_names))
        labels[torch.from_numpy(counted)] = 1
        return labels

    def annotation(self, index: int) -> Annotation:
        record = self._records[index]
        return Annotation(
            image_id=self.image_ids[index],
            boxes=torch.from_numpy(record.boxes),
            labels=torch.from_numpy(record.labels),
            difficult=torch.from_numpy(record.difficult),
        )


def read_image(path: str | Path) -> Tensor:
    """Image (3, H, W), uint8 RGB, of a file in any mode: grey, palette, CMYK and 16-bit images are converted.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be decoded.
    """
    try:
        with Image.open(path) as image:
            if image.mode.startswith("I"):  # 16-bit grey: Pillow's own conversion would clip at 255
                grey = (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)  # (H, W)
                pixels = np.stack([grey] * 3, axis=2)
            else:
                pixels = np.array(image.convert("RGB"))  # (H, W, 3)
    except FileNotFoundError:
        raise FileNotFoundError(f"image {path} does not exist") from None
    except _DECODE_ERRORS as error:
        raise ValueError(f"image {path} cannot be read: {error}") from error
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()  # (3, H, W)


def _read_split(root: Path, split: str) -> tuple[str, ...]:
    folder = root / "ImageSets" / "Main"
    if not folder.is_dir():
        raise FileNotFoundError(f"{root} is not a folder in VOC layout: it has no ImageSets/Main")
    path = folder / f"{split}.txt"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.txt"))) or "none"
        raise FileNotFoundError(f"split file {path} does not exist; the splits there are: {known}")
    image_ids = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    if not image_ids:
        raise ValueError(f"split file {path} is empty, expected one image id a line")
    image_id, count = Counter(image_ids).most_common(1)[0]
    if count > 1:
        raise ValueError(f"split file {path} lists image {image_id} {count} times, expected each image once")
    return image_ids


def _read_record(root: Path, image_id: str, class_names: tuple[str, ...]) -> _Record:
    image_path = _find_image(root / "JPEGImages", image_id)
    try:
        with Image.open(image_path) as image:
            width, height = image.size
    except _DECODE_ERRORS as error:
        raise ValueError(f"image {image_path} cannot be read: {error}") from error
    path = root / "Annotations" / f"{image_id}.xml"
    objects = [
        (_read_box(element, path, height, width), _read_label(element, path, class_names), difficult)
        for element in _parse(path).findall("object")
        for difficult in [_read_number(element, "difficult", path, default="0") != 0]
    ]
    return _Record(
        image_path=image_path,
        size=(height, width),
        boxes=np.array([box for box, _, _ in objects], dtype=np.float32).reshape(-1, 4),
        labels=np.array([label for _, label, _ in objects], dtype=np.int64),
        difficult=np.array([difficult for _, _, difficult in objects], dtype=bool),
    )


def _find_image(folder: Path, image_id: str) -> Path:
    for suffix in IMAGE_SUFFIXES:
        path = folder / f"{image_id}{suffix}"
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"image {folder / image_id} does not exist, as any of {', '.join(IMAGE_SUFFIXES)}"
    )


def _parse(path: Path) -> ElementTree.Element:
    try:
        root = ElementTree.parse(path).getroot()
    except FileNotFoundError:
        raise FileNotFoundError(f"annotation {path} does not exist") from None
    except ElementTree.ParseError as error:
        raise ValueError(f"annotation {path} is not valid XML: {error}") from None
    if root.tag != "annotation":  # else any XML would pass for an image without objects
        raise ValueError(f"annotation {path} has the root <{root.tag}>, expected <annotation>")
    return root


def _read_label(element: ElementTree.Element, path: Path, class_names: tuple[str, ...]) -> int:
    name = (element.findtext("name") or "").strip()
    if name not in class_names:
        nearest = get_close_matches(name, class_names, n=1)
        hint = f" (did you mean {nearest[0]}?)" if nearest else ""
        known = ", ".join(class_names)
        raise ValueError(
            f"annotation {path} has an object of unknown class {name!r}{hint}; known are {known}"
        )
    return class_names.index(name)


def _read_box(element: ElementTree.Element, path: Path, height: int, width: int) -> tuple[float, ...]:
    """Half-open (x1, y1, x2, y2) inside the image."""
    name = (element.findtext("name") or "").strip()
    bndbox = element.find("bndbox")
    if bndbox is None:
        raise ValueError(f"annotation {path} has an object ({name}) without a bndbox")
    xmin, ymin, xmax, ymax = (_read_number(bndbox, side, path) for side in ("xmin", "ymin", "xmax", "ymax"))
    x1, y1, x2, y2 = xmin - 1, ymin - 1, xmax, ymax
    found = f"annotation {path} has a box ({name}) xmin {xmin:g} ymin {ymin:g} xmax {xmax:g} ymax {ymax:g}"
    if not (x1 < x2 and y1 < y2):  # also true of nan
        raise ValueError(f"{found}, expected xmin <= xmax and ymin <= ymax")
    reach = max(-x1, -y1, x2 - width, y2 - height)
    box = max(x1, 0.0), max(y1, 0.0), min(x2, float(width)), min(y2, float(height))
    if reach > _OUTSIDE_TOLERANCE or box[0] >= box[2] or box[1] >= box[3]:
        raise ValueError(f"{found} outside its image, whose width is {width} and height {height}")
    return box


def _read_number(element: ElementTree.Element, tag: str, path: Path, default: str | None = None) -> float:
    text = element.findtext(tag, default)
    try:
        return float(text or "")  # some boxes of VOC 2011 and later are fractional
    except (TypeError, ValueError):
        place = f"<{tag}> of <{element.tag}>"
        raise ValueError(f"annotation {path}: {place} is {text!r}, expected a number") from None

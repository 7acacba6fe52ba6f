"""Matching of the proposals of other projects to the images of a data set."""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

import numpy as np

from detector.data.proposals.foreign import ForeignProposals
from detector.structures import ImageDataset
from detector.utils.errors import DataError

_OUTSIDE_TOLERANCE = 1.0  # pixels; boxes that extend out of their image by rounding are clipped
_LEAST_REACH = 0.75  # share of the image that the boxes of most images span, if they were made for it


def fit_proposals(foreign: ForeignProposals, dataset: ImageDataset, source: str | Path) -> list[np.ndarray]:
    """The boxes (R, 4) float32 of each image of a data set, in its order, clipped to the image.

    Images are matched by id in any order; where the file has numbers, 5 is "000005" and 2008000008 is
    "2008_000008". A file without ids must have the images in the order of the data set. Boxes without area
    are dropped.

    Args:
        source: the file, for messages.

    Raises:
        DataError: an image has no proposals in the file; or a box is inverted, not finite, or extends more
            than a pixel out of its image, as in a file for other images or sizes. Names the image.
    """
    rows = _match(foreign.image_ids, len(foreign.boxes), dataset.image_ids, source)
    fitted, reach = [], []
    for index, row in enumerate(rows):
        image_id, (height, width) = dataset.image_ids[index], dataset.image_size(index)
        boxes = foreign.boxes[row]
        limits = np.array([width, height, width, height], np.float32)
        x1, y1, x2, y2 = boxes.T
        # Comparisons with NaN are false, so a box with NaN is not inside.
        inside = ((boxes >= -_OUTSIDE_TOLERANCE) & (boxes <= limits + _OUTSIDE_TOLERANCE)).all(axis=1)
        good = inside & (x1 <= x2) & (y1 <= y2)
        if not good.all():
            found = boxes[np.flatnonzero(~good)[0]].tolist()
            raise DataError(
                f"{source}: image {image_id!r} has the box {found}, but is {width} wide and {height} high: "
                "are these the proposals of other images, of another order or for another size?"
            )
        boxes = boxes.clip(0, limits)
        fitted.append(boxes[(boxes[:, 2:] > boxes[:, :2]).all(axis=1)])
        reach.append(boxes.max(axis=0, initial=0)[2:] / limits[2:] if len(boxes) else (1, 1))
    share = np.median(reach, axis=0).max() if reach else 1.0
    if share < _LEAST_REACH:
        warnings.warn(
            f"{source}: in most images the boxes span at most {100 * share:.0f} % of the image: "
            "were they made for smaller copies?",
            stacklevel=2,
        )
    return fitted


def _match(
    file_ids: Sequence[str] | None, images: int, image_ids: Sequence[str], source: str | Path
) -> Sequence[int]:
    """The row of the file for each image of the data set."""
    if file_ids is None:
        if images != len(image_ids):
            raise DataError(
                f"{source} has proposals of {images} images and no names, so it is read in the order of the "
                f"data set; but there are {len(image_ids)} images, from {image_ids[0]!r} to {image_ids[-1]!r}"
            )
        warnings.warn(f"{source} has no image names: it is read in the order of the data set", stacklevel=3)
        return range(images)
    missing = []
    for file_key, set_key in _WAYS:
        rows = _unique_rows(file_ids, file_key)
        if rows is None or _unique_rows(image_ids, set_key) is None:
            continue
        missing.append([image_id for image_id in image_ids if set_key(image_id) not in rows])
        if not missing[-1]:
            return [rows[set_key(image_id)] for image_id in image_ids]
    if not missing:
        repeated = Counter(file_ids).most_common(1)[0][0]
        raise DataError(f"{source} names the image {repeated!r} more than once")
    fewest = min(missing, key=len)
    raise DataError(
        f"{source} has no proposals for {len(fewest)} of {len(image_ids)} images, the first is "
        f"{fewest[0]!r}; it has {len(file_ids)} images, such as {', '.join(map(repr, file_ids[:2]))}"
    )


def _unique_rows(names: Sequence[str], key: Callable[[str], Hashable]) -> dict[Hashable, int] | None:
    """The index of each name by its key; None if a key is missing or not unique."""
    rows = {key(name): row for row, name in enumerate(names)}
    return rows if len(rows) == len(names) and None not in rows else None


def _name(image_id: str) -> str:
    """The id without the suffix of an image file."""
    return re.sub(r"\.(jpe?g|png)$", "", image_id, flags=re.IGNORECASE)


def _number(image_id: str) -> int | None:
    """The number if the id is one without leading zeros, as a name that was read as a number."""
    return int(image_id) if re.fullmatch(r"0|[1-9]\d*", image_id) else None


def _all_digits(image_id: str) -> int | None:
    digits = re.sub(r"\D", "", image_id)
    return int(digits) if digits else None


def _last_number(image_id: str) -> int | None:
    numbers = re.findall(r"\d+", image_id)
    return int(numbers[-1]) if numbers else None


def _coco_number(image_id: str) -> int | None:
    found = re.fullmatch(r"(?:COCO_\w+_)?(\d+)", _name(image_id))
    return int(found[1]) if found else None


# Pairs of keys (for ids of the file, for ids of the data set), tried in this order: the name; all digits of
# it or its last number, as Detectron's files number VOC's images; the number of a COCO file.
_WAYS = ((_name, _name), (_number, _all_digits), (_number, _last_number), (_coco_number, _coco_number))

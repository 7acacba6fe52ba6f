"""The proposals of a data set: one .npz file, read and checked before anything is trained on it.

The file holds no pickles but four arrays:
    image_ids (N,) unicode
    counts (N,) int64, proposals of each image
    boxes (sum counts, 4) float32, half-open xyxy in pixels, image after image
    sizes (N, 2) int64, (height, width) of each image
"""

import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from detector.utils.files import atomic_write

REMEDY = "make the file anew with tools/make_proposals.py"
FIELDS = {"image_ids": ("U", 1), "counts": ("i", 1), "boxes": ("f", 2), "sizes": ("i", 2)}  # kind, dimensions


class Proposals(Mapping[str, Tensor]):
    """The proposals of many images: `proposals[image_id]` is (R, 4) float32 xyxy in pixels of that image.

    Args:
        image_ids, counts, boxes, sizes: the arrays of the file, see above.
        source: what errors call it, the path of the file.

    Raises:
        ValueError: the arrays contradict each other; a box is not finite, is inside out or leaves its image.
    """

    def __init__(
        self, image_ids: Sequence[str], counts: np.ndarray, boxes: np.ndarray, sizes: np.ndarray, source: str
    ):
        self.source = source
        self.image_ids = tuple(image_ids)
        self.sizes = sizes.astype(np.int64)
        self.boxes = torch.from_numpy(np.ascontiguousarray(boxes, dtype=np.float32))
        self._check_arrays(counts)
        self._rows = {name: row for row, name in enumerate(self.image_ids)}
        self._ends = np.cumsum(counts, dtype=np.int64)
        self._starts = self._ends - counts

    def _check_arrays(self, counts: np.ndarray) -> None:
        images = len(self.image_ids)
        if len(counts) != images or self.sizes.shape != (images, 2) or self.boxes.shape[1] != 4:
            found = f"{len(counts)} counts, sizes {self.sizes.shape}, boxes {tuple(self.boxes.shape)}"
            raise ValueError(
                f"{self.source}: {images} image ids need as many counts and sizes; found {found}"
            )
        if len(set(self.image_ids)) != images:
            twice = next(name for name in self.image_ids if self.image_ids.count(name) > 1)
            raise ValueError(f"{self.source}: the image {twice!r} is there more than once")
        if (counts < 0).any() or counts.sum() != len(self.boxes):
            raise ValueError(
                f"{self.source}: counts must not be negative and must add up to the number of boxes, "
                f"{len(self.boxes)}; they add up to {counts.sum()}"
            )
        boxes, (height, width) = self.boxes.numpy(), np.repeat(self.sizes, counts, axis=0).T  # (sum R,) each
        x1, y1, x2, y2 = boxes.T
        # Comparisons with NaN are false, so a box that holds one is not inside.
        inside = (x1 >= 0) & (y1 >= 0) & (x1 <= x2) & (y1 <= y2) & (x2 <= width) & (y2 <= height)
        if not inside.all():
            box = int(np.flatnonzero(~inside)[0])
            row = int(np.searchsorted(np.cumsum(counts), box, side="right"))
            raise ValueError(
                f"{self.source}: image {self.image_ids[row]!r} has the box {boxes[box].tolist()}, not "
                f"0 <= x1 <= x2 <= {width[box]}, 0 <= y1 <= y2 <= {height[box]}; {REMEDY}"
            )

    def __len__(self) -> int:
        return len(self.image_ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self.image_ids)

    def __getitem__(self, image_id: str) -> Tensor:
        """Boxes (R, 4) float32 of an image, xyxy in its pixels."""
        row = self._rows[image_id]
        return self.boxes[self._starts[row] : self._ends[row]]

    def check(self, dataset) -> None:
        """Makes sure that every image of a data set is here, at its size.

        An image without any proposal is allowed; one warning counts such images.

        Args:
            dataset: has `image_ids` and `image_size(index) -> (height, width)`, such as :class:`VOCDataset`.

        Raises:
            ValueError: an image is missing or has another size.
        """
        missing = [image_id for image_id in dataset.image_ids if image_id not in self]
        if missing:
            raise ValueError(
                f"{self.source} has no proposals for {len(missing)} of {len(dataset.image_ids)} images, "
                f"the first is {missing[0]!r}; {REMEDY}"
            )
        for i, image_id in enumerate(dataset.image_ids):
            found, size = tuple(self.sizes[self._rows[image_id]].tolist()), tuple(dataset.image_size(i))
            if found != size:
                raise ValueError(
                    f"{self.source} was made for an image {image_id!r} of (height, width) {found}, "
                    f"but it is {size}; {REMEDY}"
                )
        empty = [image_id for image_id in dataset.image_ids if len(self[image_id]) == 0]
        if empty:
            warnings.warn(
                f"{self.source}: {len(empty)} images have no proposals, the first is {empty[0]!r}: "
                "they teach nothing, and nothing is found in them",
                stacklevel=2,
            )


def save_proposals(
    path: str | Path,
    image_ids: Sequence[str],
    boxes: Sequence[np.ndarray | Tensor],
    sizes: Sequence[tuple[int, int]],
) -> None:
    """Writes the boxes (R_i, 4) and the size (height, width) of each image to a file, whole or not at all.

    Raises:
        ValueError: :func:`load_proposals` would not accept them.
    """
    counts = np.array([len(each) for each in boxes], np.int64)
    rows = [np.asarray(each, np.float32).reshape(-1, 4) for each in boxes]
    flat = np.concatenate([np.empty((0, 4), np.float32), *rows])  # (sum R, 4)
    size_rows = np.array(sizes, np.int64).reshape(-1, 2)
    Proposals(image_ids, counts, flat, size_rows, source=str(path))
    with atomic_write(path) as file:
        np.savez(file, image_ids=np.array(image_ids, np.str_), counts=counts, boxes=flat, sizes=size_rows)


def load_proposals(path: str | Path) -> Proposals:
    """Reads a file that :func:`save_proposals` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is something else, or contradicts itself; see :class:`Proposals`.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no proposals at {path}: make them with tools/make_proposals.py")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in FIELDS}
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a proposals file ({error}); {REMEDY}") from error
    for name, (kind, dimensions) in FIELDS.items():
        array = arrays[name]
        if array.dtype.kind != kind or array.ndim != dimensions:
            found = f"{array.dtype} {array.shape}"
            raise ValueError(
                f"{path}: {name} must have {dimensions} dimensions of kind {kind!r}, not {found}"
            )
    return Proposals(arrays.pop("image_ids").tolist(), **arrays, source=str(path))


def clean_proposals(boxes: Tensor, *, min_size: float, stride: float, max_count: int) -> Tensor:
    """Those of the boxes (R, 4) that are worth scoring, in their order: (R', 4) with R' <= max_count.

    Dropped are boxes whose width or height is at most `min_size` pixels; boxes that coincide with an earlier
    one once rounded to the grid of features, `stride` pixels a cell, so exact duplicates too; and what is
    left after the first `max_count`.
    """
    if stride <= 0:
        raise ValueError(f"stride must be positive, not {stride}")
    sides = boxes[:, 2:] - boxes[:, :2]
    boxes = boxes[(sides > min_size).all(dim=1)]
    cells = (boxes / stride).round()
    groups, group = torch.unique(cells, dim=0, return_inverse=True)  # (G, 4), (R,)
    order = torch.arange(len(boxes), device=boxes.device)
    first = order.new_full((len(groups),), len(boxes)).scatter_reduce(0, group, order, "amin")  # (G,)
    return boxes[first.sort().values[:max_count]]

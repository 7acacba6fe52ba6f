"""The proposals of a data set: one .npz file, checked before training.

It holds these arrays, stored without compression:
    image_ids (N,) unicode
    counts (N,) int64, proposals of each image
    boxes (sum counts, 4) float32, half-open xyxy in pixels, image after image
    sizes (N, 2) int64, (height, width) of each image
    checksums (N,) uint32, CRC-32 of the boxes of each image

The boxes, gigabytes for a large data set, are read and verified on access, one image at a time. The other
arrays are verified on load by the checksums of the zip archive, and so are the boxes of a file without
`checksums` (of numpy.savez, or of an earlier version).
"""

import os
import struct
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from detector.structures import ImageDataset
from detector.utils.errors import DataError, counted
from detector.utils.files import atomic_write
from detector.utils.npz import Pieces, open_npz, pick, write_npz

REMEDY = "make the file again with `detector propose`"
_FIELDS = {"image_ids": ("U", 1), "counts": ("i", 1), "sizes": ("i", 2)}
_BOXES, _CHECKSUMS = {"boxes": ("f", 2)}, {"checksums": ("u", 1)}  # the checksums may be missing
FIELDS = _FIELDS | _BOXES
_SAMPLE = 1000  # images whose boxes are checked before a run starts


@dataclass(frozen=True)
class _StoredBoxes:
    """The boxes in a file, read when they are sliced.

    No file is kept open and nothing is mapped: worker processes receive these four values, and a file that is
    truncated while it is in use is an error, not a SIGBUS.
    """

    path: Path
    offset: int  # of the first box, in bytes
    dtype: np.dtype
    shape: tuple[int, ...]

    def __getitem__(self, rows: slice) -> np.ndarray:
        size = self.shape[1] * self.dtype.itemsize  # of a box, in bytes
        count, offset = (rows.stop - rows.start) * self.shape[1], self.offset + rows.start * size
        boxes = np.fromfile(self.path, self.dtype, count, offset=offset)
        if len(boxes) != count:
            raise DataError(f"{self.path} was truncated while it was in use")
        return boxes.reshape(-1, self.shape[1])


class Proposals(Mapping[str, Tensor]):
    """The proposals of many images: `proposals[image_id]` is (R, 4) float32 xyxy in pixels of that image.

    Args:
        image_ids, counts, boxes, sizes: the arrays of the file, see above.
        source: the path of the file, for messages.
        checksums: those of the file; None: the boxes are not verified when they are read.

    Raises:
        DataError: the arrays are inconsistent.
    """

    def __init__(
        self,
        image_ids: Sequence[str],
        counts: np.ndarray,
        boxes: np.ndarray | _StoredBoxes,
        sizes: np.ndarray,
        source: str,
        checksums: np.ndarray | None = None,
    ):
        self.source = source
        self.image_ids = tuple(image_ids)
        counts, self.sizes = np.array(counts), np.array(sizes, np.int64)
        self._boxes, self._checksums = boxes, checksums
        images, total = len(self.image_ids), boxes.shape[0]
        if len(counts) != images or self.sizes.shape != (images, 2) or boxes.shape[1:] != (4,):
            found = f"{len(counts)} counts, sizes {self.sizes.shape}, boxes {boxes.shape}"
            raise DataError(f"{source}: {images} image ids need as many counts and sizes; found {found}")
        self._rows = {name: row for row, name in enumerate(self.image_ids)}
        if len(self._rows) != images:
            repeated = Counter(self.image_ids).most_common(1)[0][0]
            raise DataError(f"{source}: the image {repeated!r} is there more than once")
        # Each count is compared as well as their sum, which may overflow.
        if ((counts < 0) | (counts > total)).any() or counts.sum() != total:
            raise DataError(
                f"{source}: counts must not be negative and must add up to the number of boxes, {total}; "
                f"they add up to {counts.sum()}"
            )
        if checksums is not None and len(checksums) != len(counts):
            raise DataError(f"{source}: {len(counts)} images have {len(checksums)} checksums; {REMEDY}")
        self._ends = np.cumsum(counts, dtype=np.int64)
        self._starts = self._ends - counts

    def __len__(self) -> int:
        return len(self.image_ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self.image_ids)

    def __getitem__(self, image_id: str) -> Tensor:
        """Boxes (R, 4) float32 of an image, xyxy in its pixels; a copy.

        Raises:
            DataError: the file was damaged or changed; a box is not finite, is inverted or leaves the
                image.
        """
        row = self._rows[image_id]
        boxes = np.array(self._boxes[self._starts[row] : self._ends[row]], dtype=np.float32)
        if self._checksums is not None and _checksum(boxes) != self._checksums[row]:
            raise DataError(
                f"{self.source}: the boxes of image {image_id!r} do not match their checksum: the file is "
                f"damaged, or was changed while it was in use; {REMEDY}"
            )
        self._check_boxes(row, boxes)
        return torch.from_numpy(boxes)

    def _check_boxes(self, row: int, boxes: np.ndarray) -> None:
        """Raise DataError where boxes (R, 4) of the image in a row are not inside of it."""
        (height, width), (x1, y1, x2, y2) = self.sizes[row], boxes.T  # (R,) each
        # Comparisons with NaN are false, so a box with NaN is not inside.
        inside = (x1 >= 0) & (y1 >= 0) & (x1 <= x2) & (y1 <= y2) & (x2 <= width) & (y2 <= height)
        if not inside.all():
            found = boxes[np.flatnonzero(~inside)[0]].tolist()
            raise DataError(
                f"{self.source}: image {self.image_ids[row]!r} has the box {found}, not "
                f"0 <= x1 <= x2 <= {width}, 0 <= y1 <= y2 <= {height}; {REMEDY}"
            )

    def checksums(self, image_ids: Sequence[str]) -> list[tuple[str, int, int]]:
        """The id of each image that is here, the number of its boxes and their CRC-32."""
        # The checksums of the file suffice, since every read verifies the boxes.
        rows, known = [self._rows[i] for i in image_ids if i in self._rows], self._checksums
        ids, counts = [self.image_ids[row] for row in rows], (self._ends - self._starts)[rows].tolist()
        sums = [_checksum(self[i].numpy()) for i in ids] if known is None else known[rows].tolist()
        return list(zip(ids, counts, sums, strict=True))

    def check(self, dataset: ImageDataset) -> None:
        """Check that every image of a data set is here with its size, and the boxes of a sample of images.

        An image without any proposal is allowed; one warning counts such images.

        Raises:
            DataError: an image is missing or has another size; a box as in :meth:`__getitem__`.
        """
        image_ids = dataset.image_ids
        missing = [image_id for image_id in image_ids if image_id not in self._rows]
        if missing:
            raise DataError(
                f"{self.source} has no proposals for {len(missing)} of {len(image_ids)} images, "
                f"the first is {missing[0]!r}; {REMEDY}"
            )
        rows = np.array([self._rows[image_id] for image_id in image_ids], np.int64)  # (N,)
        sizes = np.array([dataset.image_size(i) for i in range(len(image_ids))], np.int64).reshape(-1, 2)
        for i in np.flatnonzero((self.sizes[rows] != sizes).any(axis=1))[:1]:
            found, size = tuple(self.sizes[rows[i]].tolist()), tuple(sizes[i].tolist())
            raise DataError(
                f"{self.source} was made for an image {image_ids[i]!r} of (height, width) {found}, "
                f"but it is {size}; {REMEDY}"
            )
        # A sample finds mistakes that affect all boxes; reading all of a large file would take long.
        for image_id in image_ids[:: len(image_ids) // _SAMPLE + 1]:
            self[image_id]
        empty = np.flatnonzero(self._starts[rows] == self._ends[rows])
        if len(empty):
            warnings.warn(
                f"{self.source}: {counted(len(empty), 'image has', 'images have')} no proposals, the "
                f"first is {image_ids[empty[0]]!r}: nothing to learn from, and no detections",
                stacklevel=2,
            )


class JoinedProposals(Proposals):
    """The proposals of a file, preceded by the fewer boxes of another source such as a teacher.

    Args:
        own: the proposals of the file; checksums, sizes and counts are theirs alone.
        others: boxes (R, 4) of some images, by id, inside their images.
    """

    def __init__(self, own: Proposals, others: Mapping[str, Tensor]):
        self.__dict__.update(vars(own))
        self._others = others

    def __getitem__(self, image_id: str) -> Tensor:
        own, others = super().__getitem__(image_id), self._others.get(image_id)
        return own if others is None else torch.cat([others, own])


def save_proposals(
    path: str | Path,
    image_ids: Sequence[str],
    boxes: Sequence[np.ndarray | Tensor],
    sizes: Sequence[tuple[int, int]],
) -> None:
    """Write the boxes (R_i, 4) and the size (height, width) of each image to a file, atomically.

    Args:
        boxes: read twice, image by image, so that a sequence that makes them anew holds few in memory.

    Raises:
        DataError: :func:`load_proposals` would not accept them.
    """
    counts = np.array([len(image_boxes) for image_boxes in boxes], np.int64)
    shape = int(counts.sum()), 4
    sizes_of_all, checksums = np.array(sizes, np.int64).reshape(-1, 2), np.zeros(len(counts), np.uint32)
    proposals = Proposals(
        image_ids, counts, np.broadcast_to(np.float32(0), shape), sizes_of_all, str(path)
    )  # checks all but the boxes

    def pieces() -> Iterator[np.ndarray]:
        for row, image_boxes in enumerate(boxes):
            piece = np.asarray(image_boxes, np.float32).reshape(-1, 4)
            proposals._check_boxes(row, piece)
            checksums[row] = _checksum(piece)
            yield piece

    with atomic_write(path) as file:
        write_npz(
            file,
            {
                "image_ids": np.array(image_ids, np.str_),
                "counts": counts,
                "boxes": Pieces(shape, np.dtype(np.float32), pieces()),
                "sizes": sizes_of_all,
                "checksums": checksums,  # which the pieces have filled
            },
        )


def _checksum(boxes: np.ndarray) -> int:
    """The CRC-32 of boxes (R, 4), as they are stored."""
    return zlib.crc32(np.ascontiguousarray(boxes, "<f4").tobytes())


def load_proposals(path: str | Path) -> Proposals:
    """Read a file that :func:`save_proposals` wrote; its boxes are read on access.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it is damaged, of another format, or inconsistent; see :class:`Proposals`.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no proposals at {path}: make them with `detector propose`")
    try:
        with open_npz(path, "proposals file") as file:
            assert file.zip is not None  # it is open
            arrays = pick(file, _FIELDS)
            checksums = pick(file, _CHECKSUMS)["checksums"] if "checksums" in file else None
            boxes = _find_boxes(path, file.zip) or pick(file, _BOXES)["boxes"]
            if checksums is None and (damaged := file.zip.testzip()):
                raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
    except DataError as error:
        raise DataError(f"{error}; {REMEDY}") from error
    image_ids, counts, sizes = arrays["image_ids"].tolist(), arrays["counts"], arrays["sizes"]
    return Proposals(image_ids, counts, boxes, sizes, str(path), checksums)


def _find_boxes(path: Path, archive: zipfile.ZipFile) -> _StoredBoxes | None:
    """Where the boxes are in the file; None if they are not stored as float rows without compression."""
    member = archive.NameToInfo.get("boxes.npy")
    if member is None or member.compress_type != zipfile.ZIP_STORED:
        return None
    with open(path, "rb") as file:
        file.seek(member.header_offset)
        lengths = struct.unpack("<26x2H", file.read(30))  # of the name and an extra field
        file.seek(sum(lengths), os.SEEK_CUR)
        if np.lib.format.read_magic(file) != (1, 0):
            return None
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype.kind != "f" or len(shape) != 2 or fortran_order:
            return None
        return _StoredBoxes(path, file.tell(), dtype, shape)

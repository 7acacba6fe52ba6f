"""Parts of TIFF files, which are stored in tiles or strips, read with the package tifffile."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from detector.utils.errors import DataError
from detector.utils.files import reading

if TYPE_CHECKING:
    import tifffile

_CACHED = 2**28  # bytes of decoded segments that are kept: neighboring tiles share them
_LARGEST = 2**27  # bytes of a segment: a file with larger ones is not read in parts
_ORIENTATION, _GRAY, _RGB, _INTERLEAVED = 274, 1, 2, 1  # a tag, and values of others
_PREMULTIPLIED = 1  # colors that are multiplied by alpha
_COLOR_JPEG = 6, 7  # YCbCr, which the decoder of JPEG turns to RGB


def tiff_parts(path: str | Path) -> Callable[[int, int, int, int], Tensor] | None:
    """A function that reads a part x1, y1, x2, y2 of a TIFF file as (3, y2 - y1, x2 - x1) uint8 RGB.

    None if the file is not a TIFF, is not stored as uint8 gray, RGB or RGBA in tiles or strips of up to 128
    MB, has an orientation or premultiplied colors, or if tifffile is not installed.
    """
    try:
        import tifffile  # optional
    except ImportError:
        return None
    with reading(path, "image"):
        try:
            file = tifffile.TiffFile(path)
        except tifffile.TiffFileError:
            return None
        page = file.pages[0]
        if not isinstance(page, tifffile.TiffPage) or not _in_parts(page):
            file.close()
            return None
    return _Parts(path, file, page)


def _in_parts(page: "tifffile.TiffPage") -> bool:
    orientation = page.tags.get(_ORIENTATION)
    rows, columns = _segment(page)
    return (
        page.dtype == np.uint8
        and page.samplesperpixel in (1, 3, 4)
        and (page.photometric in (_GRAY, _RGB) or (page.photometric, page.compression) == _COLOR_JPEG)
        and page.planarconfig == _INTERLEAVED
        and _PREMULTIPLIED not in page.extrasamples
        and (orientation is None or orientation.value == 1)
        and rows * columns * page.samplesperpixel <= _LARGEST
    )


def _segment(page: "tifffile.TiffPage") -> tuple[int, int]:
    """(height, width) of a tile or a strip."""
    if page.is_tiled:
        return page.tilelength, page.tilewidth
    return min(page.rowsperstrip, page.imagelength), page.imagewidth


class _Parts:
    """Reads parts of a page, for one thread at a time."""

    def __init__(self, path: str | Path, file: "tifffile.TiffFile", page: "tifffile.TiffPage"):
        self.path, self.file, self.page = path, file, page
        self.rows, self.columns = _segment(page)
        self.across = -(-page.imagewidth // self.columns)  # segments
        self.cache: OrderedDict[int, np.ndarray] = OrderedDict()
        self.lock = threading.Lock()

    def __call__(self, x1: int, y1: int, x2: int, y2: int) -> Tensor:
        part = np.zeros((y2 - y1, x2 - x1, self.page.samplesperpixel), dtype=np.uint8)
        with self.lock:
            for row in range(y1 // self.rows, -(-y2 // self.rows)):
                for column in range(x1 // self.columns, -(-x2 // self.columns)):
                    top, left = row * self.rows, column * self.columns
                    pixels = self._decode(row * self.across + column)[
                        max(0, y1 - top) : y2 - top, max(0, x1 - left) : x2 - left
                    ]
                    low, right = max(top, y1) - y1, max(left, x1) - x1
                    part[low : low + pixels.shape[0], right : right + pixels.shape[1]] = pixels
        rgb = part[:, :, :3] if part.shape[2] > 1 else np.repeat(part, 3, axis=2)
        return torch.from_numpy(rgb).permute(2, 0, 1).contiguous()

    def _decode(self, index: int) -> np.ndarray:
        """The pixels (h, w, samples) of a segment; recently used ones are cached."""
        if index in self.cache:
            self.cache.move_to_end(index)
            return self.cache[index]
        page, handle = self.page, self.file.filehandle
        try:
            handle.seek(page.dataoffsets[index])
            content = handle.read(page.databytecounts[index])
            pixels = page.decode(content, index, jpegtables=page.jpegtables)[0]
        except Exception as error:  # decoders raise many kinds
            raise DataError(f"image {self.path} cannot be read: {error}") from error
        if pixels is None:  # left out by the writer: it is black
            pixels = np.zeros((1, self.rows, self.columns, page.samplesperpixel), dtype=np.uint8)
        self.cache[index] = pixels[0]
        while len(self.cache) > 1 and sum(part.nbytes for part in self.cache.values()) > _CACHED:
            self.cache.popitem(last=False)
        return pixels[0]

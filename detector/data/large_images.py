"""Reads parts of pictures that have more pixels than Pillow reads by default."""

from collections.abc import Callable
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import avg_pool2d

from detector.data.images import decoded_image, from_pillow, read_image, read_image_size
from detector.data.tiff_parts import tiff_parts
from detector.utils.errors import DataError

_BAND = 1024  # rows that are read at a time to reduce a picture
_PILLOW_BYTES = 4  # per pixel
_SHOWN = 4096  # pixels of the shorter side to look at, at least


class LargeImage:
    """A picture that is read in parts: `image.shape` is (3, H, W), and `image[:, y1:y2, x1:x2]` reads a part.

    Args:
        read: maps x1, y1, x2, y2 to the pixels there, (3, y2 - y1, x2 - x1) uint8 RGB.
    """

    def __init__(self, read: Callable[[int, int, int, int], Tensor], height: int, width: int):
        self._read, self.shape = read, (3, height, width)

    def __getitem__(self, part: tuple[slice, slice, slice]) -> Tensor:
        _, rows, columns = part
        y1, y2, _ = rows.indices(self.shape[1])
        x1, x2, _ = columns.indices(self.shape[2])
        return self._read(x1, y1, x2, y2)

    def reduced(self, least: int) -> Tensor:
        """The whole picture (3, h, w), uint8: means of squares of pixels, the largest that leave the shorter
        side `least` pixels.
        """
        _, height, width = self.shape
        factor = max(1, min(height, width) // least)
        rows = max(1, _BAND // factor) * factor
        bands = []
        for top in range(0, height, rows):
            band = self._read(0, top, width, min(top + rows, height))
            # By channel, since the floats of all would be four times the memory of a band.
            means = [
                avg_pool2d(channel[None].float(), factor, ceil_mode=True, count_include_pad=False)
                for channel in band
            ]
            bands.append(torch.cat(means).round().byte())
        return torch.cat(bands, dim=1)


def open_image_file(path: str | Path, *, apply_orientation: bool) -> Tensor | LargeImage:
    """:func:`read_image`, or a picture to read in parts if it has more pixels than Pillow reads by default.

    A TIFF file in tiles or strips is read tile by tile if the package tifffile is installed. Others are
    decoded as a whole, with 4 bytes a pixel, and cut from there.

    Raises:
        FileNotFoundError, DataError: as :func:`read_image`; or there is too little memory to decode it.
    """
    height, width = read_image_size(path, apply_orientation=apply_orientation)
    if not exceeds_limit(height, width):
        return read_image(path, apply_orientation=apply_orientation)
    if (read := tiff_parts(path)) is not None:
        return LargeImage(read, height, width)
    check_memory(path, _PILLOW_BYTES * height * width)
    image = decoded_image(path, apply_orientation=apply_orientation)
    return LargeImage(lambda *box: from_pillow(image.crop(box)), height, width)


def reduced_to_show(image: Tensor | LargeImage) -> Tensor:
    """The image (3, H, W) to look at: fewer pixels of one that is read in parts."""
    return image if isinstance(image, Tensor) else image.reduced(_SHOWN)


def exceeds_limit(height: int, width: int) -> bool:
    """Whether a picture has more pixels than Pillow reads by default, 178 million."""
    return Image.MAX_IMAGE_PIXELS is not None and height * width > 2 * Image.MAX_IMAGE_PIXELS


def check_memory(path: str | Path, needed: int) -> None:
    """Refuse a picture that would fill the memory.

    Raises:
        DataError: says how many bytes are needed and free.
    """
    free = available_memory()
    if free is not None and needed > free:
        raise DataError(
            f"image {path} needs {needed / 1e9:.1f} GB of memory to be decoded, and {free / 1e9:.1f} GB are "
            "free: save it as a TIFF file in tiles, uint8 RGB, which is read in parts "
            "(pip install tifffile imagecodecs)"
        )


def available_memory() -> int | None:
    """Bytes that can be used without swapping, as Linux says; None: elsewhere."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)

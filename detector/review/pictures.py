"""The pictures of a review as a browser shows them, and crops of them."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from PIL import Image
from torch import Tensor

from detector.data.images import read_image_size, read_orientation
from detector.data.large_images import LargeImage, exceeds_limit, open_image_file, reduced_to_show
from detector.utils.files import encode_image

_SHOWN = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG\r\n\x1a\n": "image/png"}
_CROP_SIDE = 192  # pixels of the longer side of a crop
_CONTEXT = 0.15  # margin of a crop around a box, as a share of its sides


class Pictures:
    """Reads the picture files of a review, and no other files.

    Args:
        paths: the file of each image, by its number.
        upright: whether boxes are of the pictures as a viewer shows them, or as stored.
    """

    def __init__(self, paths: Mapping[int, Path], *, upright: bool) -> None:
        self.paths, self.upright = paths, upright
        self._decoded: Callable[[int], Tensor | LargeImage] = lru_cache(maxsize=4)(self._open)
        # Apart, since one may hold gigabytes.
        self._large: Callable[[int], Tensor | LargeImage] = lru_cache(maxsize=1)(self._open)

    def encoded(self, number: int) -> tuple[bytes, str]:
        """The content of an image file and its type; converted to PNG if a browser would show something else.

        Browsers turn JPEG files by their EXIF orientation, and some turn PNG files; GIF files move. One that
        is too large to be read at once is a reduced JPEG.

        Raises:
            KeyError: there is no such image.
            OSError, DataError: the file cannot be read.
        """
        if self._is_large(number):
            return encode_image(_picture(self._reduced(number)), "JPEG", quality=90), "image/jpeg"
        content = self.paths[number].read_bytes()
        kind = next((kind for start, kind in _SHOWN.items() if content.startswith(start)), None)
        sure = self.upright and kind == "image/jpeg"
        if kind is None or not (sure or read_orientation(self.paths[number]) == 1):
            return encode_image(_picture(self._reduced(number)), "PNG"), "image/png"
        return content, kind

    def crop(self, number: int, box: tuple[float, float, float, float]) -> bytes:
        """A JPEG of a box with some context."""
        pixels, (x1, y1, x2, y2) = self._pixels(number), box
        margin_x, margin_y = _CONTEXT * (x2 - x1) + 2, _CONTEXT * (y2 - y1) + 2
        left, top = max(0, int(x1 - margin_x)), max(0, int(y1 - margin_y))
        image = _picture(pixels[:, top : int(y2 + margin_y) + 1, left : int(x2 + margin_x) + 1])
        scale = _CROP_SIDE / max(image.size)
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        return encode_image(image.resize(size, Image.Resampling.BILINEAR), "JPEG", quality=85)

    def _is_large(self, number: int) -> bool:
        return exceeds_limit(*read_image_size(self.paths[number]))

    def _pixels(self, number: int) -> Tensor | LargeImage:
        return self._large(number) if self._is_large(number) else self._decoded(number)

    def _reduced(self, number: int) -> Tensor:
        return reduced_to_show(self._pixels(number))

    def _open(self, number: int) -> Tensor | LargeImage:
        return open_image_file(self.paths[number], apply_orientation=self.upright)


def _picture(pixels: Tensor) -> Image.Image:
    return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())  # of (H, W, 3)

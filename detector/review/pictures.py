"""The pictures of a review as a browser shows them, and crops of them."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from detector.data.images import read_image
from detector.utils.files import encode_image

_SHOWN = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG\r\n\x1a\n": "image/png", b"GIF8": "image/gif"}
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
        self._decoded: Callable[[int], np.ndarray] = lru_cache(maxsize=4)(self._decode)

    def encoded(self, number: int) -> tuple[bytes, str]:
        """The content of an image file and its type; converted to PNG if browsers cannot show it, or turn it.

        Raises:
            KeyError: there is no such image.
            OSError, DataError: the file cannot be read.
        """
        content = self.paths[number].read_bytes()
        kind = next((kind for start, kind in _SHOWN.items() if content.startswith(start)), None)
        turned = not self.upright and kind == "image/jpeg" and b"Exif" in content[:1024]
        if kind is None or turned:
            return encode_image(Image.fromarray(self._decoded(number)), "PNG"), "image/png"
        return content, kind

    def crop(self, number: int, box: tuple[float, float, float, float]) -> bytes:
        """A JPEG of a box with some context."""
        pixels, (x1, y1, x2, y2) = self._decoded(number), box
        margin_x, margin_y = _CONTEXT * (x2 - x1) + 2, _CONTEXT * (y2 - y1) + 2
        left, top = max(0, int(x1 - margin_x)), max(0, int(y1 - margin_y))
        cut = pixels[top : int(y2 + margin_y) + 1, left : int(x2 + margin_x) + 1]
        image = Image.fromarray(cut)
        scale = _CROP_SIDE / max(image.size)
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        return encode_image(image.resize(size, Image.Resampling.BILINEAR), "JPEG", quality=85)

    def _decode(self, number: int) -> np.ndarray:
        image = read_image(self.paths[number], apply_orientation=self.upright)
        return image.permute(1, 2, 0).contiguous().numpy()  # (H, W, 3)

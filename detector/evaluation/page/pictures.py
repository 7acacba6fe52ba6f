"""Pictures as data URIs, with boxes as an SVG overlay that stays sharp when enlarged."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from detector.evaluation.drawing import class_color

_SIDE = 640  # pixels; larger pictures are scaled down to this longest side


@dataclass(frozen=True)
class Box:
    """A box on a picture."""

    xyxy: Sequence[float]  # in pixels of the image
    style: str  # "found", "other" (thinner), "member" (thinnest) or "true" (dashed white)
    label: int = 0  # the class index, which determines the color
    title: str = ""  # the tooltip

    @property
    def color(self) -> str:
        red, green, blue = class_color(self.label)
        return f"rgb({red},{green},{blue})"


@dataclass(frozen=True)
class Picture:
    """An image under an overlay of boxes, drawn by the macro `picture` of templates/macros.html."""

    source: str  # a data URI
    size: tuple[int, int]  # (height, width) of the image whose pixels the boxes are in
    boxes: Sequence[Box]
    text: str  # the alternative text


def picture(image: Tensor | Image.Image, size: tuple[int, int], boxes: Sequence[Box], text: str) -> Picture:
    """A :class:`Picture` of an image, (3, H, W) uint8 or a Pillow image; what was found is drawn on top."""
    return Picture(_data_uri(image), size, sorted(boxes, key=lambda box: box.style == "found"), text)


def _data_uri(image: Tensor | Image.Image) -> str:
    """An image, (3, H, W) uint8 or a Pillow image, as a JPEG in a data URI."""
    drawn = image if isinstance(image, Image.Image) else Image.fromarray(image.permute(1, 2, 0).numpy())
    small = drawn.convert("RGB")
    small.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, format="jpeg", quality=82, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")

"""Pictures as data URIs, with boxes as an SVG overlay that stays sharp when enlarged."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from PIL import Image
from torch import Tensor

from detector.evaluation.drawing import class_color

_SIDE = 640  # pixels; larger pictures are scaled down to this longest side


@dataclass(frozen=True)
class Box:
    """A box on a picture."""

    box: Sequence[float]  # xyxy in pixels of the image
    style: str  # "found", "other" (thinner), "member" (thinnest) or "true" (dashed white)
    label: int = 0  # the class index, which determines the color
    title: str = ""  # the tooltip


def picture(image: Tensor | Image.Image, size: tuple[int, int], boxes: Sequence[Box], text: str) -> str:
    """An image under an overlay of boxes; a click enlarges it to the whole window, another click closes it.

    A checkbox holds the state, as the page contains no script.

    Args:
        image: (3, H, W) uint8 or a Pillow image.
        size: (height, width) of the image whose pixels the boxes are in.
        text: the alternative text.
    """
    height, width = size
    shapes = "".join(map(_shape, sorted(boxes, key=lambda box: box.style == "found")))
    overlay = f'<svg viewBox="0 0 {width} {height}" aria-hidden="true">{shapes}</svg>'
    return (
        f'<label class="zoom" style="aspect-ratio:{width}/{height}">'
        f'<input type="checkbox" aria-label="enlarge {escape(text)}">'
        f'<span class="picture"><img src="{_data_uri(image)}" alt="{escape(text)}" '
        f'width="{width}" height="{height}">{overlay}</span></label>'
    )


def _data_uri(image: Tensor | Image.Image) -> str:
    """An image, (3, H, W) uint8 or a Pillow image, as a JPEG in a data URI."""
    drawn = image if isinstance(image, Image.Image) else Image.fromarray(image.permute(1, 2, 0).numpy())
    small = drawn.convert("RGB")
    small.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, format="jpeg", quality=82, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _shape(box: Box) -> str:
    x1, y1, x2, y2 = box.box
    place = f'x="{x1:.1f}" y="{y1:.1f}" width="{max(x2 - x1, 0):.1f}" height="{max(y2 - y1, 0):.1f}"'
    if box.style == "true":
        return f'<rect class="under" {place}/><rect class="true" {place}/>'
    red, green, blue = class_color(box.label)
    halo = f'<rect class="halo" {place}/>' if box.style == "found" else ""
    return (
        f'{halo}<rect class="{box.style}" {place} style="stroke:rgb({red},{green},{blue})">'
        f"<title>{escape(box.title)}</title></rect>"
    )

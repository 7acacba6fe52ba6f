"""The HTML page: sections, rendered from templates/ with Jinja, which escapes every value, and pictures.

A picture is a data URI with the boxes as an SVG overlay, which stays sharp when enlarged.
"""

import base64
import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image
from torch import Tensor

from detector.evaluation.pictures import class_color
from detector.utils.files import encode_image

SCRIPT = Markup(Path(__file__).with_name("templates").joinpath("thresholds.js").read_text("utf-8").strip())
# Nothing is loaded, and no script runs but this one.
_DIGEST = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode("ascii")
POLICY = (
    f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{_DIGEST}'; "
    "base-uri 'none'; form-action 'none'"
)
_SIDE = 640  # pixels; larger pictures are scaled down to this longest side


@dataclass(frozen=True)
class Section:
    """A section of the page: a plain-text title and an HTML body."""

    title: str
    body: Markup

    @property
    def anchor(self) -> str:
        return self.title.lower().replace(" ", "-")


def render(template: str, **values: Any) -> Markup:
    """The HTML of `templates/NAME.html` with these values, which are escaped unless they are Markup."""
    html = _environment().get_template(f"{template}.html").render(**values)
    # Line breaks between tags lay out the template. On the page they would be spaces.
    return Markup(re.sub(r">\n\s*<", "><", html).strip())


@functools.cache
def _environment() -> Environment:
    loader = FileSystemLoader(Path(__file__).with_name("templates"))
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["zip"] = zip
    return environment


@dataclass(frozen=True)
class Box:
    """A box on a picture."""

    xyxy: Sequence[float]  # in pixels of the image
    style: str  # "found", "other" (thinner), "member" (thinnest) or "true" (dashed white)
    label: int = 0  # the class index, which determines the color
    title: str = ""  # the tooltip
    score: float | None = None  # None: the sliders of thresholds do not hide it
    shown: bool = True  # at the thresholds that the page begins with

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


def picture(drawn: Tensor | Image.Image, size: tuple[int, int], boxes: Sequence[Box], text: str) -> Picture:
    """A :class:`Picture` of an image, with found boxes on top of others.

    Args:
        drawn: what to show, (3, H, W) uint8 or an image; it may be smaller than the image is.
        size: (height, width) of the image in whose pixels the boxes are.
    """
    if isinstance(drawn, Tensor):
        drawn = Image.fromarray(drawn.permute(1, 2, 0).numpy())
    shown = drawn.convert("RGB")
    shown.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    content = base64.b64encode(encode_image(shown, "jpeg", quality=82, optimize=True)).decode("ascii")
    on_top = sorted(boxes, key=lambda box: box.style == "found")
    return Picture(f"data:image/jpeg;base64,{content}", size, on_top, text)

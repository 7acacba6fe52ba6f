"""Draws boxes, class names and contact sheets with Pillow."""

import colorsys
import math
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

_READABLE_SIDE = 600  # pixels; images are enlarged by an integer factor to about this longest side
_CELL = (320, 260)  # (width, height) of a picture on a sheet
_SHEET_COLUMNS = 4


def enlarged(image: Tensor) -> tuple[Image.Image, int]:
    """Image (3, H, W) uint8, enlarged until text on it is legible, and the integer factor."""
    height, width = image.shape[1:]
    factor = max(1, round(_READABLE_SIDE / max(height, width)))
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())  # from (H, W, 3)
    return picture.resize((width * factor, height * factor), Image.Resampling.BICUBIC), factor


def contact_sheet(pictures: Sequence[Image.Image], legend: str) -> Image.Image:
    """Thumbnails of all pictures on one sheet, row by row, below a legend."""
    columns = min(_SHEET_COLUMNS, len(pictures))
    rows = math.ceil(len(pictures) / columns)
    width, height = _CELL
    top = 24
    sheet = Image.new("RGB", (columns * width, top + rows * height), "white")
    ImageDraw.Draw(sheet).text((8, 4), legend, fill="black", font=ImageFont.load_default(size=14))
    for place, picture in enumerate(pictures):
        small = picture.copy()
        small.thumbnail((width - 8, height - 8), Image.Resampling.LANCZOS)
        left = place % columns * width + (width - small.width) // 2
        sheet.paste(small, (left, top + place // columns * height + (height - small.height) // 2))
    return sheet


def draw_labeled(
    draw: ImageDraw.ImageDraw, box: list[float], text: str, color: tuple[int, int, int], width: int
) -> None:
    """A solid box with a filled label above it, or inside if there is no room, within the image width."""
    draw.rectangle(outermost_pixels(box), outline=color, width=3)
    font = ImageFont.load_default(size=15)
    _, _, text_width, text_height = map(math.ceil, draw.textbbox((0, 0), text, font=font))
    left = max(0, min(round(box[0]), width - text_width - 4))
    top = round(box[1]) - text_height - 3
    top = top if top >= 0 else max(0, round(box[1]))
    draw.rectangle((left, top, left + text_width + 4, top + text_height + 3), fill=color)
    red, green, blue = color
    bright = 0.299 * red + 0.587 * green + 0.114 * blue > 120
    draw.text((left + 2, top + 1), text, fill="black" if bright else "white", font=font)


def draw_dashed(draw: ImageDraw.ImageDraw, box: list[float], dash: int = 6) -> None:
    """A thin box, dashed white on black."""
    left, top, right, bottom = outermost_pixels(box)
    draw.rectangle((left, top, right, bottom), outline="black", width=2)
    for x in range(left, right, 2 * dash):
        for y in (top, bottom - 1):
            draw.rectangle((x, y, min(x + dash, right), y + 1), fill="white")
    for y in range(top, bottom, 2 * dash):
        for x in (left, right - 1):
            draw.rectangle((x, y, x + 1, min(y + dash, bottom)), fill="white")


def outermost_pixels(box: list[float]) -> tuple[int, int, int, int]:
    """The outermost pixels inside a half-open box (x1, y1, x2, y2), inclusive."""
    x1, y1, x2, y2 = map(round, box)
    return x1, y1, max(x1, x2 - 1), max(y1, y2 - 1)


def class_color(label: int) -> tuple[int, int, int]:
    """Bright colors whose hues, spaced by the golden ratio, differ clearly between neighboring classes."""
    red, green, blue = colorsys.hsv_to_rgb(0.05 + 0.618034 * label % 1, 0.85, 1.0)
    return round(255 * red), round(255 * green), round(255 * blue)

"""Drawings of detections beside the truth."""

import colorsys
import math
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from detector.structures import Annotation, Detections
from detector.utils.files import atomic_write

_READABLE_SIDE = 600  # images are enlarged, by a whole factor, to a longest side of about this many pixels
_CELL = (320, 260)  # (width, height) of a picture on the overview
_OVERVIEW_COLUMNS = 4
_LEGEND = "solid: detected, with class and score      dashed: true"


class Source(Protocol):
    """What pictures need of a data set."""

    class_names: tuple[str, ...]
    image_ids: tuple[str, ...]

    def read_image(self, index: int) -> Tensor: ...

    def annotation(self, index: int) -> Annotation | None: ...


def draw_detections(
    image: Tensor,
    detections: Detections,
    annotation: Annotation | None,
    class_names: Sequence[str],
    *,
    score_threshold: float,
) -> Image.Image:
    """Image (3, H, W) uint8 with the detections that score `score_threshold` or more, and the true boxes.

    Detections are solid, in the colour of their class, with its name and the score; the true boxes are thin
    and dashed, white on black. Small images are enlarged so that the text can be read.
    """
    height, width = image.shape[1:]
    factor = max(1, round(_READABLE_SIDE / max(height, width)))
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())  # from (H, W, 3)
    picture = picture.resize((width * factor, height * factor), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(picture)
    for box in (annotation.boxes * factor).tolist() if annotation else ():
        _draw_dashed(draw, box)
    shown = [row for row, score in enumerate(detections.scores.tolist()) if score >= score_threshold]
    for row in reversed(shown):  # the best last, on top
        label = int(detections.labels[row])
        text = f"{class_names[label]} {float(detections.scores[row]):.2f}"
        box = (detections.boxes[row] * factor).tolist()
        _draw_labelled(draw, box, text, _class_colour(label), picture.width)
    return picture


def choose_images(detections: Sequence[Detections], num_classes: int, count: int) -> list[int]:
    """Indices of up to `count` images: that of the best detection of each class, then the second best, ...

    So the choice shows the detector at its most confident, right or wrong. Images without detections come
    last.
    """
    best: list[dict[int, float]] = [{} for _ in range(num_classes)]  # of a class: image to its highest score
    for index, image in enumerate(detections):
        for score, label in zip(image.scores.tolist(), image.labels.tolist(), strict=True):
            best[label].setdefault(index, score)  # scores descend
    rankings = [sorted(scores, key=lambda index: -scores[index]) for scores in best]
    turns = zip_longest(*rankings)
    chosen = [index for turn in turns for index in turn if index is not None]
    return list(dict.fromkeys([*chosen, *range(len(detections))]))[:count]


def write_pictures(
    folder: str | Path,
    source: Source,
    detections: Sequence[Detections],
    *,
    count: int,
    score_threshold: float,
) -> list[Path]:
    """Draw the `count` images of :func:`choose_images`; write them, and `overview.png`, which shows all.

    Pictures that an earlier call left in `folder` are removed.

    Args:
        detections: of each image of `source`, in its order.

    Returns:
        the files written, the overview last; none where `count` is 0.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("[0-9][0-9]_*.png"), *folder.glob("overview.png")):
        old.unlink()
    pictures = {}
    for rank, index in enumerate(choose_images(detections, len(source.class_names), count), start=1):
        picture = draw_detections(
            source.read_image(index),
            detections[index],
            source.annotation(index),
            source.class_names,
            score_threshold=score_threshold,
        )
        pictures[folder / f"{rank:02d}_{Path(source.image_ids[index]).name}.png"] = picture
    if pictures:
        pictures[folder / "overview.png"] = contact_sheet(list(pictures.values()))
    for path, picture in pictures.items():
        with atomic_write(path) as file:
            picture.save(file, format="png")
    return list(pictures)


def contact_sheet(pictures: Sequence[Image.Image]) -> Image.Image:
    """Small copies of all pictures on one sheet, row by row, below a legend."""
    columns = min(_OVERVIEW_COLUMNS, len(pictures))
    rows = math.ceil(len(pictures) / columns)
    width, height = _CELL
    top = 24
    sheet = Image.new("RGB", (columns * width, top + rows * height), "white")
    ImageDraw.Draw(sheet).text((8, 4), _LEGEND, fill="black", font=ImageFont.load_default(size=14))
    for place, picture in enumerate(pictures):
        small = picture.copy()
        small.thumbnail((width - 8, height - 8), Image.Resampling.LANCZOS)
        left = place % columns * width + (width - small.width) // 2
        sheet.paste(small, (left, top + place // columns * height + (height - small.height) // 2))
    return sheet


def _draw_labelled(
    draw: ImageDraw.ImageDraw, box: list[float], text: str, colour: tuple[int, int, int], width: int
) -> None:
    """A solid box with a filled label above it, or in it at the top, inside the image's width."""
    draw.rectangle(_pixels(box), outline=colour, width=3)
    font = ImageFont.load_default(size=15)
    _, _, text_width, text_height = map(math.ceil, draw.textbbox((0, 0), text, font=font))
    left = max(0, min(round(box[0]), width - text_width - 4))
    top = round(box[1]) - text_height - 3
    top = top if top >= 0 else max(0, round(box[1]))
    draw.rectangle((left, top, left + text_width + 4, top + text_height + 3), fill=colour)
    red, green, blue = colour
    bright = 0.299 * red + 0.587 * green + 0.114 * blue > 120
    draw.text((left + 2, top + 1), text, fill="black" if bright else "white", font=font)


def _draw_dashed(draw: ImageDraw.ImageDraw, box: list[float], dash: int = 6) -> None:
    left, top, right, bottom = _pixels(box)
    draw.rectangle((left, top, right, bottom), outline="black", width=2)
    for x in range(left, right, 2 * dash):
        for y in (top, bottom - 1):
            draw.rectangle((x, y, min(x + dash, right), y + 1), fill="white")
    for y in range(top, bottom, 2 * dash):
        for x in (left, right - 1):
            draw.rectangle((x, y, x + 1, min(y + dash, bottom)), fill="white")


def _pixels(box: list[float]) -> tuple[int, int, int, int]:
    """The outermost pixels inside a half-open box (x1, y1, x2, y2), inclusive."""
    x1, y1, x2, y2 = map(round, box)
    return x1, y1, max(x1, x2 - 1), max(y1, y2 - 1)


def _class_colour(label: int) -> tuple[int, int, int]:
    """Bright colours, those of neighbouring classes far apart: hues by the golden ratio."""
    red, green, blue = colorsys.hsv_to_rgb(0.05 + 0.618034 * label % 1, 0.85, 1.0)
    return round(255 * red), round(255 * green), round(255 * blue)

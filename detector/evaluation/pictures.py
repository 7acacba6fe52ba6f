"""Pictures of detections, ground-truth boxes and proposals, drawn with Pillow, and which images to draw."""

import colorsys
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from PIL import Image, ImageDraw
from torch import Tensor

from detector.structures import Annotation, Detections, ImageDataset, box_iou
from detector.utils.files import encode_image
from detector.utils.fonts import fitting_font
from detector.utils.outputs import OutputFolder

_READABLE_SIDE = 600  # pixels; images are enlarged by an integer factor to about this longest side
_CELL = (320, 260)  # (width, height) of a picture on a sheet
_SHEET_COLUMNS = 4
_FOUND, _TRUE = "solid: detected, with class and score", "      dashed: ground truth"
_PROPOSALS = 15  # drawn per image; all of them would hide it

T = TypeVar("T")


def in_turns(rankings: Iterable[Iterable[T]]) -> list[T]:
    """The first of each ranking, then the second of each, and so on."""
    return [item for turn in zip_longest(*rankings) for item in turn if item is not None]


def draw_detections(
    image: Tensor,
    detections: Detections,
    annotation: Annotation | None,
    class_names: Sequence[str],
    *,
    score_threshold: float | Tensor,
) -> Image.Image:
    """Image (3, H, W) uint8 with the detections that score `score_threshold` or more, and ground truth.

    The threshold is one of all classes, or (C,), one of each.

    Detections are solid, in the color of their class, with its name and the score; ground-truth boxes are
    thin, dashed, and white on black. Small images are enlarged so that the text is legible.
    """
    picture, factor = enlarged(image)
    draw = ImageDraw.Draw(picture)
    for box in (annotation.boxes * factor).tolist() if annotation else ():
        draw_dashed(draw, box)
    least = score_threshold[detections.labels] if isinstance(score_threshold, Tensor) else score_threshold
    for row in reversed((detections.scores >= least).nonzero()[:, 0].tolist()):  # the best last, on top
        label = int(detections.labels[row])
        text = f"{class_names[label]} {float(detections.scores[row]):.2f}"
        box = (detections.boxes[row] * factor).tolist()
        draw_labeled(draw, box, text, class_color(label), picture.width)
    return picture


def choose_images(detections: Sequence[Detections], num_classes: int, count: int) -> list[int]:
    """Indices of up to `count` images: with the best detection of each class, then the second best, ...

    These are the most confident detections, correct or not. Images without detections come last.
    """
    best: list[dict[int, float]] = [{} for _ in range(num_classes)]  # image index to highest score
    if not count:
        return []
    for index, image in enumerate(detections):
        for score, label in zip(image.scores.tolist(), image.labels.tolist(), strict=True):
            best[label].setdefault(index, score)  # scores descend
            if len(best[label]) > 2 * count:  # the others of the class are not chosen, however many come
                best[label] = {i: best[label][i] for i in sorted(_ranked(best[label])[:count])}
    rankings = [_ranked(scores)[:count] for scores in best]
    return list(dict.fromkeys([*in_turns(rankings), *range(min(count, len(detections)))]))[:count]


def _ranked(scores: Mapping[int, float]) -> list[int]:
    """The indices by descending score; those of equal scores as they come."""
    return sorted(scores, key=lambda index: -scores[index])


def write_pictures(
    outputs: OutputFolder,
    dataset: ImageDataset,
    detections: Sequence[Detections],
    *,
    count: int,
    score_threshold: float | Tensor,
) -> list[Path]:
    """Write the `count` images of :func:`choose_images`, and `overview.png` with all of them.

    They go to the folder `pictures` of `outputs`. Pictures that an earlier command with the same key wrote
    there are removed; all other files are kept.

    Args:
        detections: the detections in each image of `dataset`, in its order.
        score_threshold: of :func:`draw_detections`.

    Returns:
        the written files, the overview last; empty if `count` is 0.

    Raises:
        UserError: a file of that name exists and was not written by this command.
    """
    pictures = {}
    chosen = choose_images(detections, len(dataset.class_names), count)
    for rank, index in enumerate(chosen, start=1):
        picture = draw_detections(
            dataset.read_image(index),
            detections[index],
            dataset.annotation(index),
            dataset.class_names,
            score_threshold=score_threshold,
        )
        pictures[f"pictures/{rank:02d}_{Path(dataset.image_ids[index]).name}.png"] = picture
    if pictures:
        truth = any(dataset.annotation(index) is not None for index in chosen)
        legend = _FOUND + (_TRUE if truth else "")
        pictures["pictures/overview.png"] = contact_sheet(list(pictures.values()), legend)
    written = [outputs.write(name, encode_image(picture, "png")) for name, picture in pictures.items()]
    outputs.remove_earlier("pictures")
    return written


def draw_sample(
    image: Tensor,
    labels: Tensor,
    annotation: Annotation | None,
    proposals: Tensor | None,
    class_names: Sequence[str],
) -> Image.Image:
    """Image (3, H, W) uint8 with its ground-truth boxes, some proposals (R, 4), and its labels (C,)."""
    picture, factor = enlarged(image)
    draw = ImageDraw.Draw(picture)
    if proposals is not None:
        for box in (proposals[:: len(proposals) // _PROPOSALS + 1] * factor).tolist():
            draw.rectangle(outermost_pixels(box), outline="white")
    if annotation is not None:
        for box, label in zip((annotation.boxes * factor).tolist(), annotation.labels.tolist(), strict=True):
            draw_labeled(draw, box, class_names[label], class_color(label), picture.width)
        if proposals is not None and len(proposals) and len(annotation.boxes):
            nearest = box_iou(annotation.boxes, proposals).argmax(dim=1)
            for box in (proposals[nearest] * factor).tolist():
                draw_dashed(draw, box)
    names = [name for name, there in zip(class_names, labels.tolist(), strict=True) if there]
    framed = Image.new("RGB", (picture.width, picture.height + 36), "white")
    framed.paste(picture, (0, 0))
    font, text = fitting_font("; ".join(names) or "no label", 24)
    ImageDraw.Draw(framed).text((4, picture.height + 2), text, fill="black", font=font)
    return framed


def choose_samples(labels: Sequence[Tensor], count: int) -> list[int]:
    """Indices of up to `count` images: the first of each class, then the second, ...; unlabeled ones last."""
    num_classes = len(labels[0]) if labels else 0
    of_class = [[i for i, shown in enumerate(labels) if shown[label]] for label in range(num_classes)]
    return list(dict.fromkeys([*in_turns(of_class), *range(len(labels))]))[:count]


def encode_samples(
    dataset: ImageDataset, indices: Sequence[int], proposals: Sequence[Tensor | None]
) -> bytes:
    """A PNG sheet of the images `indices`, each with its proposals (R, 4) or None."""
    pictures = [
        draw_sample(
            dataset.read_image(i), dataset.labels(i), dataset.annotation(i), boxes, dataset.class_names
        )
        for i, boxes in zip(indices, proposals, strict=True)
    ]
    truth = any(dataset.annotation(i) is not None for i in indices)
    searched = any(boxes is not None for boxes in proposals)
    legend = {
        "solid: ground truth": truth,
        "dashed: proposal of highest IoU with it": truth and searched,
        "thin: other proposals": searched,
        "below: labels": True,
    }
    return encode_image(contact_sheet(pictures, "   ".join(filter(legend.get, legend))), "png")


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
    font, legend = fitting_font(legend, 14)
    ImageDraw.Draw(sheet).text((8, 4), legend, fill="black", font=font)
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
    font, text = fitting_font(text, 15)
    _, _, text_width, text_height = map(math.ceil, draw.textbbox((0, 0), text, font=font))
    left = max(0, min(round(box[0]), width - text_width - 4))
    top = round(box[1]) - text_height - 3
    top = top if top >= 0 else max(0, round(box[1]))
    draw.rectangle((left, top, left + text_width + 4, top + text_height + 3), fill=color)
    red, green, blue = color
    bright = 0.299 * red + 0.587 * green + 0.114 * blue > 120
    draw.text((left + 2, top + 1), text, fill="black" if bright else "white", font=font)


def draw_dashed(draw: ImageDraw.ImageDraw, box: list[float]) -> None:
    """A thin box, dashed white on black."""
    dash = 6  # pixels
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

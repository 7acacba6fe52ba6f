"""A contact sheet of images of a data set with their labels, ground-truth boxes and proposals."""

from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from detector.evaluation.drawing import (
    class_color,
    contact_sheet,
    draw_dashed,
    draw_labeled,
    enlarged,
    outermost_pixels,
)
from detector.structures import Annotation, ImageDataset, box_iou
from detector.utils.files import atomic_write, encode_image

_PROPOSALS = 15  # drawn per image; all of them would hide it
_LEGEND = (
    "solid: ground truth   dashed: proposal of highest IoU with it   thin: other proposals   below: labels"
)


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
    text, font = "; ".join(names) or "no label", ImageFont.load_default(size=24)
    ImageDraw.Draw(framed).text((4, picture.height + 2), text, fill="black", font=font)
    return framed


def choose_samples(labels: Sequence[Tensor], count: int) -> list[int]:
    """Indices of up to `count` images: the first of each class, then the second, ...; unlabeled ones last."""
    num_classes = len(labels[0]) if labels else 0
    of_class = [[i for i, each in enumerate(labels) if each[label]] for label in range(num_classes)]
    turns = chain.from_iterable(zip_longest(*of_class))
    chosen = dict.fromkeys(index for index in turns if index is not None)
    return list(dict.fromkeys([*chosen, *range(len(labels))]))[:count]


def write_samples(
    path: str | Path, dataset: ImageDataset, indices: Sequence[int], proposals: Sequence[Tensor | None]
) -> None:
    """Write a PNG sheet of the images `indices`, each with its proposals (R, 4) or None."""
    pictures = [
        draw_sample(
            dataset.read_image(i), dataset.labels(i), dataset.annotation(i), boxes, dataset.class_names
        )
        for i, boxes in zip(indices, proposals, strict=True)
    ]
    with atomic_write(path) as file:
        file.write(encode_image(contact_sheet(pictures, _LEGEND), "png"))

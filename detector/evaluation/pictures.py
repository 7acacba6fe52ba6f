"""Pictures of detections, ground-truth boxes and proposals, and which images to draw."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

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
from detector.structures import Annotation, Detections, ImageDataset, box_iou
from detector.utils.files import atomic_write, encode_image
from detector.utils.outputs import OutputFolder

_LEGEND = "solid: detected, with class and score      dashed: ground truth"
_PROPOSALS = 15  # drawn per image; all of them would hide it
_SAMPLES_LEGEND = (
    "solid: ground truth   dashed: proposal of highest IoU with it   thin: other proposals   below: labels"
)

T = TypeVar("T")


def in_turns(rankings: Iterable[Iterable[T]]) -> list[T]:
    """The first of each ranking, then the second of each, and so on."""
    return [each for turn in zip_longest(*rankings) for each in turn if each is not None]


def draw_detections(
    image: Tensor,
    detections: Detections,
    annotation: Annotation | None,
    class_names: Sequence[str],
    *,
    score_threshold: float,
) -> Image.Image:
    """Image (3, H, W) uint8 with the detections that score `score_threshold` or more, and ground truth.

    Detections are solid, in the color of their class, with its name and the score; ground-truth boxes are
    thin, dashed, and white on black. Small images are enlarged so that the text is legible.
    """
    picture, factor = enlarged(image)
    draw = ImageDraw.Draw(picture)
    for box in (annotation.boxes * factor).tolist() if annotation else ():
        draw_dashed(draw, box)
    shown = [row for row, score in enumerate(detections.scores.tolist()) if score >= score_threshold]
    for row in reversed(shown):  # the best last, on top
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
    for index, image in enumerate(detections):
        for score, label in zip(image.scores.tolist(), image.labels.tolist(), strict=True):
            best[label].setdefault(index, score)  # scores descend
    rankings = [sorted(scores, key=lambda index: -scores[index]) for scores in best]
    return list(dict.fromkeys([*in_turns(rankings), *range(len(detections))]))[:count]


def write_pictures(
    outputs: OutputFolder,
    dataset: ImageDataset,
    detections: Sequence[Detections],
    *,
    count: int,
    score_threshold: float,
) -> list[Path]:
    """Write the `count` images of :func:`choose_images`, and `overview.png` with all of them.

    They go to the folder `pictures` of `outputs`. Pictures that an earlier command with the same key wrote
    there are removed; all other files are kept.

    Args:
        detections: the detections in each image of `dataset`, in its order.

    Returns:
        the written files, the overview last; empty if `count` is 0.

    Raises:
        UserError: a file of that name exists and was not written by this command.
    """
    pictures = {}
    for rank, index in enumerate(choose_images(detections, len(dataset.class_names), count), start=1):
        picture = draw_detections(
            dataset.read_image(index),
            detections[index],
            dataset.annotation(index),
            dataset.class_names,
            score_threshold=score_threshold,
        )
        pictures[f"pictures/{rank:02d}_{Path(dataset.image_ids[index]).name}.png"] = picture
    if pictures:
        pictures["pictures/overview.png"] = contact_sheet(list(pictures.values()), _LEGEND)
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
    text, font = "; ".join(names) or "no label", ImageFont.load_default(size=24)
    ImageDraw.Draw(framed).text((4, picture.height + 2), text, fill="black", font=font)
    return framed


def choose_samples(labels: Sequence[Tensor], count: int) -> list[int]:
    """Indices of up to `count` images: the first of each class, then the second, ...; unlabeled ones last."""
    num_classes = len(labels[0]) if labels else 0
    of_class = [[i for i, each in enumerate(labels) if each[label]] for label in range(num_classes)]
    return list(dict.fromkeys([*in_turns(of_class), *range(len(labels))]))[:count]


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
        file.write(encode_image(contact_sheet(pictures, _SAMPLES_LEGEND), "png"))

"""Drawings of detections beside the truth."""

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from PIL import Image, ImageDraw
from torch import Tensor

from detector.evaluation.drawing import class_color, contact_sheet, draw_dashed, draw_labeled, enlarged
from detector.structures import Annotation, Detections, ImageDataset
from detector.utils.files import encode_image
from detector.utils.outputs import OutputFolder

_LEGEND = "solid: detected, with class and score      dashed: true"


def draw_detections(
    image: Tensor,
    detections: Detections,
    annotation: Annotation | None,
    class_names: Sequence[str],
    *,
    score_threshold: float,
) -> Image.Image:
    """Image (3, H, W) uint8 with the detections that score `score_threshold` or more, and the true boxes.

    Detections are solid, in the color of their class, with its name and the score; the true boxes are thin
    and dashed, white on black. Small images are enlarged so that the text can be read.
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
    outputs: OutputFolder,
    dataset: ImageDataset,
    detections: Sequence[Detections],
    *,
    count: int,
    score_threshold: float,
) -> list[Path]:
    """Draw the `count` images of :func:`choose_images`; write them, and `overview.png`, which shows all.

    They go to the folder `pictures` of `outputs`. Those that an earlier command with the same key wrote there
    are removed; all other files stay.

    Args:
        detections: of each image of `dataset`, in its order.

    Returns:
        the files written, the overview last; none where `count` is 0.

    Raises:
        UserError: a file is in the way that this command did not make.
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

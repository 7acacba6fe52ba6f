"""Pictures of detections and ground-truth boxes."""

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from PIL import Image, ImageDraw
from torch import Tensor

from detector.evaluation.drawing import class_color, contact_sheet, draw_dashed, draw_labeled, enlarged
from detector.structures import Annotation, Detections, ImageDataset
from detector.utils.files import encode_image
from detector.utils.outputs import OutputFolder

_LEGEND = "solid: detected, with class and score      dashed: ground truth"


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
    best: list[dict[int, float]] = [
        {} for _ in range(num_classes)
    ]  # for each class: image index to highest score
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

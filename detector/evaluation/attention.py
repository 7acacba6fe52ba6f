"""Scores and clusters of the MIL stream and the refinement streams on training images: files and pictures."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from detector.evaluation.pictures import class_color, outermost_pixels
from detector.utils.files import atomic_write
from detector.utils.fonts import fitting_font
from detector.utils.npz import open_npz, pick

_PANEL = 240  # pixels of the longest side of a drawn image
_COLORS = np.array([(20, 12, 60), (114, 31, 129), (222, 73, 104), (254, 159, 109), (252, 253, 191)])

# Arrays per image in the file: dtype kind and number of dimensions.
_FIELDS = {
    "image_id": ("U", 0),
    "labels": ("i", 1),
    "boxes": ("f", 2),
    "scores": ("f", 3),
    "clusters": ("i", 2),
    "centers": ("i", 2),
}


@dataclass(frozen=True)
class Attention:
    """Scores of S streams on one image: row 0 is the MIL stream, followed by the refinement streams.

    Row s of `clusters` and `centers` holds the pseudo labels computed from the scores of stream s, with which
    the next stream is trained.
    """

    image_id: str
    labels: Tensor  # (L,) int64, the classes of the image, ascending
    boxes: Tensor  # (R, 4) float32 xyxy in pixels of the original image: the proposals
    scores: Tensor  # (S, R, L) float32
    clusters: Tensor  # (S, R) int64, the cluster of each proposal; -1: none
    centers: Tensor  # (S, R) int64, the class of each cluster center; -1: not a center


def stream_names(count: int) -> list[str]:
    """Names of the S rows of an :class:`Attention`."""
    return ["MIL", *(f"stream {k}" for k in range(1, count))]


def save_attention(path: Path, images: Sequence[Attention]) -> None:
    """Write the attention of several images to an .npz file without pickles."""
    arrays = {
        f"{index}/{field.name}": np.asarray(getattr(image, field.name))
        for index, image in enumerate(images)
        for field in fields(Attention)
    }
    path.parent.mkdir(exist_ok=True)  # not the run folder, which may have been moved
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def load_attention(path: Path) -> list[Attention]:
    """Read the file that :func:`save_attention` wrote.

    Raises:
        FileNotFoundError: the file does not exist.
        DataError: the file is damaged or of another kind.
    """
    with open_npz(path, "snapshot") as file:
        count = len({name.partition("/")[0] for name in file})
        images = [pick(file, {f"{i}/{name}": field for name, field in _FIELDS.items()}) for i in range(count)]
        return [
            Attention(str(image_id), *map(torch.from_numpy, tensors))
            for image_id, *tensors in (arrays.values() for arrays in images)
        ]


def heat_map(boxes: Tensor, scores: Tensor, size: tuple[int, int], scale: float = 1.0) -> np.ndarray:
    """Score map (height * scale, width * scale), float64 in [0, 1].

    For each class, a pixel is the sum of the scores of the boxes that cover it, divided by the maximum over
    the image; the map is the maximum over the classes.

    Args:
        boxes, scores: (R, 4) and (R, L).
        size: (height, width) of the image.
    """
    height, width = (max(1, round(side * scale)) for side in size)
    corners = (boxes.double() * scale).round().long().numpy()  # (R, 4)
    left, right = (corners[:, i].clip(0, width) for i in (0, 2))
    top, bottom = (corners[:, i].clip(0, height) for i in (1, 3))
    heat = np.zeros((height, width))
    for column in scores.double().numpy().T:  # (R,)
        # A box adds its score at two corners and subtracts it at the other two; cumulative sums fill it.
        steps = np.zeros((height + 1, width + 1))
        for y, x, sign in ((top, left, 1), (bottom, right, 1), (top, right, -1), (bottom, left, -1)):
            np.add.at(steps, (y, x), sign * column)
        sums = steps.cumsum(axis=0).cumsum(axis=1)[:height, :width]
        heat = np.maximum(heat, sums / max(sums.max(), 1e-12))
    return heat.clip(0, 1)


def draw_heat(image: Tensor, attention: Attention, stream: int) -> Image.Image:
    """Image (3, H, W) uint8, small and gray, overlaid with the score map of a stream, violet to white."""
    height, width = image.shape[1:]
    scale = _PANEL / max(height, width)
    heat = heat_map(attention.boxes, attention.scores[stream], (height, width), scale)[..., None]  # (h, w, 1)
    picture = Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L")
    gray = np.asarray(picture.resize(heat.shape[1::-1], Image.Resampling.BICUBIC))[..., None]  # (h, w, 1)
    places = np.linspace(0, 1, len(_COLORS))
    color = np.stack([np.interp(heat[..., 0], places, column) for column in _COLORS.T], axis=2)
    share = 0.15 + 0.6 * heat
    return Image.fromarray((share * color + (1 - share) * gray).round().astype(np.uint8))


def draw_attention(image: Tensor, attention: Attention, class_names: Sequence[str]) -> Image.Image:
    """One panel for each stream, side by side, with its score map and its cluster centers."""
    panels = [draw_heat(image, attention, stream) for stream in range(len(attention.scores))]
    scale = _PANEL / max(image.shape[1:])
    width, height = panels[0].size
    sheet = Image.new("RGB", (len(panels) * (width + 4) - 4, height + 36), "white")
    on_sheet, left = ImageDraw.Draw(sheet), 2
    for label in attention.labels.tolist():
        on_sheet.rectangle((left, height + 22, left + 9, height + 31), fill=class_color(label))
        font, text = fitting_font(class_names[label], 10)
        on_sheet.text((left + 14, height + 21), text, fill="black", font=font)
        left += 24 + round(on_sheet.textlength(class_names[label]))
    for stream, (panel, name) in enumerate(zip(panels, stream_names(len(panels)), strict=True)):
        draw = ImageDraw.Draw(panel)
        centers = attention.centers[stream]
        for row in (centers >= 0).nonzero()[:, 0].tolist():
            label = int(centers[row])
            box = outermost_pixels((attention.boxes[row] * scale).tolist())
            draw.rectangle(box, outline=class_color(label), width=2)
        sheet.paste(panel, (stream * (width + 4), 18))
        on_sheet.text((stream * (width + 4) + 2, 3), name, fill="black")
    return sheet

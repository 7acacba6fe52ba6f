"""Inputs of the model, Sample -> Batch (training) or Views (testing), and data sets.

Weak supervision is enforced by these types: neither Sample nor Batch has a field for ground-truth boxes, so
training cannot read them. Data sets return them as an Annotation, which only evaluation reads. The boxes of
the images that a person has reviewed, and points and counts, if the config names any, are of types of their
own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from detector.structures.boxes import box_area
from detector.structures.tensor_fields import TensorFields


@dataclass(frozen=True, eq=False)
class ReviewedBoxes(TensorFields):
    """The G objects of one image that a person has drawn or confirmed: the only boxes that training sees."""

    boxes: Tensor  # (G, 4) float32 xyxy in pixels of the image
    labels: Tensor  # (G,) int64, foreground class index in [0, C)
    complete: bool  # these are all objects of the image; else it may show others


@dataclass(frozen=True, eq=False)
class Hints(TensorFields):
    """What a person has said about the objects of one image without boxes: P points and C counts."""

    points: Tensor  # (P, 2) float32 xy in pixels of the image; each is in an object
    labels: Tensor  # (P,) int64, its foreground class index in [0, C)
    counts: Tensor  # (C,) int64, how many objects of a class the image shows at most; 0: unknown

    @property
    def classes(self) -> Tensor:
        """The classes that the image shows, int64; one may occur several times."""
        return torch.cat([self.labels, self.counts.nonzero()[:, 0]])

    def contains_single_point(self, boxes: Tensor) -> Tensor:
        """(R, P) bool: whether a box (R, 4) contains the point, and no other of its class."""
        inside = ((self.points >= boxes[:, None, :2]) & (self.points <= boxes[:, None, 2:])).all(dim=2)
        same = self.labels[:, None] == self.labels  # (P, P)
        return inside & (inside.float() @ same.float() == 1)


@dataclass(frozen=True, eq=False)
class TeacherBoxes(TensorFields):
    """The T boxes that a teacher, such as a zero-shot model, found in one image; best first.

    `len(found)` is T, and a tensor of indices or booleans selects boxes.
    """

    boxes: Tensor  # (T, 4) float32 xyxy in pixels of the image
    scores: Tensor  # (T,) float32 in [0, 1], descending
    labels: Tensor  # (T,) int64, foreground class index in [0, C); -1: the teacher knows no classes

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, rows: Tensor) -> "TeacherBoxes":
        return self.map(lambda field: field[rows])


@dataclass(frozen=True, eq=False)
class Sample(TensorFields):
    """One image with its proposals and image-level labels."""

    image: Tensor  # (3, H, W) uint8 RGB
    proposals: Tensor  # (R, 4) float32 xyxy in pixels of `image`
    labels: Tensor  # (C,) float32, 1 where the image shows the class, else 0
    image_id: str
    flipped: bool = False  # is `image` flipped left to right?
    # Width and height of a pixel of the image as read in pixels of `image`, if RoI pooling is to get
    # inclusive corners; None: it gets half-open ones.
    pixel: tuple[float, float] | None = None
    unknown: Tensor | None = None  # (C,) bool, classes whose label is unknown; None: all are known
    reviewed: ReviewedBoxes | None = None  # None: nobody has reviewed the image
    hints: Hints | None = None  # None: there are none


@dataclass(frozen=True, eq=False)
class TiledSample(TensorFields):
    """A large image of which some tiles are seen: `whole` without its pixels, and a sample for each tile."""

    whole: Sample  # `image` is empty; boxes are in pixels of the image as read, tile by tile
    tiles: tuple[Sample, ...]  # their proposals, joined, are those of `whole`, in pixels of the tile
    weights: Tensor  # (R,) float32, how many proposals of the image each stands for, 1 if all tiles are here


@dataclass(frozen=True, eq=False)
class Views(TensorFields):
    """One image in all test passes: resized, flipped or not."""

    image_id: str
    size: tuple[int, int]  # (height, width) of the original image
    proposals: Tensor  # (R, 4) float32 xyxy in pixels of the original image
    samples: tuple[Sample, ...]  # one per pass; row r of its proposals is proposal r


@dataclass(frozen=True, eq=False)
class Batch(TensorFields):
    """Several samples, padded to one size. Row r of `rois` belongs to image rois[r, 0]; images in order.

    Where large images are cut into tiles, `images` and `sizes` are of the T tiles, rois[r, 0] is a tile, and
    `tiles`, `places` and `weights` are there; all else is of the B images.
    """

    images: Tensor  # (B, 3, H, W) uint8 RGB, padded at the right and the bottom
    rois: Tensor  # (sum R, 5) float32: image index, x1, y1, x2, y2
    labels: Tensor  # (B, C) float32 0/1
    counts: Tensor  # (B,) int64, proposals per image; on the CPU: splitting by it must not wait for a GPU
    image_ids: tuple[str, ...]
    # (B, 2) int64, (height, width) of each image without its padding; default: there is none
    sizes: Tensor = None  # type: ignore[assignment]
    pixels: Tensor | None = None  # (B, 2) float32, `pixel` of the samples
    unknown: Tensor | None = None  # (B, C) bool, classes whose label is unknown; None: all are known
    reviewed: tuple[ReviewedBoxes | None, ...] = ()  # of each image; (): of none
    hints: tuple[Hints | None, ...] = ()  # the same
    tiles: Tensor | None = None  # (B,) int64, tiles of each image; on the CPU, as `counts`
    places: Tensor | None = None  # (sum R, 4) float32, the proposals in pixels of the images as read
    weights: Tensor | None = None  # (sum R,) float32, how many proposals of its image each stands for

    def __post_init__(self) -> None:
        if self.sizes is None:
            sizes = torch.tensor(self.images.shape[2:], device=self.images.device).repeat(len(self.images), 1)
            object.__setattr__(self, "sizes", sizes)

    @property
    def boxes(self) -> Tensor:
        """(sum R, 4) the proposals in the pixels of `reviewed` and `hints`, of one image in one frame."""
        return self.rois[:, 1:] if self.places is None else self.places

    @property
    def owners(self) -> Tensor:
        """(sum R,) int64, the image of each proposal."""
        if self.tiles is None:
            return self.rois[:, 0].long()
        images = torch.arange(len(self.counts)).repeat_interleave(self.counts)
        return images.to(self.rois.device, non_blocking=True)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The arguments of the model: images, RoIs for pooling, proposals per image, sizes; with tiles, also
        tiles per image and weights.
        """
        rois = self.rois
        if self.pixels is not None:  # the last pixel inside instead of the first one outside
            inclusive = rois[:, 3:] - self.pixels[rois[:, 0].long()]  # (sum R, 2)
            rois = torch.cat([rois[:, :3], inclusive], dim=1)
        inputs = self.images, rois, self.counts, self.sizes
        if self.tiles is None or self.weights is None:
            return inputs
        return *inputs, self.tiles, self.weights

    def map(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        """A copy with `function` applied to all tensors but `counts` and `tiles`, which stay on the CPU."""
        return replace(super().map(function), counts=self.counts, tiles=self.tiles)


@dataclass(frozen=True, eq=False)
class Annotation(TensorFields):
    """The ground-truth boxes of one image, which only evaluation reads."""

    image_id: str
    boxes: Tensor  # (G, 4) float32 xyxy
    labels: Tensor  # (G,) int64, foreground class index in [0, C)
    difficult: Tensor  # (G,) bool; AP ignores these objects and the detections that match them
    # (G,) bool: COCO's iscrowd, a region of many objects; default: all False
    crowd: Tensor = None  # type: ignore[assignment]
    # (G,) float64, square pixels of the segmentation masks if known; default: of the boxes
    areas: Tensor = None  # type: ignore[assignment]

    def __post_init__(self):
        if self.crowd is None:
            object.__setattr__(self, "crowd", torch.zeros(len(self.boxes), dtype=torch.bool))
        if self.areas is None:
            object.__setattr__(self, "areas", box_area(self.boxes.double()))


class ImageDataset(Protocol):
    """The interface of a data set, such as `VOCDataset`, for loaders and evaluation."""

    class_names: tuple[str, ...]
    image_ids: tuple[str, ...]

    def image_size(self, index: int) -> tuple[int, int]:
        """(height, width) in pixels."""
        ...

    def read_image(self, index: int) -> Tensor:
        """The image (3, H, W), uint8 RGB."""
        ...

    def labels(self, index: int) -> Tensor:
        """Image-level labels (C,), float32: 1 if the image shows the class, else 0."""
        ...

    def unknown(self, index: int) -> Tensor | None:
        """(C,) bool: classes that the image may show or not; None if all are known."""
        ...

    def annotation(self, index: int) -> Annotation | None:
        """Ground-truth boxes, for evaluation only; None if the image has none."""
        ...

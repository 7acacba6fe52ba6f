"""What flows through training: Sample -> Batch, or Sample -> Views; and what comes out: Scores -> Detections.

Weak supervision is a type here: neither Sample nor Batch has a field for ground-truth boxes, so training
cannot see them. Annotation, which has them, is made by a data set's reader and taken by evaluation alone.
"""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from detector.structures.boxes import box_area


class _Comparable:
    """`==` for dataclasses of tensors: equal types, shapes, data types, devices and values of every field.

    The `==` that dataclasses get otherwise compares tuples of tensors, which raises an error of torch. Like
    lists, such objects have no hash.
    """

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return all(_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return (a.dtype, a.device) == (b.dtype, b.device) and torch.equal(a, b)
    return type(a) is type(b) and a == b


@dataclass(frozen=True, eq=False)
class Sample(_Comparable):
    """One image with its proposals and image-level labels."""

    image: Tensor  # (3, H, W) uint8 RGB
    proposals: Tensor  # (R, 4) float32 xyxy in pixels of `image`
    labels: Tensor  # (C,) float32, 1 where the image shows the class, else 0
    image_id: str
    flipped: bool = False  # is `image` flipped left to right?
    # (2, 3) float32: the network sees image / row 0 - row 1, by channel; None: the image as it is
    normalization: Tensor | None = None
    # Width and height of a pixel of the image as read in pixels of `image`, if RoI pooling is to get
    # inclusive corners; None: it gets half-open ones.
    pixel: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class Views(_Comparable):
    """One image as the test passes see it: resized, flipped or not."""

    image_id: str
    size: tuple[int, int]  # (height, width) of the original image
    proposals: Tensor  # (R, 4) float32 xyxy in pixels of the original image
    samples: tuple[Sample, ...]  # one a pass; row r of its proposals is proposal r


@dataclass(frozen=True, eq=False)
class Batch(_Comparable):
    """Several samples, padded to one size. Row r of `rois` belongs to image rois[r, 0]; images in order."""

    images: Tensor  # (B, 3, H, W) zero-padded at the right and the bottom; float32, or uint8 until `to`
    rois: Tensor  # (sum R, 5) float32: image index, x1, y1, x2, y2
    labels: Tensor  # (B, C) float32 0/1
    counts: Tensor  # (B,) int64, proposals per image; on the CPU: splitting by it must not wait for a GPU
    image_ids: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...] = ()  # (height, width) of each image without its padding
    normalization: Tensor | None = None  # that of the samples, which `to` does: a quarter of the bytes travel

    pixels: Tensor | None = None  # (B, 2) float32, `pixel` of the samples

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """What the model is called with: images, RoIs for pooling, and proposals per image."""
        rois = self.rois
        if self.pixels is not None:  # the last pixel inside instead of the first one outside
            inclusive = rois[:, 3:] - self.pixels[rois[:, 0].long()]  # (sum R, 2)
            rois = torch.cat([rois[:, :3], inclusive], dim=1)
        return self.images, rois, self.counts

    def to(self, device, non_blocking: bool = False) -> "Batch":
        """The batch with its tensors on `device`, except `counts`; its images as the network sees them."""

        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=non_blocking)

        images = move(self.images)
        if self.normalization is not None:
            images = _normalize(images, move(self.normalization), self.sizes)
        pixels = None if self.pixels is None else move(self.pixels)
        tensors = images, move(self.rois), move(self.labels)
        return Batch(*tensors, self.counts, self.image_ids, self.sizes, pixels=pixels)

    def pin_memory(self) -> "Batch":
        """The batch in page-locked memory, as DataLoader asks for it."""

        def pin(tensor: Tensor) -> Tensor:
            return tensor.pin_memory()

        normalization = None if self.normalization is None else pin(self.normalization)
        pixels = None if self.pixels is None else pin(self.pixels)
        tensors = pin(self.images), pin(self.rois), pin(self.labels)
        return Batch(*tensors, self.counts, self.image_ids, self.sizes, normalization, pixels)


def _normalize(images: Tensor, normalization: Tensor, sizes: tuple[tuple[int, int], ...]) -> Tensor:
    """Images (B, 3, H, W) uint8 as the network sees them, float32; the padding, right and below, is 0."""
    scale, shift = normalization[:, None, :, None, None]  # (1, 3, 1, 1) each
    images = images.float().div_(scale).sub_(shift)
    for image, (height, width) in zip(images, sizes, strict=True):
        image[:, height:] = 0
        image[:, :, width:] = 0
    return images


@dataclass(frozen=True, eq=False)
class Scores(_Comparable):
    """What the detector believes of every proposal of one image, averaged over test passes.

    Without a regression branch the boxes of a proposal are the proposal itself, expanded and not copied.
    """

    image_id: str
    boxes: Tensor  # (R, C, 4) float32 xyxy in pixels of the original image: a box for each class
    scores: Tensor  # (R, C) float32 probabilities of the foreground classes


@dataclass(frozen=True, eq=False)
class Detections(_Comparable):
    """The boxes found in one image, best first."""

    image_id: str
    boxes: Tensor  # (D, 4) float32 xyxy in pixels of the original image
    scores: Tensor  # (D,) float32, descending
    labels: Tensor  # (D,) int64, foreground class index in [0, C)
    names: tuple[str, ...] = ()  # D class names, where a predictor made them; else none


@dataclass(frozen=True, eq=False)
class Annotation(_Comparable):
    """The true boxes of one image. Evaluation reads them; training never does."""

    image_id: str
    boxes: Tensor  # (G, 4) float32 xyxy
    labels: Tensor  # (G,) int64, foreground class index in [0, C)
    difficult: Tensor  # (G,) bool: in AP neither to be found nor wrong to find
    # (G,) bool: around many objects, and so around none; default: no box is
    crowd: Tensor = None  # type: ignore[assignment]
    # (G,) float64 square pixels, of the outlines where known; default: of the boxes
    areas: Tensor = None  # type: ignore[assignment]

    def __post_init__(self):
        if self.crowd is None:
            object.__setattr__(self, "crowd", torch.zeros(len(self.boxes), dtype=torch.bool))
        if self.areas is None:
            object.__setattr__(self, "areas", box_area(self.boxes.double()))

"""What flows through training: Sample -> Batch, or Sample -> Views; and what comes out: Scores -> Detections.

Weak supervision is a type here: neither Sample nor Batch has a field for ground-truth boxes, so training
cannot see them. Annotation, which has them, is made by a data set's reader and taken by evaluation alone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from detector.structures.boxes import box_area


@dataclass(frozen=True)
class Sample:
    """One image with its proposals and image-level labels."""

    image: Tensor  # (3, H, W): uint8 RGB as read, float32 once normalised
    proposals: Tensor  # (R, 4) float32 xyxy in pixels of `image`
    labels: Tensor  # (C,) float32, 1 where the image shows the class, else 0
    image_id: str
    mirrored: bool = False  # is `image` flipped left to right?


@dataclass(frozen=True)
class Views:
    """One image as the test passes see it: resized, mirrored or not."""

    image_id: str
    size: tuple[int, int]  # (height, width) of the original image
    proposals: Tensor  # (R, 4) float32 xyxy in pixels of the original image
    samples: tuple[Sample, ...]  # one a pass; row r of its proposals is proposal r


@dataclass(frozen=True)
class Batch:
    """Several samples, padded to one size. Row r of `rois` belongs to image rois[r, 0]; images in order."""

    images: Tensor  # (B, 3, H, W) float32, zero-padded at the right and the bottom
    rois: Tensor  # (sum R, 5) float32: image index, x1, y1, x2, y2
    labels: Tensor  # (B, C) float32 0/1
    counts: Tensor  # (B,) int64, proposals per image; on the CPU: splitting by it must not wait for a GPU
    image_ids: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """What the model is called with."""
        return self.images, self.rois, self.counts

    def to(self, device, non_blocking: bool = False) -> "Batch":
        """The batch with its tensors on `device`, except `counts`."""

        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=non_blocking)

        return Batch(move(self.images), move(self.rois), move(self.labels), self.counts, self.image_ids)

    def pin_memory(self) -> "Batch":
        """The batch in page-locked memory, as DataLoader asks for it."""
        pinned = self.images.pin_memory(), self.rois.pin_memory(), self.labels.pin_memory()
        return Batch(*pinned, self.counts, self.image_ids)


@dataclass(frozen=True)
class Scores:
    """What the detector believes of every proposal of one image, averaged over test passes.

    Without a regression branch the boxes of a proposal are the proposal itself, expanded and not copied.
    """

    image_id: str
    boxes: Tensor  # (R, C, 4) float32 xyxy in pixels of the original image: a box for each class
    scores: Tensor  # (R, C) float32 probabilities of the foreground classes


@dataclass(frozen=True)
class Detections:
    """The boxes found in one image, best first."""

    image_id: str
    boxes: Tensor  # (D, 4) float32 xyxy in pixels of the original image
    scores: Tensor  # (D,) float32, descending
    labels: Tensor  # (D,) int64, foreground class index in [0, C)
    names: tuple[str, ...] = ()  # D class names, where a predictor made them; else none


@dataclass(frozen=True)
class Annotation:
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

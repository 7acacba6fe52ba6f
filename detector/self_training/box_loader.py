"""Batches of images with boxes, for a detector that is trained on (pseudo) boxes.

As in detector/data/loader.py, a batch depends on (seed, position) alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from detector.data.large_images import LargeImage
from detector.data.loader import read_parts
from detector.data.tiles import Tiling, cut_view
from detector.data.worker_loader import WorkerLoader
from detector.self_training.copy_paste import BoxedImage, paste_objects
from detector.self_training.mosaic import mosaic
from detector.self_training.tile_views import clip_to_view, draw_tile
from detector.structures import ImageDataset, flip_boxes
from detector.structures.tensor_fields import TensorFields

_PASTED, _MOSAIC, _TILE = 2, 3, 4  # which random numbers of a draw decide these; the results depend on it


@dataclass(frozen=True, eq=False)
class BoxBatch(TensorFields):
    """Images of any sizes with their boxes, as torchvision's detectors take them."""

    images: list[Tensor]  # (3, H, W) float32 in [0, 1], each
    # Of each image: boxes (G, 4) float32 xyxy and labels (G,) int64, 0 is background; or its index () and, if
    # it is part of a large picture, the tile (4,) int64 in pixels of that. Also, if the data set knows:
    # reviewed () int64, how many boxes are, which come first, complete () bool, and weights (G,) float32 of
    # the boxes.
    targets: list[dict[str, Tensor]]
    image_ids: tuple[str, ...]

    @property
    def inputs(self) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
        """The arguments of the detector."""
        return self.images, self.targets


class BoxDataset(Dataset):
    """`dataset[index, draw]` is image `index`, its target and its id; `draw` seeds what is random.

    Args:
        flip: half of the images are flipped.
        reviewed: of each image, how many boxes a person has reviewed, which come first, and whether these are
            all its objects; (): unknown.
        copy_paste: probability with which objects of other images are pasted into an image. A pasted box is
            reviewed if it was in its own image.
        mosaic: probability with which three other images are shown beside an image, each a quarter of the
            size. Objects are pasted afterwards.
        pool: indices of the images that others are taken from; None: all.
        weights: of each image, those (G,) of its boxes; (): all 1.
        tiling: how large images are cut; of one, a draw shows a tile or all of it, reduced. None: they are
            not cut.
    """

    def __init__(
        self,
        source: ImageDataset,
        *,
        flip: bool,
        reviewed: Sequence[tuple[int, bool]] = (),
        copy_paste: float = 0.0,
        mosaic: float = 0.0,
        pool: np.ndarray | None = None,
        weights: Sequence[Tensor] = (),
        tiling: Tiling | None = None,
    ):
        self.source, self.flip, self.reviewed, self.tiling = source, flip, reviewed, tiling
        self.copy_paste, self.mosaic, self.weights = copy_paste, mosaic, weights
        self.pool = np.arange(len(source.image_ids)) if pool is None else pool

    def __len__(self) -> int:
        return len(self.source.image_ids)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, dict[str, Tensor], str]:
        index, draw = key
        found = self._read(index, np.random.default_rng([draw, _TILE]))
        others = self.pool[self.pool != index]
        for probability, compose, stream in (
            (self.mosaic, mosaic, _MOSAIC),
            (self.copy_paste, paste_objects, _PASTED),
        ):
            rng = np.random.default_rng([draw, stream])
            if rng.random() < probability and len(others):
                found = compose(found, partial(self._other, others, rng), rng)
        image, boxes = found.image.float() / 255, found.boxes  # (3, H, W)
        if self.flip and torch.rand((), generator=torch.Generator().manual_seed(draw)) < 0.5:
            image, boxes = image.flip(2), flip_boxes(boxes, image.shape[2])
        target = {"boxes": boxes, "labels": found.labels}
        if self.reviewed:
            target |= {"reviewed": found.reviewed.sum(), "complete": torch.tensor(found.complete)}
        if self.weights:
            target |= {"weights": found.weights}
        return image, target, self.source.image_ids[index]

    def _other(self, indices: np.ndarray, rng: np.random.Generator) -> BoxedImage:
        return self._read(int(rng.choice(indices)), rng)

    def _read(self, index: int, rng: np.random.Generator) -> BoxedImage:
        """The image, or a random view of a large one, with its boxes, whose labels count from 1."""
        annotation = self.source.annotation(index)
        if annotation is None:
            raise ValueError(f"image {self.source.image_ids[index]} has no boxes to train on")
        count, complete = self.reviewed[index] if self.reviewed else (0, False)
        reviewed, labels = torch.arange(len(annotation.labels)) < count, annotation.labels + 1
        weights = self.weights[index] if self.weights else torch.ones(len(labels))
        boxes = annotation.boxes
        image = read_parts(self.source, index) if self.tiling else self.source.read_image(index)
        if self.tiling is None or not self.tiling.cuts(*image.shape[1:]):
            assert isinstance(image, Tensor)
            return BoxedImage(image, boxes, labels, reviewed, weights, complete)
        tiles = self.tiling.boxes(*image.shape[1:])
        row = draw_tile(tiles, boxes, rng)
        pixels = cut_view(image, tiles, row, self.tiling)
        return clip_to_view(BoxedImage(pixels, boxes, labels, reviewed, weights, complete), tiles, row)


class IndexedImages(Dataset):
    """`dataset[index, draw]` is image `index` without its boxes: the target has its `index` ().

    Args:
        reviewed, tiling: as of :class:`BoxDataset`.
    """

    def __init__(
        self,
        source: ImageDataset,
        *,
        reviewed: Sequence[tuple[int, bool]] = (),
        tiling: Tiling | None = None,
    ):
        self.source, self.reviewed, self.tiling = source, reviewed, tiling

    def __len__(self) -> int:
        return len(self.source.image_ids)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, dict[str, Tensor], str]:
        index, draw = key
        image = read_parts(self.source, index) if self.tiling else self.source.read_image(index)
        target = {"index": torch.tensor(index)}
        if self.tiling is not None and self.tiling.cuts(*image.shape[1:]):
            tiles = self.tiling.boxes(*image.shape[1:])
            row = draw_tile(tiles, torch.zeros(0, 4), np.random.default_rng([draw, _TILE]))
            image, target["tile"] = cut_view(image, tiles, row, self.tiling), tiles[row]
        if self.reviewed:
            count, complete = self.reviewed[index]
            target |= {"reviewed": torch.tensor(count), "complete": torch.tensor(complete)}
        assert isinstance(image, Tensor)
        return image.float() / 255, target, self.source.image_ids[index]


def collate_boxes(samples: Sequence[tuple[Tensor, dict[str, Tensor], str]]) -> BoxBatch:
    images, targets, image_ids = zip(*samples, strict=True)
    return BoxBatch(list(images), list(targets), image_ids)


class _Images(Dataset):
    def __init__(self, source: ImageDataset, in_parts: bool):
        self.source, self.in_parts = source, in_parts

    def __getitem__(self, index: int) -> Tensor | LargeImage:
        return read_parts(self.source, index) if self.in_parts else self.source.read_image(index)


def image_loader(
    source: ImageDataset,
    indices: Sequence[int],
    *,
    images_per_batch: int,
    workers: int = 0,
    in_parts: bool = False,
) -> DataLoader:
    """The images (3, H, W) of `indices` of a data set once, uint8, in order, in lists.

    Args:
        in_parts: images too large to be read at once are :class:`LargeImage`; this process reads all.
    """
    return WorkerLoader(
        Subset(_Images(source, in_parts), indices),
        workers=0 if in_parts else workers,
        batch_size=images_per_batch,
        collate_fn=list,
        pin_memory=torch.cuda.is_available(),
    )

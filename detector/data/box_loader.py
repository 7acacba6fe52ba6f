"""Batches of images with boxes to learn from, for a detector that is trained on (pseudo) boxes.

As in detector/data/loader.py a batch is a function of (seed, position) alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from detector.data.batch_order import SeededBatches
from detector.data.loader import WorkerLoader
from detector.structures import ImageDataset, flip_boxes


@dataclass(frozen=True)
class BoxBatch:
    """Images of any sizes with their boxes, in the form that torchvision's detectors take."""

    images: list[Tensor]  # (3, H, W) float32 in [0, 1], each
    targets: list[dict[str, Tensor]]  # boxes (G, 4) float32 xyxy, labels (G,) int64; 0 is background
    image_ids: tuple[str, ...]

    @property
    def inputs(self) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
        """What the detector is called with."""
        return self.images, self.targets

    def to(self, device, non_blocking: bool = False) -> "BoxBatch":
        images = [image.to(device, non_blocking=non_blocking) for image in self.images]
        targets = [
            {name: tensor.to(device, non_blocking=non_blocking) for name, tensor in target.items()}
            for target in self.targets
        ]
        return BoxBatch(images, targets, self.image_ids)

    def pin_memory(self) -> "BoxBatch":
        """The batch in page-locked memory, as DataLoader asks for it."""
        images = [image.pin_memory() for image in self.images]
        targets = [{name: tensor.pin_memory() for name, tensor in t.items()} for t in self.targets]
        return BoxBatch(images, targets, self.image_ids)


class BoxDataset(Dataset):
    """`dataset[index, draw]` is (image, target, image id) of image `index`, flipped if `draw` says so."""

    def __init__(self, source: ImageDataset, *, flip: bool):
        self.source, self.flip = source, flip

    def __len__(self) -> int:
        return len(self.source.image_ids)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, dict[str, Tensor], str]:
        index, draw = key
        image = self.source.read_image(index).float() / 255  # (3, H, W)
        annotation = self.source.annotation(index)
        if annotation is None:
            raise ValueError(f"image {self.source.image_ids[index]} has no boxes to train on")
        boxes = annotation.boxes
        if self.flip and torch.rand((), generator=torch.Generator().manual_seed(draw)) < 0.5:
            image, boxes = image.flip(2), flip_boxes(boxes, image.shape[2])
        return image, {"boxes": boxes, "labels": annotation.labels + 1}, annotation.image_id


def collate_boxes(samples: Sequence[tuple[Tensor, dict[str, Tensor], str]]) -> BoxBatch:
    images, targets, image_ids = zip(*samples, strict=True)
    return BoxBatch(list(images), list(targets), image_ids)


def box_loader(
    dataset: BoxDataset, *, images_per_batch: int, seed: int, start: int = 0, workers: int = 0
) -> DataLoader:
    """Endless batches (:class:`BoxBatch`), the same for any number of `workers`.

    Args:
        start: number of batches already consumed; the first one given is the one after them.
        workers: processes that read images; 0: this process reads.
    """
    return WorkerLoader(
        dataset,
        workers=workers,
        batch_sampler=SeededBatches(len(dataset), images_per_batch, seed, start),
        collate_fn=collate_boxes,
        pin_memory=torch.cuda.is_available(),
    )


class _Images(Dataset):
    def __init__(self, source: ImageDataset):
        self.source = source

    def __len__(self) -> int:
        return len(self.source.image_ids)

    def __getitem__(self, index: int) -> Tensor:
        return self.source.read_image(index)


def image_loader(source: ImageDataset, *, images_per_batch: int, workers: int = 0) -> DataLoader:
    """Lists of the images (3, H, W) of a data set, uint8, in its order, each once."""
    return WorkerLoader(
        _Images(source),
        workers=workers,
        batch_size=images_per_batch,
        collate_fn=list,
        pin_memory=torch.cuda.is_available(),
    )

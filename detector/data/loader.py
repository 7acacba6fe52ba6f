"""Batches for training, and images in all test passes.

A training batch depends on (seed, position) alone, not on the number of worker processes, the batches before
it or the global random state. A resumed run therefore sees the same batches as an uninterrupted one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from detector.data.datasets.annotated import AnnotatedImages
from detector.data.large_images import LargeImage, exceeds_limit, open_image_file, reduced_to_show
from detector.data.proposals import clean_proposals, clean_rows
from detector.data.reviewed import shown_classes
from detector.data.tiles import Tiling, draw_tiles, tile_pixels, tiles_of, to_view
from detector.data.transforms import TestTransform, TrainTransform, resize, resized_size
from detector.structures import (
    Batch,
    Hints,
    ImageDataset,
    ReviewedBoxes,
    Sample,
    TiledSample,
    Views,
    box_iou,
    boxes_to_rois,
)

_LEAST_SIDE = 16  # pixels: VGG16 halves an image up to four times and fails if nothing is left


class WeakDataset(Dataset):
    """Training samples: `dataset[index, draw]` is image `index` transformed by the random numbers of `draw`.

    Proposals with a side of at most `min_size` pixels of the image as read are dropped, and the first
    `max_count` of the others are kept. After the transform, duplicates on the feature grid are dropped.

    Args:
        source: a data set, such as :class:`VOCDataset`.
        proposals: maps image ids to boxes (R, 4) in pixels of the image as read.
        reviewed: maps the ids of reviewed images to their boxes in the same pixels. They are proposals, too,
            and their classes labels of the image; a complete image has no others.
        hints: maps image ids to points and counts, whose classes are labels of the image, too.
        transform: applied to each sample.
        stride: of the feature grid, in pixels of the transformed image.
        tiling: how large images are cut; all samples are then tiled ones. None: they are not.
    """

    def __init__(
        self,
        source: ImageDataset,
        proposals: Mapping[str, Tensor],
        transform: TrainTransform,
        *,
        min_size: float,
        stride: int,
        max_count: int,
        reviewed: Mapping[str, ReviewedBoxes] = MappingProxyType({}),
        hints: Mapping[str, Hints] = MappingProxyType({}),
        tiling: Tiling | None = None,
    ):
        self.tiling = tiling
        self.source, self.proposals, self.transform = source, proposals, transform
        self.reviewed, self.hints = reviewed, hints
        self.min_size, self.stride, self.max_count = min_size, stride, max_count

    def __len__(self) -> int:
        return len(self.source.image_ids)

    def __getitem__(self, key: tuple[int, int]) -> Sample | TiledSample:
        index, draw = key
        image = read_parts(self.source, index) if self.tiling else self.source.read_image(index)
        sample = _sample(
            self.source, self.proposals, index, image, self.min_size, self.max_count, self.tiling
        )
        if (given := self.hints.get(sample.image_id)) is not None:
            sample = _with_hints(sample, given)
        if (known := self.reviewed.get(sample.image_id)) is not None:
            sample = _with_reviewed(sample, known)  # last, because a complete image shows nothing else
        if self.tiling is not None:
            return self._tiled(sample, image, draw, self.tiling)
        sample = self.transform(sample, torch.Generator().manual_seed(draw))
        boxes = clean_proposals(sample.proposals, min_size=0, stride=self.stride, max_count=self.max_count)
        return replace(sample, proposals=boxes)

    def _tiled(self, sample: Sample, image: Tensor | LargeImage, draw: int, tiling: Tiling) -> TiledSample:
        """Some tiles of an image and its sample, all resized by one factor and flipped or not."""
        tiles = tiling.boxes(*image.shape[1:])
        rows, weights = draw_tiles(len(tiles), tiling.per_step, torch.Generator().manual_seed(draw))
        of_tile, seen, places, each_weight = tiles_of(sample.proposals, tiles), [], [], []
        for row, weight in zip(rows.tolist(), weights.tolist(), strict=True):
            own = sample.proposals[of_tile == row]
            tile = cut_tile(sample, image, tiles[row], own, tiling)
            transform = (
                self.transform
                if len(tiles) == 1
                else self.transform.of_tile(relative_side(tiles, row, tiling))
            )
            tile = transform(tile, torch.Generator().manual_seed(draw))
            kept = clean_rows(tile.proposals, min_size=0, stride=self.stride, max_count=self.max_count)
            seen.append(replace(tile, proposals=tile.proposals[kept], reviewed=None, hints=None))
            places.append(own[kept])
            each_weight.append(torch.full((len(kept),), weight))
        boxes = torch.cat(places)
        reviewed = sample.reviewed
        if reviewed is not None:  # those that are in no drawn tile have no proposal to label
            here = (box_iou(reviewed.boxes, boxes) > 0).any(dim=1)
            reviewed = replace(reviewed, boxes=reviewed.boxes[here], labels=reviewed.labels[here])
        nothing = torch.zeros(3, 0, 0, dtype=torch.uint8)
        whole = replace(sample, image=nothing, proposals=boxes, reviewed=reviewed)
        return TiledSample(whole, tuple(seen), torch.cat(each_weight))

    def shape(self, index: int, draw: int) -> tuple[int, int]:
        """(height, width) of the image of `dataset[index, draw]`, without reading it."""
        transform = self.transform
        size = transform.draw_size(torch.Generator().manual_seed(draw))
        if self.tiling is not None and self.tiling.cuts(*self.source.image_size(index)):
            return size, size
        return resized_size(*self.source.image_size(index), size, transform.side, transform.max_size)


class TestDataset(Dataset):
    """Test passes: `dataset[i]` is image i by each transform.

    Row r is the same proposal in every pass, so that scores can be averaged over the passes. Duplicates on
    the feature grid, which differs between passes, are kept.
    """

    __test__ = False  # pytest: not a test case

    def __init__(
        self,
        source: ImageDataset,
        proposals: Mapping[str, Tensor],
        transforms: Sequence[TestTransform],
        *,
        min_size: float,
        max_count: int,
        tiling: Tiling | None = None,
    ):
        self.tiling = tiling
        self.source, self.proposals, self.transforms = source, proposals, tuple(transforms)
        self.min_size, self.max_count = min_size, max_count

    def __len__(self) -> int:
        return len(self.source.image_ids)

    def __getitem__(self, index: int) -> Views | Iterator[Views]:
        """The test passes of an image; if it is cut, those of each tile, one after the other."""
        image = read_parts(self.source, index) if self.tiling else self.source.read_image(index)
        sample = _sample(
            self.source, self.proposals, index, image, self.min_size, self.max_count, self.tiling
        )
        if self.tiling is not None and self.tiling.cuts(*image.shape[1:]):
            return tiled_views(sample, image, self.transforms, self.tiling, self.min_size, self.max_count)
        return make_views(sample, self.transforms)


def make_views(sample: Sample, transforms: Sequence[TestTransform]) -> Views:
    """All test passes of an image as read; passes of one size share the resized image."""
    height, width = sample.image.shape[1:]
    samples: list[Sample] = []
    for size, of_size in groupby(transforms, key=lambda transform: transform.size_options):
        resized = resize(sample, *size)
        samples += [transform.finish(resized) for transform in of_size]
    return Views(sample.image_id, (height, width), sample.proposals, tuple(samples))


def read_parts(source: ImageDataset, index: int) -> Tensor | LargeImage:
    """An image of a data set, in parts if it is so large that Pillow would refuse it."""
    if isinstance(source, AnnotatedImages) and is_large(source, index):
        return open_image_file(source.image_path(index), apply_orientation=source.apply_orientation)
    return source.read_image(index)


def read_shown(source: AnnotatedImages, index: int) -> Tensor:
    """An image of a data set to look at; a large one is reduced, to less than `source.image_size`."""
    return reduced_to_show(read_parts(source, index))


def is_large(source: AnnotatedImages, index: int) -> bool:
    """Whether an image has more pixels than are read at once."""
    return exceeds_limit(*source.image_size(index))


def cut_tile(
    sample: Sample, image: Tensor | LargeImage, tile: Tensor, proposals: Tensor, tiling: Tiling
) -> Sample:
    """The sample of a tile (4,) xyxy of an image, with those proposals (R, 4) that belong to it."""
    pixels = tile_pixels(image, tile, tiling.size)
    return replace(sample, image=pixels, proposals=to_view(proposals, tile, pixels.shape[1:]))


def relative_side(tiles: Tensor, row: int, tiling: Tiling) -> float:
    """The longer side of a view relative to that of a full tile, to which the whole picture is reduced."""
    if row == len(tiles) - 1:
        return 1.0
    x1, y1, x2, y2 = tiles[row].tolist()
    return max(x2 - x1, y2 - y1) / tiling.size


def tiled_views(
    sample: Sample,
    image: Tensor | LargeImage,
    transforms: Sequence[TestTransform],
    tiling: Tiling,
    min_size: float,
    max_count: int,
) -> Iterator[Views]:
    """The tiles of an image as read, those that have proposals, each with all test passes; at least one.

    They are made on demand, so that only one of them is in memory. Of the proposals of a
    tile, as of those of an image without tiles, the first `max_count` are kept.

    Args:
        sample: of the image; its own pixels are not used.
    """
    height, width = image.shape[1:]
    tiles = tiling.boxes(height, width)
    of_tile = tiles_of(sample.proposals, tiles)
    for row in of_tile.unique().tolist() or [0]:
        own = sample.proposals[of_tile == row]
        own = clean_proposals(own, min_size=min_size, stride=1, max_count=max_count)
        fitted = (
            transforms
            if len(tiles) == 1
            else [t.of_tile(relative_side(tiles, row, tiling)) for t in transforms]
        )
        views = make_views(cut_tile(sample, image, tiles[row], own, tiling), fitted)
        yield replace(views, size=(height, width), proposals=own)


def collate(samples: Sequence[Sample] | Sequence[TiledSample], multiple: int = 1) -> Batch:
    """Combine samples into a batch; images are padded at the right and the bottom.

    Args:
        multiple: the sides of the padded images are multiples of it, in pixels.
    """
    tiled = [sample for sample in samples if isinstance(sample, TiledSample)]
    if tiled:
        wholes = [sample.whole for sample in tiled]
        labels = _collate_labels(wholes)
        return replace(
            collate([tile for sample in tiled for tile in sample.tiles], multiple),
            **labels,
            tiles=torch.tensor([len(sample.tiles) for sample in tiled]),  # (B,)
            places=torch.cat([whole.proposals for whole in wholes]),  # (sum R, 4)
            weights=torch.cat([sample.weights for sample in tiled]),  # (sum R,)
        )
    plain = [sample for sample in samples if isinstance(sample, Sample)]
    sizes = tuple((sample.image.shape[1], sample.image.shape[2]) for sample in plain)
    height, width = (
        -(-max(_LEAST_SIDE, *sides) // multiple) * multiple for sides in zip(*sizes, strict=True)
    )
    images = plain[0].image.new_zeros(len(plain), 3, height, width)
    for image, sample, (of_height, of_width) in zip(images, plain, sizes, strict=True):
        image[:, :of_height, :of_width] = sample.image
    pixels = [sample.pixel for sample in plain if sample.pixel is not None]
    return Batch(
        images=images,
        rois=boxes_to_rois([sample.proposals for sample in plain]),  # (sum R, 5)
        sizes=torch.tensor(sizes),  # (B, 2)
        pixels=torch.tensor(pixels) if pixels else None,  # (B, 2)
        **_collate_labels(plain),
    )


def _collate_labels(samples: Sequence[Sample]) -> dict[str, Any]:
    """The fields of a batch that belong to whole images."""
    unknown = [sample.unknown for sample in samples if sample.unknown is not None]
    return {
        "labels": torch.stack([sample.labels for sample in samples]),  # (B, C)
        "counts": torch.tensor([len(sample.proposals) for sample in samples]),  # (B,)
        "image_ids": tuple(sample.image_id for sample in samples),
        "unknown": torch.stack(unknown) if unknown else None,  # (B, C)
        "reviewed": tuple(s.reviewed for s in samples) if any(s.reviewed for s in samples) else (),
        "hints": tuple(s.hints for s in samples) if any(s.hints for s in samples) else (),
    }


def _sample(
    source: ImageDataset,
    proposals: Mapping[str, Tensor],
    index: int,
    image: Tensor | LargeImage,
    min_size: float,
    max_count: int,
    tiling: Tiling | None = None,
) -> Sample:
    image_id = source.image_ids[index]
    boxes = proposals[image_id]
    # With tiles, `max_count` applies to each tile, later.
    most = max_count if tiling is None else len(boxes)
    boxes = clean_proposals(boxes, min_size=min_size, stride=1, max_count=most)
    labels, unknown = source.labels(index), source.unknown(index)
    pixels = image if isinstance(image, Tensor) else torch.zeros(3, 0, 0, dtype=torch.uint8)
    return Sample(pixels, boxes, labels, image_id, unknown=unknown)


def _with_hints(sample: Sample, hints: Hints) -> Sample:
    unknown = None if sample.unknown is None else sample.unknown.index_fill(0, hints.classes, False)
    labels = sample.labels.index_fill(0, hints.classes, 1)
    return replace(sample, labels=labels, unknown=unknown, hints=hints)


def _with_reviewed(sample: Sample, reviewed: ReviewedBoxes) -> Sample:
    labels, unknown = shown_classes(sample.labels, reviewed), sample.unknown
    if unknown is not None:
        unknown = unknown & ~labels.bool() & (not reviewed.complete)
    proposals = torch.cat([reviewed.boxes, sample.proposals])
    return replace(sample, labels=labels, unknown=unknown, proposals=proposals, reviewed=reviewed)

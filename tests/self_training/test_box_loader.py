"""Batches of images with boxes."""

from itertools import islice

import pytest
import torch

from detector.data.tiles import Tiling
from detector.data.worker_loader import seeded_loader
from detector.self_training.box_loader import BoxDataset, IndexedImages, collate_boxes
from detector.structures import Annotation


class Source:
    """Six images of different sizes; pixel values and boxes say which image it is."""

    image_ids = tuple("abcdef")

    def read_image(self, index):
        image = torch.zeros(3, 10 + index, 20, dtype=torch.uint8)
        image[:, :, :4] = 255
        return image

    def annotation(self, index):
        boxes = torch.tensor([[0.0, 0, 4, 10 + index]] if index else []).reshape(-1, 4)
        labels = torch.full((len(boxes),), index)
        return Annotation(self.image_ids[index], boxes, labels, torch.zeros(len(boxes), dtype=torch.bool))


def batches(count, copy_paste=0.0, mosaic=0.0, **options):
    dataset = BoxDataset(Source(), flip=True, copy_paste=copy_paste, mosaic=mosaic)
    loader = seeded_loader(dataset, collate_boxes, images_per_batch=2, **options)
    return list(islice(loader, count))


def key(batch):
    boxes = [(target["boxes"].tolist(), target["labels"].tolist()) for target in batch.targets]
    return batch.image_ids, boxes, [image.sum(dim=(0, 1)).tolist() for image in batch.images]


@pytest.mark.parametrize("composed", [{}, {"copy_paste": 0.5}, {"mosaic": 0.5}])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_depends_on_seed_and_position_alone(workers, composed):
    whole = [key(batch) for batch in batches(6, seed=3, **composed)]
    assert [key(batch) for batch in batches(4, seed=3, start=2, workers=workers, **composed)] == whole[2:]
    assert [key(batch) for batch in batches(6, seed=4, **composed)] != whole
    assert sorted(image_id for ids, _, _ in whole[:3] for image_id in ids) == list("abcdef")


def test_boxes_move_with_the_image_and_labels_count_from_one():
    flipped = set()
    for batch in batches(30, seed=0):
        images, targets = batch.inputs
        for image_id, image, target in zip(batch.image_ids, images, targets, strict=True):
            index = Source.image_ids.index(image_id)
            assert image.shape == (3, 10 + index, 20)
            assert image.dtype == torch.float32
            assert target["boxes"].shape == (int(index > 0), 4)
            for (x1, y1, x2, y2), label in zip(
                target["boxes"].int().tolist(), target["labels"].tolist(), strict=True
            ):
                assert label == index + 1
                assert (image[:, y1:y2, x1:x2] == 1).all()
                assert image.sum() == 3 * (x2 - x1) * (y2 - y1)
                flipped.add(x1 > 0)
    assert flipped == {False, True}


def test_targets_say_how_many_boxes_are_reviewed():
    counts = [(int(index in (2, 5)), index == 2) for index in range(6)]
    for dataset in (
        BoxDataset(Source(), flip=False, reviewed=counts),
        IndexedImages(Source(), reviewed=counts),
    ):
        targets = [dataset[index, 0][1] for index in range(6)]
        assert [(int(each["reviewed"]), bool(each["complete"])) for each in targets] == counts
    assert set(IndexedImages(Source())[0, 0][1]) == {"index"}
    assert set(BoxDataset(Source(), flip=False)[0, 0][1]) == {"boxes", "labels"}


def test_copy_paste_takes_objects_of_the_pool_and_counts_reviewed_boxes():
    counts = [(index // 4, index == 4) for index in range(6)]  # the boxes of e and f are reviewed
    dataset = BoxDataset(
        Source(), flip=False, reviewed=counts, copy_paste=1.0, pool=torch.tensor([2, 4, 5]).numpy()
    )
    seen, pasted = set(), set()
    for draw in range(60):
        _, target, _ = dataset[4, draw]
        labels, reviewed = target["labels"].tolist(), int(target["reviewed"])
        assert target["complete"]
        assert set(labels[:reviewed]) <= {5, 6}  # reviewed boxes come first, also pasted ones
        assert set(labels[reviewed:]) <= {3}
        seen.add(reviewed)
        pasted |= set(labels) - {5}
    assert pasted == {3, 6}  # of the pool alone, and an image gets nothing of itself
    assert seen >= {0, 1, 2}


def test_a_mosaic_shows_images_of_the_pool_and_is_complete_if_all_are():
    counts = [(1, index > 2) for index in range(6)]
    dataset = BoxDataset(
        Source(), flip=False, reviewed=counts, mosaic=1.0, pool=torch.tensor([2, 4, 5]).numpy()
    )
    seen = set()
    for draw in range(30):
        image, target, _ = dataset[4, draw]
        assert image.shape == (3, 14, 20)
        labels = target["labels"].tolist()
        assert labels.count(5) == 1  # nothing of itself but itself
        assert set(labels) <= {3, 5, 6}
        assert len(labels) == int(target["reviewed"]) == 4
        assert bool(target["complete"]) == (3 not in labels)
        seen |= set(labels)
    assert seen == {3, 5, 6}


def test_without_other_images_an_image_is_as_it_is():
    alone = torch.tensor([4]).numpy()
    for options in ({"copy_paste": 1.0, "pool": alone}, {"mosaic": 1.0, "pool": alone}, {}):
        image, target, _ = BoxDataset(Source(), flip=False, **options)[4, 0]
        assert image.equal(Source().read_image(4) / 255)
        assert target["boxes"].equal(Source().annotation(4).boxes)


# ---- Tiles


class LargePicture:
    """A picture of 100 x 200 pixels with a bright object of 10 x 12 and another of 90 x 50."""

    image_ids = ("a", "small")
    boxes = torch.tensor([[150.0, 60, 160, 72], [5, 5, 95, 55]])

    def read_image(self, index):
        image = torch.zeros(3, 100, 200, dtype=torch.uint8)
        for x1, y1, x2, y2 in self.boxes.int().tolist():
            image[:, y1:y2, x1:x2] = 255
        return image if index == 0 else image[:, :40, :40]

    def annotation(self, index):
        boxes = self.boxes if index == 0 else self.boxes[:0]
        labels = torch.arange(len(boxes))
        return Annotation(self.image_ids[index], boxes, labels, torch.zeros(len(boxes), dtype=torch.bool))


def test_a_draw_of_a_large_picture_is_a_tile_with_its_boxes_or_all_of_it_reduced():
    dataset = BoxDataset(LargePicture(), flip=False, tiling=Tiling(40, 0.25), reviewed=((1, False),) * 2)
    seen = {"whole": 0, "object": 0, "none": 0}
    for draw in range(60):
        image, target, _ = dataset[0, draw]
        boxes, labels = target["boxes"], target["labels"].tolist()
        assert target["reviewed"] == labels.count(1)  # the first box, where it is visible
        if image.shape[1:] == (40, 80):  # the shorter side is that of a tile, the longer at most twice that
            seen["whole"] += 1
            assert labels == [2]  # the other would have 4 pixels
            torch.testing.assert_close(boxes, LargePicture.boxes[1:] * 0.4)
            continue
        assert image.shape[1:] == (40, 40)
        seen["object" if labels else "none"] += 1
        for x1, y1, x2, y2 in boxes.int().tolist():
            assert (image[:, y1:y2, x1:x2] == 1).all()
        assert image.sum() <= 3 * 40 * 40
    assert min(seen.values()) > 5
    again = dataset[0, 7]
    assert again[0].equal(dataset[0, 7][0])
    assert dataset[1, 3][0].shape == (3, 40, 40)  # no larger than a tile


def test_without_boxes_a_draw_tells_its_tile():
    dataset = IndexedImages(LargePicture(), tiling=Tiling(40, 0.25))
    shapes = set()
    for draw in range(20):
        image, target, _ = dataset[0, draw]
        x1, y1, x2, y2 = target["tile"].tolist()
        shapes.add(tuple(image.shape[1:]))
        if (x2 - x1, y2 - y1) == (40, 40):
            assert image.equal(LargePicture().read_image(0)[:, y1:y2, x1:x2] / 255)
        else:
            assert (x1, y1, x2, y2) == (0, 0, 200, 100)
    assert shapes == {(40, 40), (40, 80)}
    assert "tile" not in dataset[1, 0][1]

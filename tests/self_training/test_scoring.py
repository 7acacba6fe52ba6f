"""Scores of pictures that are cut into tiles."""

import pytest
import torch

from detector.data.tiles import Tiling
from detector.engine.precision import Precision
from detector.modeling.postprocess import postprocess
from detector.self_training.faster_rcnn import FasterRCNN
from detector.self_training.scoring import score_images, score_picture
from detector.structures import Scores

TILING = Tiling(100, 0.25, per_step=3)
CPU = torch.device("cpu")
OPTIONS = {"device": CPU, "precision": Precision("float32", CPU)}


class Bright(torch.nn.Module):
    """Stands for a network: an object of class 1 is around all bright pixels of an image, whatever its size.

    There is a guess of class 2 of a low score in the corner of every image.
    """

    class roi_heads:
        score_thresh, nms_thresh, detections_per_img = 0.001, 0.5, 5

        class box_predictor:
            cls_score = torch.nn.Linear(1, 4)

    def __init__(self):
        super().__init__()
        self.sizes, self.together = [], []

    def scores(self, images):
        self.together.append(len(images))
        for image in images:
            self.sizes.append(tuple(image.shape[1:]))
            rows, columns = (image.mean(dim=0) > 0.5).nonzero().unbind(dim=1)
            box = (
                [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1] if len(rows) else [0, 0, 1, 1]
            )
            boxes = torch.tensor([box, [0, 0, 9, 9]]).float()[:, None].expand(-1, 3, 4)
            yield boxes, torch.tensor([[0.0, 0.9 * bool(len(rows)), 0], [0, 0, 0.0005]])


def picture(*boxes):
    image = torch.zeros(3, 200, 300, dtype=torch.uint8)
    for x1, y1, x2, y2 in boxes:
        image[:, y1:y2, x1:x2] = 255
    return image


@pytest.mark.parametrize(
    "box",
    [[10, 20, 30, 40], [80, 90, 110, 120], [60, 10, 180, 40], [20, 20, 280, 180]],
    ids=["in a tile", "where four tiles meet", "longer than a tile", "larger than a tile"],
)
def test_an_object_is_found_once_wherever_it_is_and_whatever_its_size(box):
    model = Bright()
    scores = score_picture(model, picture(box), "a", TILING, **OPTIONS)
    found = postprocess(scores, score_threshold=0.001)
    assert found.labels.tolist() == [1]
    torch.testing.assert_close(found.boxes, torch.tensor([box]).float(), atol=3.0, rtol=0)
    assert found.scores.tolist() == pytest.approx([0.9])
    assert scores.tiles == len(TILING.boxes(200, 300))
    assert max(model.together) == 3  # no more tiles at a time than `per_step`
    assert model.sizes[-1] == (100, 150)
    assert {*model.sizes[:-1]} == {(100, 100)}


def test_every_class_has_a_box_however_low_its_score():
    scores = score_picture(Bright(), picture(), "a", TILING, **OPTIONS)
    assert scores.scores.max(dim=0).values.tolist() == pytest.approx([0, 0, 0.0005])
    assert isinstance(scores, Scores)
    assert scores.boxes.shape == (3, 3, 4)


def test_small_pictures_are_scored_as_without_tiles():
    class Source:
        image_ids = ("small", "large")

        def read_image(self, index):
            return picture([10, 20, 30, 40])[:, :90, :90] if index == 0 else picture([10, 20, 30, 40])

    model: FasterRCNN = Bright()
    small, large = score_images(model, Source(), [0, 1], images_per_batch=2, tiling=TILING, **OPTIONS)
    (alone,) = score_images(model, Source(), [0], images_per_batch=2, **OPTIONS)
    assert small.boxes.equal(alone.boxes)
    assert small.scores.equal(alone.scores)
    assert (small.tiles, alone.tiles) == (1, 1)
    assert large.image_id == "large"
    assert postprocess(large, score_threshold=0.001).boxes.tolist() == [[10, 20, 30, 40]]


def test_images_of_a_batch_are_not_padded_to_the_largest():
    """Group norm takes its mean over padding, too, and `detector predict` takes each image alone."""

    class Source:
        image_ids = ("a", "b", "c", "d")

        def read_image(self, index):
            return picture([10, 20, 30, 40])[:, : 90 + index % 2 * 10]

    model: FasterRCNN = Bright()
    found = list(score_images(model, Source(), [0, 1, 2, 3], images_per_batch=4, **OPTIONS))
    assert [scores.image_id for scores in found] == ["a", "b", "c", "d"]
    assert model.together == [2, 2]
    assert model.sizes == [(90, 300), (90, 300), (100, 300), (100, 300)]

import torch

from detector.modeling.postprocess import postprocess, vote_boxes
from detector.structures import Detections, Scores


def scored(image_id, proposals, scores):
    return Scores(image_id, proposals[:, None].expand(-1, scores.shape[1], 4), scores)


BOXES = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [30, 30, 40, 40]])


def test_suppression_is_within_a_class():
    scores = scored("a", BOXES, torch.tensor([[0.9, 0.1], [0.8, 0.7], [0.3, 0.0]]))
    found = postprocess(scores)
    assert found.image_id == "a"
    assert found.labels.tolist() == [0, 1, 0]
    torch.testing.assert_close(found.scores, torch.tensor([0.9, 0.7, 0.3]))
    assert torch.equal(found.boxes, BOXES[[0, 1, 2]])


def test_threshold_and_limit():
    scores = scored("a", BOXES, torch.tensor([[0.9], [0.8], [0.25]]))
    assert len(postprocess(scores, nms_threshold=0.9).boxes) == 3
    best = postprocess(scores, nms_threshold=0.9, max_detections=2)
    torch.testing.assert_close(best.scores, torch.tensor([0.9, 0.8]))
    assert len(postprocess(scores, score_threshold=0.8, nms_threshold=0.9).boxes) == 1  # strictly greater


def test_an_image_in_tiles_may_have_as_many_boxes_in_each():
    scores = Scores("a", BOXES[:, None], torch.tensor([[0.9], [0.8], [0.25]]), tiles=2)
    options = {"nms_threshold": 0.9, "score_threshold": 0.0}
    assert len(postprocess(scores, max_detections=1, **options)) == 2
    assert len(postprocess(scores, max_per_class=1, **options)) == 2
    assert len(postprocess(scores, max_detections=2, **options)) == 3


def test_no_proposals():
    found = postprocess(scored("a", torch.zeros(0, 4), torch.zeros(0, 3)))
    assert found.boxes.shape == (0, 4)
    assert found.labels.dtype == torch.int64


def test_each_class_has_its_own_boxes():
    moved = torch.stack([BOXES, BOXES + 100], dim=1)  # (3, 2, 4)
    found = postprocess(Scores("a", moved, torch.tensor([[0.9, 0.0], [0.0, 0.8], [0.3, 0.0]])))
    assert found.labels.tolist() == [0, 1, 0]
    assert torch.equal(found.boxes, torch.stack([BOXES[0], BOXES[1] + 100, BOXES[2]]))


def test_a_class_enters_the_suppression_with_its_best_boxes_alone():
    """The third box would survive, but the second, which the first suppresses, takes its place before NMS."""
    scores = scored("a", BOXES, torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.3]]))
    found = postprocess(scores, max_per_class=2)
    assert [(int(c), round(float(s), 1)) for c, s in zip(found.labels, found.scores, strict=True)] == [
        (0, 0.9),
        (1, 0.3),
        (1, 0.2),
    ]
    assert len(postprocess(scores).boxes) == 4
    equal = postprocess(scored("a", BOXES, torch.full((3, 1), 0.5)), max_per_class=1)
    assert torch.equal(equal.boxes, BOXES[:1])
    assert len(postprocess(scored("a", BOXES[:0], torch.zeros(0, 3)), max_per_class=2).boxes) == 0


def test_a_box_becomes_the_mean_of_those_around_it():
    """The IoU with the first box is 0.5 of the second, which counts at that threshold, and 0 of the third."""
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 5], [30, 30, 40, 40]])
    scores = scored("a", boxes, torch.tensor([[0.6], [0.2], [0.9]]))
    found = Detections("a", boxes[:1], torch.tensor([0.6]), torch.tensor([0]))
    mean = torch.tensor([[0.0, 0, 10, (0.6 * 10 + 0.2 * 0.5 * 5) / (0.6 + 0.2 * 0.5)]])  # score x IoU
    torch.testing.assert_close(vote_boxes(found, scores, 0.5).boxes, mean)
    assert vote_boxes(found, scores, 0.51).boxes.equal(found.boxes)
    assert vote_boxes(found, scores, 0) is found

import torch

from detector.modeling.postprocess import postprocess
from detector.structures import Scores

BOXES = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [30, 30, 40, 40]])


def test_suppression_is_within_a_class():
    scores = Scores("a", BOXES, torch.tensor([[0.9, 0.1], [0.8, 0.7], [0.3, 0.0]]))
    found = postprocess(scores)
    assert found.image_id == "a"
    assert found.labels.tolist() == [0, 1, 0]
    torch.testing.assert_close(found.scores, torch.tensor([0.9, 0.7, 0.3]))
    assert torch.equal(found.boxes, BOXES[[0, 1, 2]])


def test_threshold_and_limit():
    scores = Scores("a", BOXES, torch.tensor([[0.9], [0.8], [0.25]]))
    assert len(postprocess(scores, nms_threshold=0.9).boxes) == 3
    best = postprocess(scores, nms_threshold=0.9, max_detections=2)
    torch.testing.assert_close(best.scores, torch.tensor([0.9, 0.8]))
    assert len(postprocess(scores, score_threshold=0.8, nms_threshold=0.9).boxes) == 1  # strictly greater


def test_no_proposals():
    found = postprocess(Scores("a", torch.zeros(0, 4), torch.zeros(0, 3)))
    assert found.boxes.shape == (0, 4)
    assert found.labels.dtype == torch.int64

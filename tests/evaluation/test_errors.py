"""Every kind of mistake on boxes made for it, and the counts of them."""

import numpy as np
import pytest
import torch

from detector.evaluation.errors import KINDS, OUTCOMES, confusion, count_kinds, count_outcomes, judge
from detector.evaluation.voc import precision_recall, voc_ap
from detector.structures import Annotation, Detections


def found(boxes, labels, scores=None, image_id="a"):
    scores = torch.linspace(0.9, 0.1, len(boxes)) if scores is None else torch.tensor(scores)
    return Detections(
        image_id, torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4), scores, torch.tensor(labels).long()
    )


def truth(boxes, labels, difficult=(), crowd=(), image_id="a"):
    flags = [
        torch.tensor([i in rows for i in range(len(boxes))], dtype=torch.bool) for rows in (difficult, crowd)
    ]
    boxes = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    return Annotation(image_id, boxes, torch.tensor(labels).long(), *flags)


# Two objects of class 0 side by side, and one of class 1 far from them.
TRUTH = truth([(0, 0, 40, 40), (50, 0, 90, 40), (0, 100, 40, 140)], [0, 0, 1])


def kinds_of(detections, annotation=TRUTH):
    (image,) = judge([detections], [annotation], 2)
    return [KINDS[kind] if kind >= 0 else None for kind in image.kinds.tolist()]


@pytest.mark.parametrize(
    ("box", "label", "kind"),
    [
        ((0, 0, 40, 40), 0, "true positive"),
        ((0, 0, 40, 20), 0, "true positive"),  # IoU of 0.5 exactly
        ((0, 0, 40, 19), 0, "part"),
        ((0, 0, 8, 8), 0, "part"),  # IoU below 0.1: still a part, where TIDE says background
        ((-2, 0, 8, 8), 0, "part"),  # 0.8 of it inside
        ((-3, 0, 8, 8), 0, "background"),  # 0.73 inside, IoU 0.04
        ((0, 0, 90, 40), 0, "grouped"),
        ((20, 0, 70, 40), 0, "grouped"),  # half of each
        ((21, 0, 69, 40), 0, "localization"),
        ((0, 0, 40, 100), 0, "localization"),  # too large: IoU 0.4, only one object in it
        ((0, 100, 40, 140), 0, "wrong class"),
        ((0, 100, 40, 108), 0, "wrong class"),  # IoU 0.2
        ((0, 100, 40, 103), 0, "background"),  # IoU 0.075
        ((200, 200, 220, 220), 0, "background"),
    ],
)
def test_the_rules_at_their_thresholds(box, label, kind):
    assert kinds_of(found([box], [label])) == [kind]


def test_a_box_on_another_object_is_no_part_of_what_is_behind():
    scene = truth([(0, 0, 100, 100), (10, 10, 40, 40)], [0, 1])
    assert kinds_of(found([(10, 10, 40, 40)], [0]), scene) == ["wrong class"]
    assert kinds_of(found([(60, 60, 90, 90)], [0]), scene) == ["part"]


def test_the_better_scored_is_right_and_the_other_a_duplicate():
    assert kinds_of(found([(0, 0, 40, 40), (0, 0, 40, 38), (50, 0, 90, 40)], [0] * 3)) == [
        "true positive",
        "duplicate",
        "true positive",
    ]


def test_difficult_objects_and_crowds_do_not_count():
    scene = truth([(0, 0, 40, 40), (50, 0, 90, 40)], [0, 0], difficult=[0], crowd=[1])
    boxes = [(0, 0, 40, 40), (0, 0, 40, 40), (50, 0, 60, 10), (200, 0, 220, 20)]
    assert kinds_of(found(boxes, [0] * 4), scene) == [None, None, None, "background"]
    (image,) = judge([found(boxes, [0] * 4)], [scene], 2)
    assert not image.counted.any()  # there is nothing to find
    assert count_outcomes([image], 2).sum() == 0


def test_counted_are_as_many_as_there_are_objects():
    boxes = [(0, 0, 40, 40), (300, 0, 340, 40), (50, 0, 90, 40), (0, 100, 40, 140), (0, 100, 40, 139)]
    detections = found(boxes, [0, 0, 0, 1, 1])
    images = judge([detections, found([], [], image_id="b")], [TRUTH, truth([], [], image_id="b")], 2)
    assert images[0].counted.tolist() == [True, True, False, True, False]
    counts = count_kinds(images, 2)
    assert counts[0, KINDS.index("true positive")] == counts[0, KINDS.index("background")] == 1
    assert counts.sum(axis=1).tolist() == [2, 1]


def test_what_became_of_each_object():
    detections = found([(0, 0, 40, 40), (50, 0, 58, 8)], [0, 0])
    outcomes = count_outcomes(judge([detections], [TRUTH], 2), 2)
    named = [{OUTCOMES[k]: n for k, n in enumerate(row) if n} for row in outcomes.tolist()]
    assert named == [{"found": 1, "part": 1}, {"missed": 1}]
    grouped = count_outcomes(judge([found([(0, 0, 90, 40)], [0])], [TRUTH], 2), 2)
    assert grouped[0, OUTCOMES.index("grouped")] == 2  # one box about both
    mistaken = count_outcomes(judge([found([(0, 100, 40, 140)], [0])], [TRUTH], 2), 2)
    assert mistaken[1, OUTCOMES.index("wrong class")] == 1


def test_confusion_of_classes_and_background():
    detections = found([(0, 0, 40, 40), (0, 100, 40, 140)], [0, 0])
    assert confusion(judge([detections], [TRUTH], 2), 2).tolist() == [[1, 0, 1], [1, 0, 0], [0, 0, 0]]
    twice = found([(0, 0, 40, 40), (0, 0, 40, 40)], [0, 0])
    assert confusion(judge([twice], [TRUTH], 2), 2).tolist() == [[1, 0, 1], [0, 0, 1], [1, 0, 0]]
    assert confusion(judge([found([], [])], [TRUTH], 2), 2).tolist() == [[0, 0, 2], [0, 0, 1], [0, 0, 0]]
    assert confusion([], 2).sum() == 0


def test_right_is_what_average_precision_calls_right():
    """On random scenes the right detections of all, counted or not, are the hits of voc_ap's ranking."""
    generator = torch.Generator().manual_seed(0)
    detections, annotations = [], []
    for index in range(40):
        corners = (torch.rand(14, 2, generator=generator) * 60).round()
        boxes = torch.cat(
            [corners, corners + 10 + (torch.rand(14, 2, generator=generator) * 30).round()], dim=1
        )
        labels = torch.randint(2, (14,), generator=generator)
        flags = torch.rand(2, 4, generator=generator) < 0.15
        annotations.append(Annotation(str(index), boxes[:4], labels[:4], flags[0] & ~flags[1], flags[1]))
        near = boxes[:4] + torch.randint(-4, 5, (4, 4), generator=generator)
        scores = torch.rand(14, generator=generator).sort(descending=True).values
        detections.append(Detections(str(index), torch.cat([near, boxes[4:]]), scores, labels))
    judged = judge(detections, annotations, 2)
    hits = [
        round(float(np.nanmax(recall, initial=0)), 9)
        for recall, _ in precision_recall(detections, annotations, 2)
    ]
    objects = count_outcomes(judged, 2).sum(axis=1)
    right = np.zeros(2)
    for image in judged:
        np.add.at(right, image.detections.labels[image.kinds == 0].numpy(), 1)
    assert (right / objects).round(9).tolist() == hits
    assert right.min() > 10
    assert sum(int((image.kinds == -1).sum()) for image in judged) > 5


def test_the_area_under_precision_and_recall_is_the_average_precision():
    detections = found([(0, 0, 40, 40), (300, 0, 340, 40), (50, 0, 90, 40)], [0] * 3)
    (recall, precision), (none, _) = precision_recall([detections], [TRUTH], 2)
    assert recall.tolist() == [0.5, 0.5, 1]
    assert precision.tolist() == [1, 0.5, 2 / 3]
    assert len(none) == 0
    assert voc_ap([detections], [TRUTH], 2)[0] == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)

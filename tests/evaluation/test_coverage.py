import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detector.evaluation.coverage import best_overlaps, recall
from detector.structures import Annotation, box_iou


def truth(boxes, labels, **more):
    boxes = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    return Annotation(
        "a", boxes, torch.tensor(labels, dtype=torch.int64), torch.zeros(len(boxes)).bool(), **more
    )


def test_the_best_overlap_of_each_true_box():
    annotation = truth([[0, 0, 10, 10], [20, 20, 30, 30]], [0, 1])
    proposals = torch.tensor([[0, 0, 10, 8], [0, 0, 10, 5], [25, 20, 30, 30.0]])
    assert best_overlaps(proposals, annotation).tolist() == pytest.approx([0.8, 0.5])
    assert best_overlaps(torch.zeros(0, 4), annotation).tolist() == [0, 0]
    assert best_overlaps(proposals, truth([], [])).shape == (0,)


def test_recall_counts_what_reaches_the_threshold_and_no_crowds():
    annotations = [
        truth([[0, 0, 1, 1]] * 3, [0, 0, 1], crowd=torch.tensor([False, False, True])),
        truth([[0, 0, 1, 1]], [0]),
    ]
    overlaps = [torch.tensor([0.5, 0.4, 1.0]), torch.tensor([0.9])]
    np.testing.assert_allclose(recall(overlaps, annotations, 2, iou_threshold=0.5), [2 / 3, np.nan, 2 / 3])
    np.testing.assert_array_equal(recall([], [], 1, iou_threshold=0.5), [np.nan, np.nan])


@given(st.integers(0, 5), st.integers(0, 6), st.integers(0, 99))
def test_it_equals_a_slow_reference(images, most, seed):
    generator = torch.Generator().manual_seed(seed)
    annotations, overlaps, rows = [], [], []
    for _ in range(images):
        corners = torch.rand(most, 2, 2, generator=generator)
        boxes = torch.cat([corners.amin(dim=1), corners.amax(dim=1)], dim=1)
        annotations.append(truth(boxes.tolist(), torch.randint(0, 3, (most,), generator=generator).tolist()))
        proposals = boxes[: most // 2] + 0.05
        overlaps.append(best_overlaps(proposals, annotations[-1]))
        for box, label in zip(annotations[-1].boxes, annotations[-1].labels.tolist(), strict=True):
            ious = [float(box_iou(box[None], proposal[None])) for proposal in proposals]
            rows.append((label, max(ious, default=0.0) >= 0.5))
    expected = [[hit for label, hit in rows if label == c] for c in range(3)] + [[hit for _, hit in rows]]
    expected = [np.mean(hits) if hits else np.nan for hits in expected]
    np.testing.assert_allclose(recall(overlaps, annotations, 3, iou_threshold=0.5), expected)

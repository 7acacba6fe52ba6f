"""VOC's AP and CorLoc against cases worked out by hand and pycocotools."""

import contextlib
import io
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detector.evaluation import voc
from detector.evaluation.voc import corloc, image_ap, ranked_hits, voc_ap
from detector.structures import Annotation, Detections


def annotation(image_id, boxes=(), labels=(), difficult=(), crowd=()):
    return Annotation(
        image_id,
        torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
        torch.tensor(labels, dtype=torch.int64),
        torch.tensor(difficult or [False] * len(labels), dtype=torch.bool),
        torch.tensor(crowd or [False] * len(labels), dtype=torch.bool),
    )


def found(image_id, boxes=(), scores=(), labels=()):
    return Detections(
        image_id,
        torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
        torch.tensor(scores, dtype=torch.float32),
        torch.tensor(labels, dtype=torch.int64),
    )


BOX, FAR, HALF = (0, 0, 10, 10), (50, 50, 60, 60), (0, 0, 10, 5)  # HALF has IoU 0.5 with BOX


# ---- By hand


def test_right_then_wrong_then_right():
    truth = [annotation("a", [BOX, FAR], [0, 0])]
    detections = [found("a", [BOX, (80, 0, 90, 10), FAR], [0.9, 0.8, 0.7], [0, 0, 0])]
    # Precision 1, 1/2, 2/3 at recall 1/2, 1/2, 1.
    assert voc_ap(detections, truth, 1)[0] == pytest.approx((1 + 2 / 3) / 2, abs=1e-12)
    # Recalls 0 to 0.5 (6 of them) have precision 1, 0.6 to 1 (5 of them) 2/3.
    assert voc_ap(detections, truth, 1, eleven_point=True)[0] == pytest.approx(
        (6 + 5 * 2 / 3) / 11, abs=1e-12
    )


def test_a_match_needs_iou_at_least_the_threshold():
    truth = [annotation("a", [BOX], [0])]
    assert voc_ap([found("a", [HALF], [0.9], [0])], truth, 1)[0] == 1
    assert voc_ap([found("a", [(0, 0, 10, 4.99)], [0.9], [0])], truth, 1)[0] == 0
    assert voc_ap([found("a", [HALF], [0.9], [0])], truth, 1, iou_threshold=0.6)[0] == 0


def test_a_second_detection_of_an_object_is_wrong():
    truth = [annotation("a", [BOX, FAR], [0, 0])]
    detections = [found("a", [BOX, BOX, FAR], [0.9, 0.8, 0.7], [0, 0, 0])]
    assert voc_ap(detections, truth, 1)[0] == pytest.approx((1 + 2 / 3) / 2, abs=1e-12)


def test_a_taken_object_is_not_swapped_for_another():
    # Both detections overlap the left object most; the right one also reaches IoU 0.5 with the second.
    truth = [annotation("a", [(0, 0, 10, 10), (2, 0, 12, 10)], [0, 0])]
    detections = [found("a", [(0, 0, 10, 10), (0.5, 0, 10.5, 10)], [0.9, 0.8], [0, 0])]
    assert voc_ap(detections, truth, 1)[0] == 0.5


def test_difficult_objects_are_neither_right_nor_wrong():
    truth = [annotation("a", [BOX, FAR], [0, 0], [True, False])]
    detections = [found("a", [BOX, BOX, FAR], [0.9, 0.8, 0.7], [0, 0, 0])]
    assert voc_ap(detections, truth, 1)[0] == 1
    assert voc_ap([found("a")], truth, 1)[0] == 0


def test_a_class_without_objects_that_count_is_nan():
    truth = [annotation("a", [BOX], [0], [True]), annotation("b")]
    detections = [found("a", [BOX], [0.9], [0]), found("b", [BOX], [0.9], [1])]
    assert np.isnan(voc_ap(detections, truth, 3)).all()
    assert np.isnan(voc_ap([], [], 2)).all()


def test_boxes_of_another_class_or_image_do_not_match():
    truth = [annotation("a", [BOX], [0]), annotation("b", [FAR], [1])]
    detections = [found("b", [BOX, FAR], [0.9, 0.9], [0, 0]), found("a", [BOX], [0.8], [1])]
    assert voc_ap(detections, truth, 2).tolist() == [0, 0]


def test_tied_scores_keep_the_order_given():
    truth = [annotation("a", [BOX], [0]), annotation("b")]
    right_first = [found("a", [BOX, FAR], [0.5, 0.5], [0, 0]), found("b")]
    wrong_first = [found("a", [FAR, BOX], [0.5, 0.5], [0, 0]), found("b")]
    assert voc_ap(right_first, truth, 1)[0] == 1
    assert voc_ap(wrong_first, truth, 1)[0] == 0.5
    # Across images the order of the annotations decides, not that of the detections.
    spread = [found("b", [FAR], [0.5], [0]), found("a", [BOX], [0.5], [0])]
    assert voc_ap(spread, truth, 1)[0] == voc_ap(spread[::-1], truth, 1)[0] == 1
    assert voc_ap(spread, truth[::-1], 1)[0] == 0.5


def test_three_of_ten_objects_are_recall_three_tenths():
    boxes = [(20 * i, 0, 20 * i + 10, 10) for i in range(10)]
    truth = [annotation("a", boxes, [0] * 10)]
    detections = [found("a", boxes[:3], [0.9, 0.8, 0.7], [0] * 3)]
    assert voc_ap(detections, truth, 1, eleven_point=True)[0] == pytest.approx(4 / 11, abs=1e-12)


def test_empty_boxes_match_nothing():
    truth = [annotation("a", [(5, 5, 5, 5)], [0])]
    assert voc_ap([found("a", [(5, 5, 5, 5)], [0.9], [0])], truth, 1)[0] == 0


def test_a_crowd_is_no_object_and_excuses_what_is_half_inside():
    crowd = annotation("a", [(0, 0, 100, 100), FAR], [0, 0], crowd=[True, False])
    inside, half, less = (10, 10, 30, 30), (90, 0, 110, 10), (91, 0, 111, 10)
    for box, expected in ((inside, 1), (half, 1), (less, 0.5)):
        assert voc_ap([found("a", [box, FAR], [0.9, 0.8], [0, 0])], [crowd], 1)[0] == expected
    # A second detection of an object is excused too, one of another class is not.
    twice = annotation("a", [(0, 0, 100, 100), BOX, FAR], [0, 0, 0], crowd=[True, False, False])
    assert voc_ap([found("a", [BOX, BOX, FAR], [0.9, 0.8, 0.7], [0] * 3)], [twice], 1)[0] == 1
    other = annotation("a", [(0, 0, 100, 100), FAR], [1, 0], crowd=[True, False])
    result = voc_ap([found("a", [inside, FAR], [0.9, 0.8], [0, 0])], [other], 2)
    assert result[0] == 0.5
    assert np.isnan(result[1])


def test_images_must_agree():
    with pytest.raises(ValueError, match="image b has an annotation but no results"):
        voc_ap([found("a")], [annotation("a"), annotation("b")], 1)
    with pytest.raises(ValueError, match="image b has results but no annotation"):
        voc_ap([found("a"), found("b")], [annotation("a")], 1)
    with pytest.raises(ValueError, match="occurs twice"):
        voc_ap([found("a"), found("a")], [annotation("a")], 1)


def test_labels_must_be_classes():
    with pytest.raises(ValueError, match="labels run from 0 to 3, expected 0 to 1"):
        voc_ap([found("a", [BOX, BOX], [0.9, 0.8], [3, 0])], [annotation("a")], 2)


def test_corloc_by_hand():
    proposals = torch.tensor([BOX, FAR, HALF], dtype=torch.float32)
    truth = [
        annotation("a", [BOX, FAR], [0, 1], [True, False]),
        annotation("b", [BOX], [0]),
        annotation("c", [BOX], [0]),
        annotation("d"),
    ]
    best = [
        proposals[[0, 0, 0]],  # class 0 right, class 1 wrong
        proposals[[2, 0, 0]],  # IoU is 0.5, not more
        proposals[:0],  # no proposals: a miss
        proposals[[1, 1, 1]],
    ]
    result = corloc(best, truth, 3)
    assert result[:2] == pytest.approx([1 / 3, 0])
    assert np.isnan(result[2])
    assert corloc(best, truth, 3, iou_threshold=0.4)[0] == pytest.approx(2 / 3)


def test_corloc_ignores_crowds():
    truth = [annotation("a", [BOX, FAR, BOX], [0, 0, 1], crowd=[True, False, True])]
    result = corloc([torch.tensor([BOX, BOX])], truth, 2)
    assert result[0] == 0
    assert np.isnan(result[1])


def test_corloc_needs_boxes_for_every_image():
    with pytest.raises(ValueError, match="expected 1"):
        corloc([], [annotation("a")], 1)


# ---- pycocotools, where its rules and VOC's say the same


def separate_case(seed):
    """Objects so far apart that a detection overlaps one at most; difficult ones are found once at most.

    There the two sets of rules agree: COCO gives a detection whose best object is taken the next one, and
    ignores only the first detection of an object that does not count.
    """
    rng = np.random.default_rng(seed)
    annotations, detections = [], []
    for i in range(5):
        cells = rng.permutation(16)[: rng.integers(0, 8)]
        corners = np.stack([cells % 4, cells // 4], axis=1) * 100 + rng.integers(10, 20, (len(cells), 2))
        boxes = np.concatenate([corners, corners + rng.integers(20, 60, corners.shape)], axis=1)
        labels = rng.integers(0, 2, len(boxes))
        difficult = rng.random(len(boxes)) < (1.0 if seed % 20 == 7 else 0.3)
        if seed % 20 == 11:
            boxes, labels, difficult = boxes[:0], labels[:0], difficult[:0]
        crowds = [[0, 0, int(rng.integers(50, 400)), 100], [200, 100, 350, 400]][: rng.integers(0, 3)]
        annotations.append(
            annotation(
                f"{i}",
                boxes.tolist() + crowds,
                labels.tolist() + rng.integers(0, 2, len(crowds)).tolist(),
                difficult.tolist() + [False] * len(crowds),
                [False] * len(boxes) + [True] * len(crowds),
            )
        )
        repeats = np.where(difficult, rng.integers(0, 2, len(boxes)), rng.integers(0, 4, len(boxes)))
        near = np.repeat(boxes, repeats, axis=0).astype(float)
        near += rng.integers(-8, 9, near.shape)
        stray = rng.integers(0, 300, (rng.integers(0, 3), 2))
        near = np.concatenate([near, np.concatenate([stray, stray + 5], axis=1)])
        near_labels = np.concatenate([np.repeat(labels, repeats), rng.integers(0, 2, len(stray))])
        if seed % 20 == 3:
            near, near_labels = near[:0], near_labels[:0]
        scores = rng.integers(0, 5 if seed % 2 else 10**6, len(near)) / (5 if seed % 2 else 10**6)
        order = np.argsort(-scores, kind="stable")
        detections.append(
            found(f"{i}", near[order].tolist(), scores[order].tolist(), near_labels[order].tolist())
        )
    return detections, annotations


def coco_ap(coco_module, cocoeval_module, detections, annotations, label, eleven_point):
    """AP of one class by pycocotools, read at the recalls that make it VOC's."""
    xywh = lambda box: [float(v) for v in (box[0], box[1], box[2] - box[0], box[3] - box[1])]  # noqa: E731
    truth = [
        # An area out of range is how COCO marks an object that does not count, besides crowds.
        {"bbox": xywh(box), "area": 1e9 if difficult else 1.0, "iscrowd": int(crowd), "image_id": i}
        for i, image in enumerate(annotations)
        for box, c, difficult, crowd in zip(
            image.boxes, image.labels, image.difficult, image.crowd, strict=True
        )
        if c == label
    ]
    total = sum(row["area"] == 1.0 and not row["iscrowd"] for row in truth)
    if total == 0:
        return None
    results = [
        {"bbox": xywh(box), "score": float(score), "image_id": i, "category_id": 1}
        for i, image in enumerate(detections)
        for box, score, c in zip(image.boxes, image.scores, image.labels, strict=True)
        if c == label
    ]
    if not results:  # pycocotools cannot load an empty list
        return 0.0
    coco = coco_module.COCO()
    coco.dataset = {
        "info": {},
        "images": [{"id": i} for i in range(len(annotations))],
        "categories": [{"id": 1}],
        "annotations": [{**row, "id": n + 1, "category_id": 1} for n, row in enumerate(truth)],
    }
    coco.createIndex()
    evaluation = cocoeval_module.COCOeval(coco, coco.loadRes(results), "bbox")
    steps = np.arange(11) / 10 if eleven_point else (np.arange(total) + 0.5) / total
    evaluation.params.iouThrs = np.array([0.5])
    evaluation.params.recThrs = np.maximum(
        steps - 1e-12, 0
    )  # rounding must not lose a recall that is reached
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, 1e8]], ["all"]
    evaluation.params.maxDets = [1000]
    evaluation.evaluate()
    evaluation.accumulate()
    return float(evaluation.eval["precision"][0, :, 0, 0, 0].mean())


def test_agrees_with_pycocotools_on_200_random_cases():
    coco_module = pytest.importorskip("pycocotools.coco")
    cocoeval_module = pytest.importorskip("pycocotools.cocoeval")
    informative = 0
    for seed in range(200):
        detections, annotations = separate_case(seed)
        for eleven_point in (False, True):
            ours = voc_ap(detections, annotations, 2, eleven_point=eleven_point)
            for label in range(2):
                with contextlib.redirect_stdout(io.StringIO()):
                    theirs = coco_ap(
                        coco_module, cocoeval_module, detections, annotations, label, eleven_point
                    )
                if theirs is None:
                    assert np.isnan(ours[label]), (seed, label)
                else:
                    assert ours[label] == pytest.approx(theirs, abs=1e-9), (seed, label, eleven_point)
                    informative += 0 < theirs < 1
    assert informative > 200


# ---- Speed


def test_voc_size_takes_seconds():
    generator = torch.Generator().manual_seed(0)

    def boxes(count):
        corners = torch.rand(count, 2, generator=generator) * 300
        return torch.cat([corners, corners + 20 + torch.rand(count, 2, generator=generator) * 100], dim=1)

    def labels(count):
        return torch.randint(20, (count,), generator=generator)

    images = range(5000)
    truth = [Annotation(f"{i}", boxes(3), labels(3), torch.zeros(3, dtype=torch.bool)) for i in images]
    detections = [
        Detections(f"{i}", boxes(100), torch.rand(100, generator=generator), labels(100)) for i in images
    ]
    start = time.perf_counter()
    voc_ap(detections, truth, 20)
    assert time.perf_counter() - start < 10  # 0.5 s on one quiet core


# ---- Image-level AP


@given(st.integers(1, 12), st.integers(0, 99))
def test_image_ap_equals_scikit_learn_for_distinct_scores(images, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(images, 3, generator=generator)
    labels = torch.randint(0, 2, (images, 3), generator=generator).float()
    labels[0] = 1
    from sklearn.metrics import average_precision_score  # takes seconds

    expected = [average_precision_score(labels[:, c], scores[:, c]) for c in range(3)]
    np.testing.assert_allclose(image_ap(scores.unbind(), labels.unbind()), expected)


def test_image_ap_of_equal_scores_and_of_a_class_in_no_image():
    scores = [torch.tensor([0.5, 0.5])] * 2
    labels = [torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0])]
    np.testing.assert_array_equal(image_ap(scores, labels), [0.5, np.nan])


@pytest.mark.parametrize("together", [1, 3, 4096])
def test_image_ap_ranks_equal_scores_in_order_however_many_are_read_at_a_time(monkeypatch, together):
    monkeypatch.setattr(voc, "_TOGETHER", together)
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 4, (50, 3)) / 4
    shown, unknown = generator.random((50, 3)) < 0.4, generator.random((50, 3)) < 0.2
    shown &= ~unknown
    expected = []
    for label in range(3):
        ranking = np.argsort(-scores[:, label], kind="stable")
        hits = shown[ranking, label]
        counted = np.maximum(np.cumsum(~unknown[ranking, label]), 1)
        expected.append((np.cumsum(hits) / counted)[hits].mean())
    tensors = (list(map(torch.from_numpy, each)) for each in (scores, shown, unknown))
    np.testing.assert_allclose(image_ap(*tensors), expected)


def test_what_ranks_and_hits_is_the_same_however_many_images_are_read_at_a_time(monkeypatch):
    detections, annotations = map(list, zip(*(many_images(seed) for seed in range(30)), strict=True))
    whole = ranked_hits(detections, annotations, 3)
    monkeypatch.setattr(voc, "_TOGETHER", 4)
    for first, second in zip(whole, ranked_hits(detections, annotations, 3), strict=True):
        assert first.objects == second.objects > 0
        np.testing.assert_array_equal(first.scores, second.scores)
        np.testing.assert_array_equal(first.is_tp, second.is_tp)


def many_images(seed):
    """An image with detections of few different scores, and its objects."""
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(12, 2, generator=generator) * 20
    boxes = torch.cat([corners, corners + 12], dim=1)
    labels = torch.randint(0, 3, (12,), generator=generator)
    scores = torch.randint(1, 4, (8,), generator=generator).sort(descending=True).values / 4
    found = Detections(str(seed), boxes[:8], scores, labels[:8])
    return found, annotation(str(seed), boxes[4:].tolist(), labels[4:].tolist())


def test_image_ap_needs_an_image():
    with pytest.raises(ValueError, match="there are no images, expected scores and labels of at least one"):
        image_ap([], [])


def test_image_ap_needs_labels_for_every_image():
    with pytest.raises(ValueError, match="2 images"):
        image_ap([torch.zeros(1)] * 2, [torch.zeros(1)])

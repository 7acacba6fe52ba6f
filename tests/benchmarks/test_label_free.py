"""The figures that need no boxes, on made-up detections."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from label_free import agreement, best_boxes, best_scores, consistency, describe_areas, last_losses

from detector.data.datasets.voc import VOCDataset
from detector.data.toybox import CLASSES, draw_toybox
from detector.structures import Detections


def detections(*rows: tuple[tuple[float, ...], float, int]) -> Detections:
    boxes, scores, labels = zip(*rows, strict=True)
    return Detections("a", torch.tensor(boxes), torch.tensor(scores), torch.tensor(labels))


def test_the_best_box_of_each_class_that_an_image_shows():
    found = detections(
        ((0.0, 0, 4, 4), 0.2, 0), ((0.0, 0, 2, 2), 0.9, 0), ((1.0, 1, 2, 2), 0.8, 1), ((0.0, 0, 9, 9), 0.7, 2)
    )
    best = best_boxes([found], [torch.tensor([1, 1, 0, 1])])
    assert {key: pytest.approx(box.tolist()) for key, box in best.items()} == {
        (0, 0): [0, 0, 2, 2, 0.9],
        (0, 1): [1, 1, 2, 2, 0.8],
    }
    assert best_scores(found, 4).tolist() == pytest.approx([0.9, 0.8, 0.7, 0])


def test_a_box_that_one_detector_does_not_find_counts_as_no_agreement():
    box, half = torch.tensor([0, 0, 4, 4, 0.9]), torch.tensor([0, 0, 4, 2, 0.9])
    found = agreement({(0, 0): box, (1, 0): box}, {(0, 0): half}, "x")
    assert found == {"IoU, x": 25, "IoU at least 0.5, x": 50}


def test_areas_of_no_boxes_are_no_figures():
    assert describe_areas([], "x") == {}
    assert describe_areas([0.01, 0.99], "x")["covers 2 % or less, x"] == 50


def test_the_last_losses_of_a_log(tmp_path: Path):
    lines = [f"INFO step {step}/3  loss {step}.5  mil 0.{step}  lr 1e-05" for step in (1, 2, 3)]
    (tmp_path / "log.txt").write_text("\n".join([*lines, "INFO trained in 0:00:33"]))
    assert last_losses(tmp_path / "log.txt", "weak") == pytest.approx({"loss, weak": 3.0, "mil, weak": 0.25})


def test_a_student_that_finds_what_the_weak_detector_found_is_consistent(tmp_path: Path):
    draw_toybox(tmp_path / "toybox", train=1, test=1)
    dataset = VOCDataset(tmp_path / "toybox", "test", CLASSES)
    image_id = dataset.image_ids[0]
    one = replace(detections(((0.0, 0, 4, 4), 0.9, 1), ((5.0, 5, 9, 9), 0.8, 2)), image_id=image_id)
    other = replace(detections(((0.0, 0, 4, 4), 0.5, 1), ((20.0, 5, 29, 9), 0.8, 2)), image_id=image_id)
    best = best_boxes([one], [torch.tensor([0, 1, 1, 0, 0, 0])])
    assert consistency(dataset, best, [one]) == 1
    assert consistency(dataset, best, [other]) == 0.5

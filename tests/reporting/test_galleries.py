import torch
from PIL import Image

from detector.data.datasets.voc import VOCDataset
from detector.data.toybox import CLASSES, draw_toybox
from detector.evaluation.errors import judge
from detector.reporting.galleries import best_detections, confident_mistakes, galleries_section, worst_images
from detector.structures import Annotation, Detections

BOXES = torch.tensor([[0.0, 0, 10, 10], [20, 0, 30, 10], [50, 50, 60, 60]])  # the last is on nothing


def scene(image_id, *found):
    """An image with an object of class 0 and one of class 1; found are (box, label, score)."""
    rows, labels, scores = zip(*found, strict=True) if found else ((), (), ())
    detections = Detections(
        image_id, BOXES[list(rows)].reshape(-1, 4), torch.tensor(scores), torch.tensor(labels).long()
    )
    return detections, Annotation(image_id, BOXES[:2], torch.tensor([0, 1]), torch.zeros(2).bool())


def judged(*scenes):
    return judge(*map(list, zip(*scenes, strict=True)), 2)


def test_what_the_galleries_show():
    images = judged(
        scene("a", (0, 0, 0.9), (1, 1, 0.3)),
        scene("b", (2, 0, 0.8), (0, 0, 0.7)),
        scene("c", (0, 0, 0.6)),
        scene("d"),
        scene("e", (2, 1, 0.5), (1, 1, 0.4), (2, 0, 0.1)),
    )
    assert best_detections(images, 2, 9) == [(0, 0), (4, 1), (1, 1), (2, 0)]  # class by class, one an image
    assert confident_mistakes(images, 9) == [(1, 0), (4, 0)]
    assert confident_mistakes(images, 1) == [(1, 0)]
    assert worst_images(images, 2) == [3, 4]
    assert best_detections([], 2, 9) == worst_images([], 9) == []


def test_boxes_are_in_pixels_of_a_picture_that_is_shown_reduced(tmp_path, monkeypatch):
    draw_toybox(tmp_path / "toybox", train=1, test=1)
    data = VOCDataset(tmp_path / "toybox", "test", CLASSES)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5000)
    monkeypatch.setattr("detector.data.large_images._SHOWN", 60)
    truth = data.annotation(0)
    found = Detections(truth.image_id, truth.boxes, torch.ones(len(truth.labels)), truth.labels)
    section, _ = galleries_section(judge([found], [truth], len(CLASSES)), data, [0], 1)
    height, width = data.image_size(0)
    assert f'viewBox="0 0 {width} {height}"' in section.body

"""The gallery of pseudo boxes begins with the worst."""

import re

import numpy as np
import torch

from detector.data.datasets.voc import VOCDataset
from detector.data.toybox import CLASSES, draw_toybox
from detector.reporting.pseudo_section import pseudo_section
from detector.self_training.pseudo_set import write_pseudo_set
from detector.structures import Detections


def test_those_that_agree_least_come_first_or_those_with_low_scores(tmp_path):
    draw_toybox(tmp_path / "toybox", train=3, test=1)
    data = VOCDataset(tmp_path / "toybox", "trainval", CLASSES)
    truth = [data.annotation(index) for index in range(3)]
    nowhere = torch.tensor([0.0, 0, 2, 2])
    found = []
    # All boxes of the first are right, the first one of the second, none of the third.
    for annotation, score, right in zip(truth, (0.9, 0.2, 0.5), (99, 1, 0), strict=True):
        boxes = annotation.boxes.clone()
        boxes[right:] = nowhere
        values = torch.full((len(boxes),), score)
        found.append(Detections(annotation.image_id, boxes, values, annotation.labels))
    write_pseudo_set(tmp_path / "pseudo", "trainval", data, found)

    def order() -> list[str]:
        section = pseudo_section(tmp_path / "pseudo", "trainval", data, 2)
        assert section.title == "Pseudo boxes"
        return re.findall(r"<br>(\S+)</figcaption>", str(section.body))

    ids = list(data.image_ids)
    assert order() == [ids[2], ids[1]]
    data._boxed = np.zeros(3, dtype=bool)  # as a data set of image labels
    assert order()[0] == ids[1]

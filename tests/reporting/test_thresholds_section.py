"""The section with the sliders: its figures are those of the detections."""

import re

import numpy as np
import torch

from detector.data.datasets.voc import VOCDataset
from detector.data.toybox import CLASSES, draw_toybox
from detector.evaluation.thresholds import Threshold
from detector.evaluation.voc import ranked_hits
from detector.reporting.thresholds_section import STOPS, thresholds_section
from detector.structures import Detections


def counts(body: str, name: str) -> np.ndarray:
    """The numbers of an attribute: (C, 1 + stops)."""
    return np.array([each.split() for each in re.findall(f'data-{name}="([^"]*)"', body)], dtype=float)


def test_each_stop_keeps_what_scores_more(tmp_path):
    draw_toybox(tmp_path / "toybox", train=1, test=4)
    data = VOCDataset(tmp_path / "toybox", "test", CLASSES)
    torch.manual_seed(0)
    truth = [data.annotation(index) for index in range(len(data))]
    found = []
    for annotation in truth:  # each object, and as many boxes of any class elsewhere
        number = len(annotation.boxes)
        labels = torch.cat([annotation.labels, torch.randint(len(CLASSES), (number,))])
        boxes = torch.cat([annotation.boxes, torch.rand(number, 4).sort(dim=1).values])
        scores, order = torch.rand(2 * number).sort(descending=True)
        found.append(Detections(annotation.image_id, boxes[order], scores, labels[order]))
    chosen = [Threshold(0.2 + 0.1 * label, "boxes", 0.5) for label in range(len(CLASSES))]
    hits = ranked_hits(found, truth, len(CLASSES))
    body = str(thresholds_section(data, found, hits, chosen, 2).body)
    tags = data.all_labels()
    for label, own in enumerate(hits):
        limits = np.array([chosen[label].value, *STOPS])
        assert counts(body, "judged")[label].tolist() == [(own.scores > each).sum() for each in limits]
        right = own.scores[own.is_tp]
        assert counts(body, "right")[label].tolist() == [(right > each).sum() for each in limits]
        tagged = [
            image.scores[image.labels == label]
            for image, tag in zip(found, tags[:, label], strict=True)
            if tag
        ]
        kept = torch.cat([torch.zeros(0), *tagged]).double().numpy()
        assert counts(body, "tagged")[label].tolist() == [(kept > each).sum() for each in limits]
    assert body.count("<figure") == 2
    boxes = re.findall(r'<g data-label="(\d)" data-score="([^"]*)"( class="below")?>', body)
    assert len(boxes) > 4
    assert all(bool(below) == (float(s) <= chosen[int(c)].value) for c, s, below in boxes)
    plain = str(thresholds_section(data, found, [], None, 0).body)
    assert "precision" not in plain
    assert "There are none of this test, so each is 0.3" in plain

import re

import torch

from detector.evaluation.errors import judge
from detector.reporting.galleries import images_section
from detector.structures import Annotation, Detections


def scene(image_id, boxes):
    """An image with one object of class 0; `boxes` are detections of it."""
    scores = torch.linspace(0.9, 0.5, len(boxes))
    found = Detections(image_id, torch.tensor(boxes).reshape(-1, 4), scores, torch.zeros(len(boxes)).long())
    truth = torch.tensor([[0.0, 0, 10, 10]])
    return found, Annotation(image_id, truth, torch.tensor([0]), torch.zeros(1).bool())


def test_images_are_listed_by_f1_with_their_errors_and_links():
    scenes = [scene("<good>", [[0.0, 0, 10, 10]]), scene("bad", [[50.0, 50, 60, 60]]), scene("none", [])]
    judged = judge(*map(list, zip(*scenes, strict=True)), 2)
    body = images_section(judged, ["cat", "<dog>"], {1}).body
    assert "<good>" not in body
    assert "<dog>" not in body
    lines = re.findall(r'<p class="row ([^"]*)">(.*?)</p>', body)[1:]
    assert [sorted(styles.split()) for styles, _ in lines] == [
        ["c0", "r-background", "r-missed"],
        ["c0", "r-missed"],
        ["c0", "r-all-found"],
    ]
    told = [re.sub("<[^>]*>", " ", line).split() for _, line in lines]
    assert told[0] == ["bad", *["1", "cat", "0", "of", "1", "0.00", "1", "background,", "1", "missed"]]
    assert told[2] == ["&lt;good&gt;", *["1", "cat", "1", "of", "1", "1.00"]]
    assert ["#picture-1" in line for _, line in lines] == [True, False, False]

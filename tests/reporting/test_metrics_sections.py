import re

import numpy as np
import pytest
import torch

from detector.evaluation.errors import KINDS
from detector.reporting.metrics_sections import (
    classes_section,
    curves_section,
    describe_method,
    summary,
    with_strict_ap,
)
from detector.structures import Annotation, Detections

METRICS = {
    "method": "pcl",
    "iteration": 1200,
    "mAP50": 40.0,
    "CorLoc": 60.0,
    "per_class": {"cat": {"AP50": 50.0}, "dog": {"AP50": 30.0}, "emu": {"AP50": None}},
}


def test_the_summary_names_metrics_classes_and_the_most_frequent_error():
    kinds = np.zeros((3, len(KINDS)), dtype=int)
    kinds[0, KINDS.index("true positive")] = 6
    kinds[0, KINDS.index("part")] = 1
    kinds[1, KINDS.index("part")] = 2
    kinds[1, KINDS.index("background")] = 1
    sentence = summary(METRICS, "toys", kinds)
    assert sentence.count(". ") == 0
    for part in ("PCL", "1,200 steps", "40.0 mAP50 on toys", "60.0 CorLoc", "'part' (30 %"):
        assert part in sentence
    assert "best class is cat (AP50 50.0), its worst dog (30.0)" in sentence


def test_the_summary_omits_what_was_not_measured():
    none = METRICS | {"mAP50": None, "CorLoc": None}
    assert "no ground-truth boxes" in summary(none, "toys", None)
    one = METRICS | {"CorLoc": None, "per_class": {"cat": {"AP50": 40.0}}}
    assert summary(one, "toys", np.zeros((1, len(KINDS)))).endswith("reaches 40.0 mAP50 on toys.")


def test_the_backbones_learning_rate_is_no_loss():
    curve = np.array([1, 2]), np.array([0.1, 0.2])
    names = ("mil", "refine_1", "lr", "lr_backbone")
    losses, rates = str(curves_section(dict.fromkeys(names, curve)).body).split("<figure")[1:]
    assert "refine_1" in losses
    assert "lr_backbone" not in losses
    assert "lr_backbone" in rates


def test_ap_at_higher_ious_by_hand():
    truth = Annotation("a", torch.tensor([[0.0, 0, 100, 100]]), torch.tensor([0]), torch.zeros(1).bool())
    found = Detections("a", torch.tensor([[0.0, 0, 100, 62]]), torch.tensor([0.9]), torch.tensor([0]))
    metrics = {"per_class": {"cat": {"AP50": 100.0}, "dog": {"AP50": None}}, "mAP50": 100.0}
    found = with_strict_ap(metrics, [found], [truth])
    assert found["per_class"]["cat"] == {"AP50": 100.0, "AP75": 0.0, "AP50_95": pytest.approx(30)}
    assert found["per_class"]["dog"] == {"AP50": None, "AP75": None, "AP50_95": None}
    assert (found["mAP50"], found["mAP75"], found["mAP50_95"]) == (100.0, 0.0, pytest.approx(30))
    assert metrics["per_class"]["cat"] == {"AP50": 100.0}  # what the file holds stays


def test_both_detectors_are_in_one_table():
    student = {**METRICS, "mAP50": 60.0, "per_class": {name: {"AP50": 60.0} for name in METRICS["per_class"]}}
    body = str(classes_section({"weak": METRICS, "student": student}, "toys").body)
    rows = [re.sub("<[^>]*>", " ", row).split() for row in body.split("<tr")[2:]]
    told = [[word for word in row if '">' not in word and not word.startswith("class")] for row in rows]
    assert told[:2] == [["cat", "weak", "50.0", "-"], ["student", "60.0", "-"]]
    assert told[-2:] == [["mean", "weak", "40.0", "60.0"], ["student", "60.0", "60.0"]]
    alone = str(classes_section({"": METRICS}, "toys").body)
    assert "weak" not in alone


def test_a_student_is_named_by_its_network():
    assert describe_method("pcl + self-training") == "Faster R-CNN on the boxes of PCL"
    assert describe_method("mist") == "MIST"

import numpy as np

from detector.evaluation.errors import KINDS
from detector.report.metrics_sections import curves_section, summary

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

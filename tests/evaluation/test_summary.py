import json

import numpy as np
import pytest

from detector.evaluation.summary import metrics_table, summarize, write_json

NAN = float("nan")
CLASSES = ("cat", "dog", "elephant")
FIGURES = np.array([0.5, NAN, 0.25]), np.array([0.25, NAN, 1]), np.array([1, 0, NAN])
METRICS = summarize(CLASSES, *FIGURES)


def test_metrics_are_in_percent_and_null_where_nothing_was_to_find():
    assert METRICS == {
        "mAP50": 37.5,
        "mAP50_11point": 62.5,
        "CorLoc": 50.0,
        "per_class": {
            "cat": {"AP50": 50.0, "AP50_11point": 25.0, "CorLoc": 100.0},
            "dog": {"AP50": None, "AP50_11point": None, "CorLoc": 0.0},
            "elephant": {"AP50": 25.0, "AP50_11point": 100.0, "CorLoc": None},
        },
    }


def test_no_class_at_all_has_objects():
    assert summarize(("cat",), *[np.array([NAN])] * 3)["mAP50"] is None


def test_every_class_needs_its_figures():
    with pytest.raises(ValueError, match="zip"):
        summarize(("cat", "dog"), *[np.array([0.5])] * 3)


def test_coco_figures_stand_beside_the_others():
    means = {name: np.array([0.5, NAN, 0.3]) for name in ("AP", "AP50", "AP75", "AP_small", "AP_medium")}
    metrics = summarize(CLASSES, *FIGURES, means | {"AP_large": np.full(3, NAN)})
    assert list(metrics) == ["mAP50", "mAP50_11point", "CorLoc", *means, "AP_large", "per_class"]
    assert metrics["AP75"] == pytest.approx(40)
    assert metrics["AP_large"] is None
    assert {name: row["AP"] for name, row in metrics["per_class"].items()} == {
        "cat": 50.0,
        "dog": None,
        "elephant": 30.0,
    }
    assert metrics_table(metrics).splitlines() == [
        "class     AP50  AP50 11-point  CorLoc    AP",
        "-------------------------------------------",
        "cat       50.0           25.0   100.0  50.0",
        "dog          -              -     0.0     -",
        "elephant  25.0          100.0       -  30.0",
        "-------------------------------------------",
        "mean      37.5           62.5    50.0  40.0",
        "",
        "COCO: AP 40.0  AP50 40.0  AP75 40.0  AP_small 40.0  AP_medium 40.0  AP_large -",
    ]


def test_table():
    assert metrics_table(METRICS).splitlines() == [
        "class     AP50  AP50 11-point  CorLoc",
        "-------------------------------------",
        "cat       50.0           25.0   100.0",
        "dog          -              -     0.0",
        "elephant  25.0          100.0       -",
        "-------------------------------------",
        "mean      37.5           62.5    50.0",
    ]


def test_json_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "metrics.json"
    write_json(path, METRICS)
    assert json.loads(path.read_text()) == METRICS
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"mAP50": NAN})
    assert json.loads(path.read_text()) == METRICS
    assert list(tmp_path.iterdir()) == [path]


def test_the_ap_of_images_is_a_column_and_columns_without_a_figure_are_none():
    none, some = np.array([NAN]), np.array([0.5])
    metrics = summarize(("cat",), none, none, none, image_ap=some)
    assert metrics["image_mAP"] == metrics["per_class"]["cat"]["image_AP"] == 50.0
    assert metrics_table(metrics).splitlines() == [
        "class  image AP",
        "---------------",
        "cat        50.0",
        "---------------",
        "mean       50.0",
    ]
    assert metrics_table(summarize(("cat",), none, none, none)).splitlines()[0] == "class"

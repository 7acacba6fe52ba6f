from xml.etree import ElementTree

import numpy as np
import pytest

from detector.evaluation.errors import KINDS, OUTCOMES
from detector.reporting.charts import line_chart, moving_average, ticks
from detector.reporting.metrics_sections import curves_section, errors_section

NAN = float("nan")


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.25, 0.5, 0.75, 1]),
        (20, 880, [250, 500, 750]),
        (0, 0.001, [0, 0.00025, 0.0005, 0.00075, 0.001]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
    ],
)
def test_ticks_are_round(low, high, expected):
    assert ticks(low, high, 4) == pytest.approx(expected)


def points(chart):
    """The points of the last line of a chart, (N, 2)."""
    last = list(ElementTree.fromstring(chart).iter("path"))[-1].get("d")
    return np.array([pair.split(",") for pair in last[1:].split("L")], dtype=float)


def test_a_line_goes_where_its_points_are():
    chart = line_chart(
        {"a": (np.array([0, 1]), np.array([0, 2]))}, x_name="x", y_name="y", size=(150, 130), y_range=(0, 2)
    )
    (left, bottom), (right, top) = points(chart)
    assert (left, right) == (58, 138)
    assert (top, bottom) == (8, 90)


def test_what_is_not_finite_is_left_out_and_long_lines_are_thinned():
    x = np.arange(5000.0)
    chart = line_chart({"a": (x, np.where(x % 2 == 0, x, NAN))}, x_name="x", y_name="y", smooth=True)
    assert len(points(chart)) == 300


@pytest.mark.parametrize("values", [[], [3.0], [3.0, 3.0], [0.0, 0.0], [NAN], [-1e-9, 1e9]])
def test_lines_of_any_values_are_drawn(values):
    chart = line_chart(
        {"a": (np.arange(len(values)), np.array(values))}, x_name="x", y_name="y", smooth=True, fill=True
    )
    assert "nan" not in chart.lower()
    assert ElementTree.fromstring(chart).get("role") == "img"


def test_names_are_escaped():
    line = (np.array([0, 1]), np.array([0, 1]))
    counts = np.ones((2, len(KINDS)), dtype=int)
    for text in (
        line_chart({"a": line}, x_name='<i>"', y_name="<i>"),
        curves_section({"<i>": line, "b": line}).body,
        errors_section(["<i>", "b"], counts, counts[:, : len(OUTCOMES)]).body,
    ):
        assert "<i>" not in text
        assert "&lt;i&gt;" in text


def test_bars_are_cut_in_proportion():
    kinds, outcomes = np.zeros((2, len(KINDS)), dtype=int), np.zeros((2, len(OUTCOMES)), dtype=int)
    kinds[0, KINDS.index("true positive")], kinds[0, KINDS.index("wrong class")] = 1, 3
    bars = errors_section(["cat", "dog"], kinds, outcomes).body
    assert bars.count("width:25.00%") == 2  # of cat, and of all
    assert bars.count('class="k-wrong-class" style="width:75.00%" title="wrong class: 3"') == 2
    assert bars.count("width:") == 4


def test_the_moving_average_knows_the_ends():
    assert moving_average(np.array([1.0, 1, 4, 1, 1]), 3) == pytest.approx([1, 2, 2, 2, 1])


def test_the_ap_while_training_is_a_chart_of_its_own():
    curves = {name: (np.array([1, 2]), np.array([3.0, 4.0])) for name in ("AP50", "mil")}
    body = curves_section(curves).body
    assert body.count("AP50 on some test images") > 0
    assert body.index("AP50 on some test images") < body.index("weighted losses")

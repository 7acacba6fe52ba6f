"""detector.utils.progress: bars of any terminal, and durations."""

import io

import pytest

from detector.utils.progress import duration, progress_bar


@pytest.mark.parametrize("columns", [80, 120])
def test_figures_stay_whole(columns):
    file = io.StringIO()
    name = "street scenes of the city val"
    with progress_bar(total=1500, unit="step", desc=name, ncols=columns, file=file, disable=False) as bar:
        bar.update(1400)
        bar.set_postfix_str("loss 0.0531  AP50 43.2")
    line = file.getvalue().split("\r")[-1].rstrip()
    assert len(line) <= columns
    assert line.startswith("scenes of the city val"[-20:] + ": ")
    assert "step 1400/1500" in line
    assert line.endswith(" left, loss 0.0531  AP50 43.2")


def test_no_bar_where_standard_error_is_no_terminal(capsys):
    assert list(progress_bar(range(3), total=3)) == [0, 1, 2]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0:00"), (59.6, "1:00"), (725, "12:05"), (3599.7, "1:00:00"), (3723, "1:02:03")],
)
def test_durations_are_rounded_once(seconds, text):
    assert duration(seconds) == text

"""Small SVG charts, colored by the style sheet of the page."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from detector.reporting.document import render

_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 8, 40  # margins of a chart, pixels
_POINTS = 300  # points per line; more cannot be told apart


def line_chart(
    lines: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    x_name: str,
    y_name: str,
    size: tuple[int, int] = (340, 190),
    smooth: bool = False,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    fill: bool = False,
) -> Markup:
    """An SVG chart of the lines (x, y), with named axes.

    Args:
        size: (width, height) in pixels; the page may scale the chart down.
        smooth: draw each line pale and its moving average on top.
        x_range, y_range: limits of the axes; None: those of the values, with y starting at 0 or below.
        fill: tint the area below the lines.
    """
    width, height = size
    left, right, top, bottom = _LEFT, width - _RIGHT, _TOP, height - _BOTTOM
    lines = {name: _finite(*line) for name, line in lines.items()}
    x_low, x_high = x_range or _range([x for x, _ in lines.values()])
    y_low, y_high = y_range or _range([y for _, y in lines.values()], from_zero=True)

    def across(x: np.ndarray | float) -> np.ndarray:
        return left + (np.asarray(x) - x_low) / (x_high - x_low) * (right - left)

    def down(y: np.ndarray | float) -> np.ndarray:
        return top + (1 - (np.asarray(y) - y_low) / (y_high - y_low)) * (bottom - top)

    drawn: list[list[tuple[str, str]]] = []  # for each line (CSS class, SVG path), bottom first
    for x, y in lines.values():
        paths = []
        if fill and len(x):
            closed = f"{_path(across(x), down(y))}V{down(y_low):.1f}H{across(x[0]):.1f}Z"
            paths.append(("area", closed))
        if smooth and len(x) > 12:
            paths.append(("raw", _path(across(x), down(y))))
            y = moving_average(y, max(3, len(y) // 12))
        drawn.append([*paths, ("", _path(across(x), down(y)))] if len(x) else [])
    return render(
        "chart",
        width=width,
        height=height,
        left=left,
        right=right,
        top=top,
        bottom=bottom,
        x_name=x_name,
        y_name=y_name,
        x_ticks=[(across(tick), _number(tick)) for tick in ticks(x_low, x_high, 4)],
        y_ticks=[(down(tick), _number(tick)) for tick in ticks(y_low, y_high, 4)],
        lines=drawn,
    )


def ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers from low to high, in steps of 1, 2, 2.5 or 5 times a power of ten."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def moving_average(values: np.ndarray, width: int) -> np.ndarray:
    """The mean (N,) of the `width` values around each value; of fewer values at both ends."""
    kernel = np.ones(width)
    return np.convolve(values, kernel, "same") / np.convolve(np.ones(len(values)), kernel, "same")


def _finite(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The finite points, subsampled to `_POINTS`."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    keep = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if len(keep) > _POINTS:
        keep = keep[np.linspace(0, len(keep) - 1, _POINTS).round().astype(int)]
    return x[keep], y[keep]


def _range(values: Sequence[np.ndarray], from_zero: bool = False) -> tuple[float, float]:
    numbers = np.concatenate([*values, np.empty(0)])
    if len(numbers) == 0:
        return 0.0, 1.0
    low, high = float(numbers.min()), float(numbers.max())
    if from_zero:
        low = min(low, 0.0)
        high += 0.05 * (high - low)
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _path(x: np.ndarray, y: np.ndarray) -> str:
    return "M" + "L".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def _number(value: float) -> str:
    """A short tick label: 20k for 20000, 7.5e-4 for 0.00075."""
    if 0 < abs(value) < 0.001:
        return f"{value:.1e}".replace("e-0", "e-").replace(".0e", "e")
    return f"{value / 1000:g}k" if abs(value) >= 10000 else f"{value:g}"

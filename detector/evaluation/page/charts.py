"""Small SVG charts, colored by the style sheet of the page."""

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

COLORS = 8  # line colors of the style sheet, --c0 to --c7
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 8, 40  # margins of a chart, pixels
_MIDDLE = 'text-anchor="middle"'
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
) -> str:
    """A chart of the lines (x, y), with named axes.

    Args:
        size: (width, height) in pixels; the page may scale the chart down.
        smooth: draw each line pale and its moving average on top.
        x_range, y_range: limits of the axes; None: those of the values, with y starting at 0 or below.
        fill: tint the area below the lines.
    """
    width, height = size
    lines = {name: _finite(*line) for name, line in lines.items()}
    x_low, x_high = x_range or _range([x for x, _ in lines.values()])
    y_low, y_high = y_range or _range([y for _, y in lines.values()], from_zero=True)
    inner_width, inner_height = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM

    def across(x):
        return _LEFT + (np.asarray(x) - x_low) / (x_high - x_low) * inner_width

    def down(y):
        return _TOP + (1 - (np.asarray(y) - y_low) / (y_high - y_low)) * inner_height

    parts = []
    for tick in ticks(y_low, y_high, 4):
        y = down(tick)
        parts.append(f'<line class="rule" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(tick)}</text>')
    parts.append(
        f'<text x="{_LEFT + inner_width / 2:.0f}" y="{height - 6}" {_MIDDLE}>{escape(x_name)}</text>'
    )
    turn = f"translate(12 {_TOP + inner_height / 2:.0f}) rotate(-90)"
    parts.append(f'<text transform="{turn}" {_MIDDLE}>{escape(y_name)}</text>')
    for tick in ticks(x_low, x_high, 4):
        parts.append(f'<text x="{across(tick):.1f}" y="{height - 24}" {_MIDDLE}>{_number(tick)}</text>')
    for place, (x, y) in enumerate(lines.values()):
        if len(x) == 0:
            continue
        color = f"var(--c{place % COLORS})"
        if fill:
            closed = f"{_path(across(x), down(y))}V{down(y_low):.1f}H{across(x[0]):.1f}Z"
            parts.append(f'<path class="area" d="{closed}" style="fill:{color}"/>')
        if smooth and len(x) > 12:
            parts.append(f'<path class="raw" d="{_path(across(x), down(y))}" style="stroke:{color}"/>')
            y = moving_average(y, max(3, len(y) // 12))
        parts.append(f'<path d="{_path(across(x), down(y))}" style="stroke:{color}"/>')
    label = f"{y_name} over {x_name}"
    head = f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
    return head + "".join(parts) + "</svg>"


def legend(names: Sequence[str]) -> str:
    """The names of the lines of a chart with their colors."""
    items = (
        f'<span><i style="background:var(--c{place % COLORS})"></i>{escape(name)}</span>'
        for place, name in enumerate(names)
    )
    return f'<div class="legend">{"".join(items)}</div>'


def stacked_bars(rows: Mapping[str, Sequence[int]], parts: Sequence[str]) -> str:
    """One bar of full width for each row, divided in proportion to its counts, and the total count."""
    cells = ["<span></span><span>share</span>", '<span class="count">count</span>']
    for name, counts in rows.items():
        total = sum(counts)
        pieces = ""
        for part, count in zip(parts, counts, strict=True):
            style, title = f"width:{100 * count / max(total, 1):.2f}%", f"{escape(part)}: {count}"
            pieces += f'<i class="{kind_class(part)}" style="{style}" title="{title}"></i>' if count else ""
        bar = f'<div class="bar">{pieces}</div>'
        cells.append(f'<span>{escape(name)}</span>{bar}<span class="count">{total}</span>')
    return f'<div class="bars">{"".join(cells)}</div>'


def kind_class(name: str) -> str:
    """The CSS class of an error type."""
    return "k-" + name.replace(" ", "-")


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

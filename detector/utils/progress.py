"""Progress bars whose figures stay whole in a terminal of 80 columns, and durations as people read them."""

from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

_NAME = 20  # characters of what is counted: with it, bar, count, time left and two figures fit 80 columns


def progress_bar(
    items: Iterable | None = None, *, total: int, unit: str = "image", shown: bool = True, **options: Any
) -> Any:
    """A bar over `items`, or one to be updated by hand, where standard error is a terminal.

    The bar itself gives way in a narrow terminal, not the figures.

    Args:
        total: number of items.
        unit: what they are.
        shown: False: nowhere, as in the processes that do not log.
        options: of tqdm; of `desc` the end is kept.
    """
    fixed = {"disable": None if shown else True, "dynamic_ncols": "ncols" not in options, **options}
    fixed["desc"] = f"{name[-_NAME:]}: " if (name := options.get("desc", "")) else ""
    return tqdm(
        items,
        total=total,
        unit=unit,
        bar_format="{desc}{bar} {unit} {n_fmt}/{total_fmt}, {remaining} left{postfix}",
        **fixed,
    )


def duration(seconds: float) -> str:
    """Minutes and seconds, 0:24 or 12:05, and hours where there are any, 1:02:03."""
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"

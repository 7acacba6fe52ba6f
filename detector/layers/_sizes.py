"""Arguments that are one number for both axes or a pair (rows, columns)."""

from numbers import Integral

import torch

# torch.jit.script knows list and tuple, but not Sequence.
Size = int | list[int] | tuple[int, int]


def as_pair(op: str, name: str, size: Size) -> tuple[int, int]:
    """A size as (rows, columns); integers of numpy are converted.

    Raises:
        ValueError: if it is neither an integer nor a pair of them; the message names the op and the argument.
    """
    if torch.jit.is_scripting():
        return _pair_in_script(size)
    else:  # noqa: RET505  the compiler of torch.jit.script skips this branch only
        return _checked_pair(op, name, size)


def _pair_in_script(size: Size) -> tuple[int, int]:
    """Without checks of the type, which the compiler has made."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, list):
        rows, columns = size
        return rows, columns
    return size


def _checked_pair(op: str, name: str, size: Size) -> tuple[int, int]:
    if type(size) is int:  # the common case, which takes a tenth of the time
        return size, size
    pair = tuple(size) if isinstance(size, list | tuple) else (size, size)
    if len(pair) != 2 or not all(isinstance(number, int | torch.SymInt | Integral) for number in pair):
        raise ValueError(f"{op}: {name} is {size!r}, expected an integer or a pair of them")
    rows, columns = (number if isinstance(number, int | torch.SymInt) else int(number) for number in pair)
    return rows, columns

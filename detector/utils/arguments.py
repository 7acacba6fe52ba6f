"""Checks of what a caller in Python passes."""

import os
import reprlib

from detector.utils.errors import UserError


def check_path(name: str, value: object, expected: str) -> None:
    """Raise a UserError that names the argument where its value is neither text nor a path.

    Args:
        expected: what the path is of, such as "a run folder".
    """
    if not isinstance(value, (str, os.PathLike)):
        raise UserError(f"{name} is {reprlib.repr(value)}, expected the path of {expected}")

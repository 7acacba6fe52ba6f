"""Errors that the user can correct.

Commands print one line for a :class:`UserError` or an `OSError`. Every other exception is a bug and keeps its
traceback.
"""

import os
import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

TIMED_OUT = "DataLoader timed out"  # how torch's message begins

_NO_MEMORY = (
    *("can't allocate memory", "Cannot allocate memory", "out of memory error", "Insufficient memory"),
    "can't start new thread",  # for its stack
    "failed to map segment from shared object",  # of a library that is imported
    *("without setting an exception", "without exception set"),  # SystemError of imports
)

_LONGEST_LINE, _MOST_LINES = 1200, 40  # of a message, so that a person can read it

_REPR = reprlib.Repr()
_REPR.maxlevel = 3  # of lists in one another, which could grow to gigabytes
_REPR.maxstring = _REPR.maxother = 200
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = 30


class UserError(ValueError):
    """The message names what was found, what was expected, and the file, key or argument to change."""

    def __str__(self) -> str:
        return readable(super().__str__())


class ConfigError(UserError):
    """An unknown config key, or a value that is not allowed."""


class DataError(UserError):
    """A file or a data set that cannot be used as it is."""


class MissingPackage(UserError, ImportError):
    """An optional package is not installed; the message says how to install it."""


def readable(message: str) -> str:
    """A message without the middle of very long lines, and without lines after the first 40.

    Quotes from a file may have any length; a line says at its start what was found, and at its end what to
    do.
    """
    lines = message.split("\n")
    if len(message) <= _LONGEST_LINE and len(lines) <= _MOST_LINES:
        return message
    lines = [_without_middle(line) for line in lines[: _MOST_LINES + 1]]
    if len(lines) > _MOST_LINES:
        lines[-1] = "..."
    return "\n".join(lines)


def _without_middle(line: str) -> str:
    left_out = len(line) - _LONGEST_LINE
    if left_out <= 0:
        return line
    start, end = line[: _LONGEST_LINE // 2], line[-_LONGEST_LINE // 2 :]
    return f"{start} ... ({left_out} characters are left out) ... {end}"


def describe_value(value: object) -> str:
    """A value as Python writes it, shortened where it is very long."""
    try:
        text = _REPR.repr(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return f"a {type(value).__name__} of too many digits"
    return text if len(text) <= 2 * _REPR.maxstring else f"{text[: 2 * _REPR.maxstring]} ..."


def check_path(name: str, value: object, expected: str) -> None:
    """Raise a UserError that names the argument where its value is neither text nor a path.

    Args:
        expected: what the path is of, such as "a run folder".
    """
    if not isinstance(value, (str, os.PathLike)):
        raise UserError(f"{name} is {describe_value(value)}, expected the path of {expected}")


def missing_path_message(path: object) -> str:
    """The message that a path does not exist, or that an address such as https://... is not a path."""
    # A table's is below a folder, and pathlib makes one "/" of two.
    if found := re.search(r"(?:^|/)([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", str(path)):
        return f"{found[1]}://{found[2]} is an address, expected a local file: download it first"
    return f"{path} does not exist"


def shortened(texts: Sequence[str], most: int = 10, between: str = ", ") -> str:
    """The first `most` of many texts, and how many more there are."""
    more = [f"... and {len(texts) - most} more"] if len(texts) > most else []
    return between.join([*texts[:most], *more])


@dataclass
class ErrorList:
    """All mistakes in a file, so that the user can correct them together."""

    path: Path
    found: list[tuple[int, str]] = field(default_factory=list)  # line, or 0 of a file without lines; what

    def add(self, line: int, what: object) -> None:
        self.found.append((line, str(what)))

    def check(self) -> None:
        """Raise a DataError with the first mistakes if there are any."""
        if not self.found:
            return
        places = ((f", line {line}" if line else "", what) for line, what in sorted(self.found))
        lines = [f"{self.path}{place}: {what}" for place, what in places]
        raise DataError(shortened(lines, between="\n"))


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, which torch, Pillow and OpenCV raise under several names, is a lack of CPU memory."""
    while error:
        if isinstance(error, MemoryError) or any(text in str(error) for text in _NO_MEMORY):
            return True
        # The original error if its clean-up failed; not one that was hidden by `from None`.
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def counted(number: int, one: str, several: str) -> str:
    """A number with its noun: "1 box", "2 boxes"."""
    return f"{number} {one if number == 1 else several}"


# Modules that each extra of pyproject.toml installs. `detector.layers` needs none of them.
EXTRAS = {
    "train": ("torchvision", "yacs", "yaml", "numpy", "PIL", "tqdm", "jinja2", "markupsafe", "tensorboard"),
    "opencv": ("cv2",),
    "review": ("starlette", "uvicorn"),
}


def missing_package(error: ModuleNotFoundError) -> MissingPackage | None:
    """The message for the user if the module that `error` misses is part of an extra, else None."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if module in modules:
            return MissingPackage(f"{module} is not installed: pip install 'detector-wsod[{extra}]'")
    return None


def worker_failure(error: BaseException) -> UserError | None:
    """The message for the user if torch's `error` is about a dead or stuck DataLoader worker, else None.

    Torch raises it in the main process at any time, also in the middle of a training step.
    """
    text = str(error).partition("\n")[0].rstrip(". ")
    if not isinstance(error, RuntimeError):
        return None
    if text.startswith(TIMED_OUT):
        return UserError(
            f"the processes that read images gave no batch in time ({text}): one of them was stopped or has "
            "too little memory to go on, or the disk does not answer. DATASETS.WORKERS 0 reads in the main "
            "process and shows where it waits"
        )
    if text.startswith("DataLoader worker (pid"):
        return UserError(
            f"a process that reads images has died ({text}). Most likely there was too little memory, or "
            "shared memory (/dev/shm; in a container see docker run --shm-size): set DATASETS.WORKERS lower; "
            "0 needs no further process"
        )
    return None

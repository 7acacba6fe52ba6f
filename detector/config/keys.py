"""What the declaration of a key says, and how a value is converted and checked by it."""

import ast
import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from detector.utils.errors import ConfigError, UserError, describe_value
from detector.utils.files import user_path

Training = Literal["weak", "student"]  # of the weak detector; of the Faster R-CNN of self-training
Result = Literal["weak_test", "student_test", "pseudo_boxes"]

ALWAYS: tuple[Training, ...] = ("weak", "student")
WEAK: tuple[Training, ...] = ("weak",)
TESTS: tuple[Result, ...] = ("weak_test", "student_test")
PSEUDO_BOXES: tuple[Result, ...] = ("pseudo_boxes",)


@dataclass(frozen=True)
class Key:
    """The declaration of one key; a value has the type of the default.

    Numbers, also those of a list, are at least `least`, more than `over`, at most `most` and less than
    `below`. A string is one of `choices`, if there are any. `empty` is a word for the empty list, so that
    a command needs no brackets, which some shells expand. In a `path`, "~" is the home folder, and $NAME an
    environment variable.

    `resume` names the trainings that may be resumed with another value: of a key that changes where things
    are, how fast it runs, what is tested, or how the remaining steps are scheduled, but not the steps that
    were already taken. `affects` names the stored results that are not those of another value.
    """

    name: str
    default: Any
    meaning: str
    choices: tuple[str, ...] = ()
    least: float = 0
    over: float = -math.inf
    most: float = math.inf
    below: float = math.inf
    empty: str = ""
    path: bool = False
    resume: tuple[Training, ...] = ()
    affects: tuple[Result, ...] = TESTS

    @property
    def allowed(self) -> str:
        """The choices or the bounds in words; "" if every value of the type is allowed."""
        if self.choices:
            return "one of " + ", ".join(map(repr, self.choices))
        first = self.default[0] if isinstance(self.default, tuple) else self.default
        if isinstance(first, (bool, str)):
            return ""
        low = f"more than {self.over}" if self.over > -math.inf else f"at least {self.least}"
        high = f"at most {self.most}" if self.most < math.inf else f"less than {self.below}"
        bounds = [low] * (low != "at least -inf") + [high] * (high != "less than inf")
        return " and ".join(bounds)

    def read(self, value: Any) -> Any:
        """The value in the type of the default; ConfigError if that is not possible."""
        if self.empty and value == self.empty:
            return ()
        try:
            found = convert(value, self.default)
            return user_path(found, variables=True) if self.path else found
        except UserError as error:
            raise ConfigError(f"{self.name} is {describe_value(value)}: {error}") from None
        except TypeError:
            word = f", or {self.empty}" if self.empty else ""
            expected = f"{describe_type(self.default)}{word}"
            raise ConfigError(f"{self.name} is {describe_value(value)}, expected {expected}") from None

    def check(self, value: Any) -> None:
        """Raise ConfigError if the value, which has the right type, is not allowed."""
        if self.choices:
            nearest = get_close_matches(value.lower(), self.choices, n=1, cutoff=0.5)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            require(value in self.choices, self.name, value, f"{self.allowed}{hint}")
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, (bool, str)):
                continue
            require(abs(number) < 2**63, self.name, value, "a finite number, less than 2**63")
            inside = self.least <= number <= self.most and self.over < number < self.below
            require(inside, self.name, value, self.allowed)


def key(default: Any, meaning: str, **options: Any) -> Any:
    """A field of a settings dataclass: its default and, as of :class:`Key`, what else the key declares."""
    return dataclasses.field(default=default, metadata={"key": Key("", default, meaning, **options)})


weak_key = partial(key, affects=("weak_test",))  # a student has none, or one of its own
student_key = partial(key, affects=("student_test",))
training_key = partial(key, affects=())  # of training, speed or pictures: the results of a test stay equal


def declared_keys(settings: type, prefix: str = "") -> Iterator[Key]:
    """The keys of a settings dataclass and of those in it, named as in a config file: `SOLVER.MAX_ITER`."""
    types = get_type_hints(settings)
    for field in dataclasses.fields(settings):
        name, kind = f"{prefix}{field.name.upper()}", types[field.name]
        if dataclasses.is_dataclass(kind):
            yield from declared_keys(kind, f"{name}.")  # type: ignore[arg-type]
        else:
            choices = get_args(kind) if get_origin(kind) is Literal else ()
            yield dataclasses.replace(field.metadata["key"], name=name, choices=choices)


def require(holds: bool, key: str, value: Any, expected: str) -> None:
    """Raise ConfigError, which names the key and its value, where something does not hold."""
    if not holds:
        raise ConfigError(f"{key} is {describe_value(value)}, expected {expected}")


def convert(value: Any, default: Any) -> Any:
    """`value` as the type of `default`, a string, bool, number or non-empty tuple of one of these.

    A string, such as a word of the command line, is parsed if `default` is not one. A path is a string, and
    numbers may be numpy's.

    Raises:
        TypeError: it is of another type.
    """
    if isinstance(value, (Path, np.generic)):
        value = str(value) if isinstance(value, Path) else value.item()
    # A word of the command line, or YAML's reading of 1e-3, which has no dot.
    if isinstance(value, str) and not isinstance(default, str):
        of_names = isinstance(default, tuple) and isinstance(default[0], str)
        value = _parse_names(value) if of_names else _parse_literal(value)
    if isinstance(default, tuple):
        if not isinstance(value, (list, tuple)):
            raise TypeError
        return tuple(convert(element, default[0]) for element in value)
    if isinstance(default, float) and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise TypeError from None
    if type(value) is not type(default):
        raise TypeError
    return value


def describe_type(default: Any) -> str:
    """What a value of the default's type is, with an example."""
    names = {bool: "True or False", int: "an integer", float: "a number", str: "a string"}
    if isinstance(default, tuple):
        quotes = " (in quotes where YAML reads it as a number or as yes or no)"
        hint = quotes if isinstance(default[0], str) else ""
        return f"a list, each {names[type(default[0])]}{hint}, like {list(default[:3])}"
    return f"{names[type(default)]}, like {default!r}"


def _parse_literal(word: str) -> Any:
    try:
        return ast.literal_eval(word.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise TypeError from None


def _parse_names(word: str) -> Sequence[Any]:
    """Names as Python writes a list of them, or without quotes: `[cat, dog]` and `cat,dog`."""
    try:
        value = _parse_literal(word)
    except TypeError:
        value = None
    if isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value):
        return value
    inner = word.strip()
    if inner[:1] + inner[-1:] in ("[]", "()"):
        inner = inner[1:-1]
    elif "," not in inner:  # one word is more likely a mistake, such as the name of a file, than one class
        raise TypeError
    names = [name.strip() for name in inner.removesuffix(",").split(",")]
    if any(not name or set(name) & set("'\"[]()") for name in names):
        raise TypeError
    return names

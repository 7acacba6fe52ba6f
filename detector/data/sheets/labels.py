"""Reads class names from the cells of a spreadsheet, as people and programs write them."""

import ast
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from difflib import SequenceMatcher
from itertools import combinations

from detector.data.sheets.words import LABELS, SCORES, header_key
from detector.utils.errors import counted

_NOTHING = {"", "nan", "null", "n/a", "na", "<na>", "\\n", "-", "[]", "{}", "()"}  # a cell of no label
_LISTS = ("[]", "{}", "()")
_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_MARK = re.compile(r"^(?:[-*•·▪]\s+|#(?=[^\W\d]))")  # before each line of a list; of a hashtag
_SURE = 0.5  # a number beside a class from which a picture shows it
_OWN_NAMES = (
    "displayname",
    "title",
    "label",
    "class",
    "category",
    "name",
    "value",
)  # keys of a label in an object
# Keys of objects that hold those of labels, in exports of Zooniverse, Label Studio and Labelbox.
_INSIDE = ("choice", "classifications", "answers", "answer", "result", "annotations", "region_attributes")
_NUMPY_LIST = re.compile(r"""['"]\s+['"]""")
_MOST_COMPARED = 200  # classes, each with each other
_MOST_PAIRS = 3  # of classes that are nearly alike that a note shows
_MOSTLY = 0.9  # of the names of a column that end in a score
_SCORED = re.compile(  # apple:0.93, apple=1, apple (0.93), apple 93 %
    r"(.*[^\W\d].*?)(?:\s*[:=]\s*(?=[01]$)|\s*[:=]\s*|\s+|\s*\()((?<=[:=])[01]|(?<=[:=] )[01]|"
    r"[01]?[.,]\d+|\d+(?:[.,]\d+)?\s*%)\)?"
)
_COUNTED_BEFORE = re.compile(r"(\d+)\s*[xX\u00d7]\s+(\D.*)")  # 2x cat
_COUNTED_AFTER = re.compile(r"(.*[^\W\d].*?)(?:\s+[x\u00d7]\s?(\d+)|\s*\((\d+)\)|\s*[:=]\s*(\d{1,3}))")
# cat x2, cat (2), cat: 2; before a name only where all names have it: 2 cats
_NUMBER_BEFORE = re.compile(r"(\d{1,3})\s+(\D.*)")
_ONE_BOXED = re.compile(r"([^\W\d]\S*)(?:\s+-?\d+(?:\.\d+)?){4}(?!\S)")  # cat 10 20 110 95
_BOXED = re.compile(rf"(?:\s*{_ONE_BOXED.pattern})+\s*")
_KEY = re.compile(r"""["'](\w+)["']\s*:""")


def split_labels(cells: Sequence[str], *, several: bool) -> tuple[list[list[str]], list[str]]:
    """The names in each cell of a column, and notes for the user on how cells were split.

    `;`, `|` and line breaks separate names, and so do lists of Python, JSON and numpy. `,` and `/` may be
    part of a name, as in "tench, Tinca tinca": they separate if other cells have what is between them, too.
    Blanks separate only if the cells look like sets of words that other cells combine differently or have
    alone.

    Args:
        several: the header says that a cell may have several names, such as "tags".
    """
    if any(cells) and all(map(_BOXED.fullmatch, filter(None, cells))):
        boxed = [[match[1] for match in _ONE_BOXED.finditer(cell)] for cell in cells]
        return boxed, ["numbers behind each name are taken for its box, which is not read"]
    split = [_in_list(cell) if is_list(cell) else re.split(r"[;|\n]", cell) for cell in cells]
    notes = []
    alone = not any(re.search(r"[,;|\n]", cell) for cell in cells if not is_list(cell))
    several_words = several and alone  # beside other separators, blanks are part of names
    blank = ((" ", True),) if several_words else ()
    for separator, strict in (
        (",", False),
        ("/", True),
        ("+", True),
        ("&", True),
        ("-", True),
        (" und ", True),
        (" and ", True),
        *blank,
    ):
        loose = {
            name.strip()
            for cell, names in zip(cells, split, strict=True)
            if not is_list(cell)
            for name in names
        }
        joined = sorted(name for name in loose if separator in name)
        if not joined:
            continue
        parts = {name: _parts(name, separator) for name in joined}
        if _is_separator(parts, loose - {*joined}, strict=strict, several=several):
            split = [
                names if is_list(cell) else [part for name in names for part in _parts(name, separator)]
                for cell, names in zip(cells, split, strict=True)
            ]
            if strict:
                notes.append(f"{separator!r} separates labels, as in {joined[0]!r}")
        elif not strict:
            notes.append(f"{joined[0]!r} is one label; ';' would separate several")
    texts = {" ".join(name.split()) for names in split for name in names}
    if several_words and _are_words(texts):
        split = [[word for name in names for word in name.split()] for names in split]
        longest = max(texts, key=lambda text: (text.count(" "), text))
        notes.append(f"blanks separate labels, as in {longest!r}; names with blanks need ';' between them")
    if any(header_key(key) in SCORES for cell in cells if is_list(cell) for key in _KEY.findall(cell)):
        notes.append(f"scores beside classes: from {_SURE} or {_SURE:.0%} on, a picture shows the class")
    return [[name for text in names if (name := _clean(text))] for names in split], notes


def without_scores(split: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[str]]:
    """The names without scores where these differ for the same names, as in `cat:0.93, dog:0.05`; and a note.

    Names with less than 0.5 are left out. Numbers of one name alone, as in `milk 1.5%` and `milk 3.5%`, may
    tell classes apart.
    """
    scored = {name: match for cell in split for name in cell if (match := _SCORED.fullmatch(name))}
    names = {name for cell in split for name in cell}
    if not 1 < len({match[1] for match in scored.values()}) < len(scored) >= _MOSTLY * len(names):
        return [[*cell] for cell in split], []
    kept = {name: match[1].strip() for name, match in scored.items() if _score(match[2]) >= _SURE}
    plain = names - scored.keys()
    return [[kept.get(name, name) for name in cell if name in kept or name in plain] for cell in split], [
        f"scores behind names, as in {min(scored)!r}: from {_SURE} or {_SURE:.0%} on, a picture shows the "
        "class"
    ]


def _score(text: str) -> float:
    found = float(text.rstrip(" %").replace(",", "."))
    return found / 100 if text.endswith("%") else found


def without_counts(split: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[str]]:
    """The names without how many objects there are, as in `cat x2`, `2x cat` and `cat (2)`; and a note.

    A number behind a name, as in `BMW x5`, is a count only if one of these names is alone as well, or has 1.
    """
    names = {name for cell in split for name in cell}
    all_before = [_NUMBER_BEFORE.fullmatch(name) for name in names]
    form = (
        _NUMBER_BEFORE
        if len({match[1] for match in all_before if match}) > 1 and all(all_before)
        else _COUNTED_BEFORE
    )
    before = {name: (match[2], match[1]) for name in names if (match := form.fullmatch(name))}
    found = ((name, _COUNTED_AFTER.fullmatch(name)) for name in names)
    after = {name: (match[1], match[match.lastindex or 2]) for name, match in found if match}
    plain = {name.casefold() for name in (names - after.keys()) | {name for name, _ in before.values()}}
    if any(name.casefold() in plain or count == "1" for name, count in after.values()):
        before |= after
    if not before:
        return [[*cell] for cell in split], []
    known = {name for name, _ in before.values()}
    example = min(before)
    note = (
        f"numbers such as that of {example!r} are taken for counts of objects: the class is "
        f"{before[example][0]!r} ({counted(len(before), 'name', 'names')})"
    )

    def class_of(name: str) -> str:
        label = before.get(name, (name, ""))[0]
        return label[:-1] if form is _NUMBER_BEFORE and label[-1:] == "s" and label[:-1] in known else label

    none = {name for name, (_, count) in before.items() if int(count) == 0}
    return [[*dict.fromkeys(class_of(name) for name in cell if name not in none)] for cell in split], [note]


def is_list(cell: str) -> bool:
    """Whether a cell is a list or an object as a program prints it."""
    return len(cell) > 1 and cell[0] + cell[-1] in _LISTS


def _in_list(cell: str) -> list[str]:
    if _NUMPY_LIST.search(cell):  # ['cat' 'dog'], which Python reads as one text
        return [first or second for first, second in _QUOTED.findall(cell)]
    for read in (json.loads, ast.literal_eval):
        try:
            return list(_strings(read(cell)))
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    quoted = [first or second for first, second in _QUOTED.findall(cell)]
    return quoted or cell[1:-1].split(",")


def _strings(value: object) -> Iterable[str]:
    """The names in a value.

    In objects of Label Studio, only those of `choices` or `rectanglelabels`; in {"crack": 1, "rust": 0} those
    whose value is true, or a number from 0.5 on.
    """
    if isinstance(value, dict):
        scores = [entry for key, entry in value.items() if header_key(str(key)) in SCORES]
        # More than 1 is in percent, as Rekognition writes it.
        low = any(isinstance(x, int | float) and (x / 100 if x > 1 else x) < _SURE for x in scores)
        if low and _own_keys(value):
            return
        inside = [value[key] for key in _INSIDE if isinstance(value.get(key), str | list | dict)]
        if inside:
            yield from _strings(next(filter(None, inside), ""))
            return
        named = [entry for key, entry in value.items() if str(key).endswith(("labels", "choices"))]
        if not named and isinstance(value.get("value"), list | dict):
            named = [value["value"]]
        named = named or [value[key] for key in _own_keys(value)][:1]
        if not named and all(isinstance(entry, bool | int | float) for entry in value.values()):
            yield from (str(key) for key, entry in value.items() if entry >= _SURE)
        for entry in named or [entry for entry in value.values() if isinstance(entry, str | dict | list)]:
            yield from _strings(entry)
    elif isinstance(value, (list, tuple, set)):
        for entry in value:
            yield from _strings(entry)
    elif value is not None:
        yield str(value)


def _own_keys(value: dict[object, object]) -> list[object]:
    """The keys with the name of a label in its object, the best first: `Name` of Rekognition, too."""
    keys = {str(key).casefold(): key for key, entry in value.items() if isinstance(entry, str)}
    own = [keys[name] for name in _OWN_NAMES if name in keys]
    of_labels = {key: LABELS.index(name) for name, key in keys.items() if name in LABELS}
    return own or sorted(of_labels, key=lambda key: of_labels[key])


def _parts(name: str, separator: str) -> list[str]:
    return [part.strip() for part in name.split(separator)]


def _is_separator(
    parts: dict[str, list[str]], alone: Collection[str], *, strict: bool, several: bool
) -> bool:
    if strict:
        return all({*words} <= {*alone} for words in parts.values())
    if any(part.isdecimal() for words in parts.values() for part in words) and not all(
        part.isdecimal() for words in parts.values() for part in words
    ):
        return False  # Anas crecca Linnaeus, 1758
    uses = Counter(part for words in parts.values() for part in {*words})
    shared = any(count > 1 or part in alone for part, count in uses.items() if part)
    return shared or several or len(parts) == 1


def _are_words(texts: Collection[str]) -> bool:
    """Whether texts such as "clear primary water" are sets of words, not names such as "big dog"."""
    cells = [text.split() for text in texts if text]
    words = {word for cell in cells for word in cell}
    lengths = {len(cell) for cell in cells}
    return max(lengths, default=0) > 2 and len(lengths) > 1 and 2 * len(words) <= 3 * len(cells)


def _clean(name: str) -> str:
    text = " ".join(_MARK.sub("", name.strip()).strip("\"'").split())
    return "" if text.casefold() in _NOTHING else text


def join_spellings(counts: Counter[str]) -> tuple[dict[str, str], list[str]]:
    """The spelling to use for each label, where some differ only in capitals, and notes for the user.

    The most frequent spelling replaces the others. Names that are nearly alike, such as scratch and
    scratches, stay two classes; a note says so.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        groups[unicodedata.normalize("NFC", name).casefold()].append(name)
    notes = [
        f"{_with_counts(others, counts)} {'is' if len(others) == 1 else 'are'} taken for {best!r} "
        f"({counts[best]})"
        for best, *others in groups.values()
        if others
    ]
    first = sorted(names[0] for names in groups.values())
    total = {names[0]: sum(counts[name] for name in names) for names in groups.values()}
    compared = combinations(first, 2) if len(first) <= _MOST_COMPARED else ()
    pairs = [(a, b) for a, b in compared if _are_alike(a.casefold(), b.casefold())]
    notes += [
        f"{_with_counts([a], total)} and {_with_counts([b], total)} stay two classes: are they one?"
        for a, b in pairs[:_MOST_PAIRS]
    ]
    if (more := len(pairs) - _MOST_PAIRS) > 0:
        notes.append(
            f"so do {more} more {'pairs' if more > 1 else 'pair'} of classes with names nearly alike"
        )
    return {name: names[0] for names in groups.values() for name in names}, notes


def _with_counts(names: Iterable[str], counts: Counter[str] | dict[str, int]) -> str:
    return ", ".join(f"{name!r} ({counts[name]})" for name in names)


def _are_alike(a: str, b: str) -> bool:
    plain = [re.sub(r"[\W_]+", "", text) for text in (a, b)]
    if not all(plain):  # of signs alone, as emoji are
        return False
    if plain[0] == plain[1]:
        return True
    short, long = sorted(plain, key=len)
    if min(map(len, plain)) < 4 or _ends_in_number(a) or _ends_in_number(b):
        return False
    return (long in (f"{short}s", f"{short}es", f"{short}n", f"{short}en")) or (
        len(short) > 5 and SequenceMatcher(None, short, long).ratio() > 0.9
    )


def _ends_in_number(text: str) -> bool:
    return text[-1:].isdigit()

"""What the cells of one column of a spreadsheet look like: yes and no, counts, tags, numbers."""

import re
from collections.abc import Sequence
from itertools import pairwise

from detector.data.pictures import IMAGE_SUFFIXES
from detector.data.sheets.words import MAYBE, NO, YES, header_key
from detector.data.sources.splits import split_of

_MOSTLY = 0.9  # of the cells of a column that are of one kind, where the others are mistakes
_REMARK = re.compile(r"(x|yes|ja|oui|no|nein|non|1|0|✓|✔)\s*\((.*)\)")
_COVER = re.compile(r"[r+.]|[1-5][abm]?")
_AS_TEXT = re.compile(r"-?\d*[.,]?\d+(e-?\d+)?", re.IGNORECASE)
_PERCENT = re.compile(r"[<>~]?\s*\d+([.,]\d+)?\s*%")


def flag(cell: str) -> bool | None:
    """Whether a cell of the column of a class says that the picture shows it; None: neither yes nor no.

    Numbers from 2 on are counts of objects.
    """
    text = cell.casefold()
    if (remark := _REMARK.fullmatch(text)) and "?" not in remark[2]:  # x (behind)
        text = remark[1]
    if (number := text.removesuffix(".0")).isdecimal():
        return int(number) > 0
    return True if text in YES else False if text in NO else None


def is_file_name(cell: str) -> bool:
    return cell.lower().endswith(IMAGE_SUFFIXES)


def are_splits(cells: Sequence[str]) -> bool:
    """Whether a column without a header has splits, such as those of Google: TRAIN, TEST, UNASSIGNED."""
    found = {cell for cell in cells if cell and cell.casefold() != "unassigned"}
    return 0 < len(found) < 6 and all(map(split_of, found)) and all(cells)


def are_counts(cells: Sequence[str]) -> bool:
    """Whether a column has small numbers of objects, of which some are 0 or missing."""
    numbers = [cell.removesuffix(".0") for cell in cells]
    whole = all(not cell or (cell.isdecimal() and len(cell) < 4) for cell in numbers)
    none = sum(cell.strip("0") == "" for cell in numbers)
    return whole and len(cells) > none >= 0.2 * len(cells)


def are_tags(cells: Sequence[str]) -> bool:
    """Whether cells have several words or names, with separators between, that come again and again."""
    filled = [cell for cell in cells if cell]
    parts = [part.strip() for cell in filled for part in re.split(r"[,;|\n]", cell) if part.strip()]
    return len(parts) > 1.05 * len(filled) and are_repeated_words(parts)


def marks(cells: Sequence[str], header: str) -> list[str]:
    """The cells of the column of a class; those with the name of the class, beside empty ones, say yes."""
    key = header_key(header)
    return ["x" if cell and key and header_key(cell) == key else cell for cell in cells]


def are_flags(cells: Sequence[str], mostly: float = _MOSTLY) -> bool:
    """Whether cells say yes or no; `mostly` is the share of those that do of those that are not empty."""
    found = [cell.casefold() for cell in cells if cell]
    known = sum(cell in YES or cell in NO or cell in MAYBE for cell in found)
    return known >= mostly * len(found) and any(
        cell in YES or cell in ("0", "0.0", "false") for cell in found
    )


def are_scores(cells: Sequence[str]) -> bool:
    """Whether a column has numbers with fractions, or codes of cover such as + and 2a of Braun-Blanquet."""
    filled = [cell for cell in cells if cell]
    fractions = are_numbers(filled) and not all(map(_is_whole, filled))
    return bool(filled) and (are_cover(filled) or fractions or are_percent(filled))


def are_cover(cells: Sequence[str]) -> bool:
    """Whether cells are codes of Braun-Blanquet, not numbers alone."""
    return all(map(_COVER.fullmatch, cells)) and not all(map(str.isdecimal, cells))


def are_percent(cells: Sequence[str]) -> bool:
    return all(cell == "0" or _PERCENT.fullmatch(cell) for cell in cells)


def _is_whole(cell: str) -> bool:
    return number(cell).is_integer()


def are_alike(cells: Sequence[str]) -> bool:
    """Whether all rows have the same in a column, so that it tells no picture from another."""
    return len(cells) > 1 and len({*cells}) == 1


def are_repeated_words(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell]
    with_letters = sum(any(map(str.isalpha, cell)) for cell in filled)
    return with_letters >= _MOSTLY * len(filled) and 2 * len(set(filled)) <= len(filled)


def is_index(cells: Sequence[str], header: str) -> bool:
    """Whether a column counts its rows, as pandas writes it."""
    whole = [int(cell) for cell in cells if cell.isdecimal()]
    return (
        len(whole) == len(cells) > 1
        and header_key(header) in ("", "index", "unnamed0", "nr", "no", "id")
        and all(b == a + 1 for a, b in pairwise(whole))
    )


def are_numbers(cells: Sequence[str]) -> bool:
    return all(_AS_TEXT.fullmatch(cell) for cell in cells if cell)


def number(cell: str) -> float:
    return float(cell.replace(",", ".")) if cell else 0.0

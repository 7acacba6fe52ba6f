"""Finds what the cells of columns of one class each say where they are not plain yes and no or counts."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from detector.data.sheets.cells import are_cover, are_numbers, are_percent, flag, number
from detector.data.sheets.words import CROSSES, MISSING, NO, TICKS, YES, denial

SURE = 0.5  # a number between 0 and 1 from which a picture shows the class
_NONE = 0.2  # share of cells with 0 or nothing from which numbers are amounts, not scores of a model

Answers = Mapping[int, Mapping[str, str]]  # of each column, "1" or "0" in the place of a cell


def find_answers(columns: Mapping[int, Sequence[str]]) -> dict[int, dict[str, str]]:
    """The answers in columns that share a mark, or two texts of which one negates the other.

    `v` in several columns and nothing else in them is a mark; crosses say no beside ticks or circles.

    Args:
        columns: the cells of the columns that may be of one class each.
    """
    alike: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, cells in columns.items():
        alike[tuple(sorted({cell for cell in cells if cell}))].append(i)
    answers: dict[int, dict[str, str]] = {}
    for found, group in alike.items():
        blank = all("" in columns[i] for i in group)
        if no := denial(found):
            answers |= {i: {cell: "0" if cell == no else "1" for cell in found} for i in group}
        elif len(found) == 1 and blank and len(group) > 1 and flag(found[0]) is None:
            answers |= {i: {found[0]: "1"} for i in group}
    used = {cell.casefold() for of_column in columns.values() for cell in of_column}
    if used & TICKS and (crosses := used & CROSSES):
        for i, of_column in columns.items():
            if {*map(str.casefold, of_column)} <= {*TICKS, *CROSSES, *YES, ""}:
                own = {cell for cell in of_column if cell}
                answers[i] = {cell: "0" if cell.casefold() in crosses else "1" for cell in own}
    if used & MISSING:
        says = "?" if used & NO - {""} else "0"
        for i, of_column in columns.items():
            if {*map(str.casefold, of_column)} <= YES | NO | MISSING:
                answers[i] = {cell: says for cell in of_column if cell.casefold() in MISSING}
    return answers


def answers_of_scores(columns: Mapping[int, Sequence[str]]) -> tuple[dict[int, dict[str, str]], str]:
    """The answers in columns of scores, of amounts, or of codes of cover, and a note for the user.

    Numbers between 0 and 1 are scores. Larger ones are amounts only where many are 0 or missing: a model
    gives each class some score. Returns nothing where it is not clear.
    """
    filled = [cell for cells in columns.values() for cell in cells if cell]
    example = max(filled, key=len, default="")
    if not filled:
        return {}, ""
    none = 1 - sum(bool(cell.strip("0.,% -")) for cell in filled) / sum(map(len, columns.values()))
    if are_cover(filled):
        told = f"codes of cover such as {example!r}: each but '.' says that the picture shows the class"
        least = 0.0
    elif are_numbers(filled) and min(map(number, filled)) >= 0 and max(map(number, filled)) <= 1:
        told = f"scores such as {example!r}: from {SURE} on, a picture shows the class"
        least = SURE
    elif are_percent(filled) and not none:
        told = f"scores such as {example!r}: from {SURE:.0%} on, a picture shows the class"
        least = 100 * SURE
    elif (are_numbers(filled) or are_percent(filled)) and none >= _NONE:
        told = f"amounts such as {example!r}: each above 0 says that the picture shows the class"
        least = 0.0
    else:
        return {}, ""
    answers = {i: {cell: _answer(cell, least) for cell in {*cells}} for i, cells in columns.items()}
    share = sum(answers[i][cell] == "1" for i, cells in columns.items() for cell in cells)
    if not share:
        return {}, ""
    return answers, f"{told}; if that is wrong, write 1 where it shows it, else 0"


def _answer(cell: str, least: float) -> str:
    if not cell.strip(".-"):
        return "0"
    if not are_numbers([cell.rstrip(" %")]):
        return "1"  # a code of cover, or less than 1 %
    found = number(cell.rstrip(" %"))
    return "1" if found > 0 and found >= least else "0"


def in_words(cells: Sequence[str], answers: Mapping[str, str]) -> list[str]:
    """The cells with answers in their places."""
    return [answers.get(cell, cell) for cell in cells]

"""Finds which columns of a spreadsheet hold names of classes, and which yes and no of one class each."""

import re
from collections import Counter
from collections.abc import Sequence

from detector.data.sheets.cells import (
    are_alike,
    are_counts,
    are_flags,
    are_numbers,
    are_repeated_words,
    are_scores,
    are_tags,
    is_index,
    marks,
)
from detector.data.sheets.words import (
    CODES,
    LABELS,
    NAMES_OF_SPECIES,
    RANKS,
    THINGS,
    VAGUE,
    header_key,
    is_about,
    is_no_class,
    words_of,
)

_QUESTION = re.compile(r".+[/[](?=[^/[]+$)")  # before the name of a class, as in `symptoms/rust`
_SOME = 0.25  # of the cells of the column of a class beside others that say yes or no


def find_label_columns(
    rest: Sequence[int], below: Sequence[Sequence[str]], header: Sequence[str], keys: Sequence[str]
) -> tuple[list[int], list[int], list[int]]:
    """The columns of class names, and of one class each; where there are none, which may be them."""

    flags = [i for i in rest if header[i] and are_flags(marks(below[i], header[i]))]
    if len(flags) > 1:  # in one of a rare class a single odd cell weighs much; it is an error of its own
        less = {i for i in rest if header[i] and are_flags(marks(below[i], header[i]), _SOME)}
        flags = [i for i in rest if i in flags or (i in less and not is_about(header[i]))]
    if asked := _of_one_question(flags, header):
        return [], asked, []
    own = [i for i in flags if {header_key(cell) for cell in below[i] if cell} == {header_key(header[i])}]
    if len(own) > 1:  # a column for each choice, as of SurveyMonkey, before the `Response` to other questions
        return [], [i for i in flags if i in own or not is_about(header[i])], []
    texts = [i for i in rest if i not in flags and not is_index(below[i], header[i])]
    if known := _columns_of_labels([i for i in texts if not are_alike(below[i])], below, header, keys):
        return known, [], []
    about = [i for i in texts if not (are_numbers(below[i]) or (header[i] and are_scores(below[i])))]
    words = [i for i in about if not is_about(header[i]) and not are_alike(below[i])]
    words = words or [i for i in about if are_tags(below[i]) or not header[i]]
    tags = [i for i in words if are_tags(below[i])]
    codes = [i for i in rest if header[i] and not is_about(header[i]) and are_scores(below[i])]
    if len(codes) > 1 and not flags and not any(i in tags or are_repeated_words(below[i]) for i in words):
        return [], [], []
    if len(flags) == 1 and keys[flags[0]] in LABELS:
        return flags, [], []  # 0 and 1 are the names of two classes
    counts = [i for i in texts if header[i] and not is_about(header[i]) and are_counts(below[i])]
    classes = [i for i in rest if i in (*flags, *counts) and not is_no_class(header[i])]
    alone = len(classes) == 1 and (
        len(tags) == 1 or (words and are_alike(below[classes[0]])) or is_about(header[classes[0]])
    )
    if (flags or len(counts) > 1) and classes and not alone:
        return [], classes, []
    if not any(header):  # columns of labels have some of the same
        first = {*map(str.strip, re.split(r"[,;|]", ",".join(below[(words or texts or rest)[0]])))}
        return [i for i in words or texts if first & {*below[i]} - {""}] or words or texts, [], []
    # Of remarks, dates and classes only the last are words that come again and again.
    again = [i for i in words if i in tags or are_repeated_words(below[i])]
    told = [i for i in again if _names_labels(header[i])]
    things = [i for i in again if words_of(header[i]) & THINGS]
    for each in (words, told, tags, again, things):
        if len({_base(keys[i]) for i in each}) == 1:
            return each, [], []
    if len(texts) == 1 and texts[0] not in codes:
        return texts, [], []
    if known := _columns_of_labels(texts, below, header, keys):  # the same in all lines
        return known, [], []
    return [], [], again or [i for i in words if _may_be_classes(below[i])]


def _base(key: str) -> str:
    return re.sub(r"\d+$", "", key)  # of tag1 and tag2 both


def _columns_of_labels(
    texts: Sequence[int], below: Sequence[Sequence[str]], header: Sequence[str], keys: Sequence[str]
) -> list[int]:
    """The columns whose headers say that they have labels; of several those with the best."""
    if known := [i for i in texts if _base(keys[i]) in LABELS]:
        # Of label and class_id the one with words counts.
        words = [i for i in known if not are_numbers(below[i])] or known
        if RANKS & {*keys}:
            words = [i for i in words if keys[i] in NAMES_OF_SPECIES] or words
        best = min((_base(keys[i]) for i in words), key=LABELS.index)
        return [i for i in words if _base(keys[i]) == best]
    told = [i for i in texts if _names_labels(header[i]) and are_repeated_words(below[i])]
    told = [i for i in told if not words_of(header[i]) & CODES] or told
    return told if len({_base(keys[i]) for i in told}) == 1 else []


def _of_one_question(flags: Sequence[int], header: Sequence[str]) -> list[int]:
    """Of columns of yes and no those of the classes of one question: `symptoms/rust`, `symptoms/mildew`."""
    questions = Counter(mark[0] for i in flags if (mark := _QUESTION.match(header[i])))
    if len(questions) != 1 or questions.total() < 2:
        return []
    return [i for i in flags if header[i].startswith(next(iter(questions)))]


def _names_labels(header: str) -> bool:
    """Whether one of the words of a header says that its cells are labels: `question__species`."""
    words = words_of(header)
    return bool(words & ({*LABELS} - VAGUE)) and not is_about(" ".join(words - {"name", "names", "id"}))


def is_class(cells: Sequence[str], its_key: str) -> bool:
    """Whether a column has yes and no, or counts, of the class in its header."""
    return its_key not in ("", *LABELS) and (are_flags(marks(cells, its_key)) or are_counts(cells))


def _may_be_classes(cells: Sequence[str]) -> bool:
    """Whether cells have letters, as dates do not, and some of them are the same."""
    return len({*cells}) < len(cells) and any(map(str.isalpha, "".join(cells)))

"""Guesses why names match no picture: a common prefix or suffix, or another folder."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from detector.data.picture_index import PictureIndex
from detector.data.pictures import IMAGE_SUFFIXES

_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)")
_LEAST = 3  # names that a guess has to explain
_TRIED = 20  # names from which guesses are made


def find_affixes(
    names: Sequence[str], index: PictureIndex, taken: set[tuple[Path, Path]]
) -> tuple[str, str, list[Path]] | None:
    """A prefix and a suffix that all these names lack: `scan_` and `_a` where "1" means scan_1_a.jpg.

    Returns:
        prefix, suffix and the picture of each name, all different and none in `taken`; None: no such pair.
    """
    stems = [_stem(name) for name in names]
    if len({*stems}) < _LEAST:
        return None
    used = {file for file, _ in taken}
    files: dict[str, list[Path]] = {}
    for file in index.files:
        if file not in used:
            files.setdefault(file.stem, []).append(file)
    if all(map(str.isdecimal, stems)):  # 7 means DSC_0007.jpg if all names of pictures are alike but for it
        numbered = [(_NUMBERED.fullmatch(file.stem), file) for file in index.files if file not in used]
        around = {(match[1], match[3]) for match, _ in numbered if match}
        by_number = {int(match[2]): file for match, file in numbered if match}
        numbers = [int(stem) for stem in stems]
        if len(around) == 1 and len(by_number) == len(numbered) and {*numbers} <= by_number.keys():
            return *around.pop(), [by_number[number] for number in numbers]
    guesses: Counter[tuple[str, str]] = Counter()
    for stem in stems[:_TRIED]:
        for known in files:
            before, inside, after = known.partition(stem)
            if inside:
                guesses[before, after] += 1
    for (before, after), _ in guesses.most_common(3):
        found = [files.get(f"{before}{stem}{after}", []) for stem in stems]
        # Digits must not be joined: "1" does not mean 21.jpg.
        joins_digits = any(
            text[-1:].isdigit() and stem[:1].isdigit() and text.strip("0")
            for text, stem in ((before, stems[0]), (stems[0], after))
        )
        if not joins_digits and all(len(matches) == 1 for matches in found):
            return before, after, [matches[0] for matches in found]
    return None


def hints_on_missing(names: Sequence[str], index: PictureIndex, folder: Path, table: Path) -> list[str]:
    """Hints about missing pictures: the folder that has them, or the names of existing pictures."""
    if not names:
        return []
    hints = []
    bases = {PurePosixPath(name.replace("\\", "/")).name.casefold() for name in names}
    beside = [path for around in {folder.parent, table.resolve().parent} for path in around.iterdir()]
    for place in sorted({folder.parent, *(path for path in beside if path.is_dir() and path != folder)}):
        if place.name.startswith("."):
            continue
        there = {path.name.casefold() for path in place.iterdir()}
        if (both := len(bases & (there | {PurePosixPath(name).stem for name in there}))) >= 0.5 * len(bases):
            whole = "they are all" if both == len(bases) else f"{both} of them are"
            hints.append(f"{whole} in {place}: pass that folder instead of {folder}")
    if not hints and index.names:
        hints.append(f"the first of the pictures are {', '.join(index.names[:3])}")
    if not index.names:
        hints.append(f"{folder} has no pictures: looked for {', '.join(IMAGE_SUFFIXES)}")
    return [*hints, "to leave these lines out, add --skip-missing to the command"]


def _stem(name: str) -> str:
    path = PurePosixPath(name.replace("\\", "/"))
    return path.stem if path.suffix.lower() in IMAGE_SUFFIXES else path.name

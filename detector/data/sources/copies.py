"""Copies of pictures, by their content."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from detector.utils.files import file_digest


def find_copies(files: Sequence[Path]) -> dict[Path, str]:
    """The digest of each file that has the same content as another one; only files of equal size are read.

    A link is not a copy: its target is the same file.
    """
    by_size: dict[int, list[Path]] = defaultdict(list)
    for file in {file.resolve(): file for file in files}.values():
        try:
            by_size[file.stat().st_size].append(file)
        except OSError:
            continue  # missing files are reported elsewhere
    by_content: dict[str, list[Path]] = defaultdict(list)
    for same_size in by_size.values():
        for file in same_size if len(same_size) > 1 else ():
            by_content[file_digest(file)].append(file)
    return {file: digest for digest, same in by_content.items() if len(same) > 1 for file in same}

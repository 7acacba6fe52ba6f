"""What is wrong with a file, told at once."""

from dataclasses import dataclass, field
from pathlib import Path

from detector.utils.errors import DataError, shortened


@dataclass
class Mistakes:
    """Everything that is wrong with a file, so that the user can correct it at once."""

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

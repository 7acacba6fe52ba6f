"""Folders that a command makes to write to."""

from pathlib import Path

from detector.utils.errors import UserError


def make_folder(folder: Path) -> list[Path]:
    """Make a folder and those around it; returns those that were missing, the innermost first.

    Raises:
        UserError: there is a file in place of one of them; names it.
    """
    around = [folder, *folder.parents]
    missing = [path for path in around if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        file = next((path for path in around if path.exists() and not path.is_dir()), folder)
        place = "" if file == folder else f"{folder}: "
        raise UserError(f"{place}{file} is a file, expected a folder to write to: name another one") from None
    return missing

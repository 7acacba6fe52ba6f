"""The logger of the package: console output that does not break progress bars, and a log file."""

import logging
import sys
import warnings
from logging.handlers import MemoryHandler
from pathlib import Path

from detector.utils.errors import readable
from detector.utils.files import check_appendable
from detector.utils.ranks import is_main, rank

# Levels beside those of logging: lines for each few steps, and those that say how far long work has come.
STEP, PROGRESS = 15, 25


class _ConsoleHandler(logging.Handler):
    """Writes above progress bars, and marks warnings."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return f"warning: {text}" if record.levelno == logging.WARNING else text

    def emit(self, record: logging.LogRecord) -> None:
        tqdm = sys.modules.get("tqdm")  # not loaded: there are no progress bars
        write = tqdm.tqdm.write if tqdm else print
        write(self.format(record), file=sys.stderr)


class _FileHandler(logging.FileHandler):
    """Prints no traceback if the disk is full: writing the results reports that."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def setup_logging(path: Path | None = None, console: int | None = None) -> logging.Logger:
    """The package's logger: some lines to standard error, everything to the end of the file `path`.

    What was logged before, since a call without `path`, goes to the file first. Of several processes, only
    the main one logs everything; the others print errors, with their rank. Warnings are logged too. Another
    call replaces the handlers of the last one.

    Args:
        console: least level of what standard error shows; None: that of the last call, or INFO.

    Raises:
        UserError: `path` is a link or not a regular file.
    """
    logger = logging.getLogger("detector")
    file = None
    if path is not None and is_main():
        check_appendable(path, "log file")
        file = _FileHandler(path, encoding="utf-8")
        file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for level, name in ((STEP, "STEP"), (PROGRESS, "PROGRESS")):
        logging.addLevelName(level, name)
    for handler in list(logger.handlers):
        if console is None and isinstance(handler, _ConsoleHandler) and is_main():
            console = handler.level
        logger.removeHandler(handler)
        if isinstance(handler, MemoryHandler):
            handler.setTarget(file)
        handler.close()  # a MemoryHandler passes on what it holds
    logger.setLevel(logging.DEBUG)
    shown = _ConsoleHandler((console or logging.INFO) if is_main() else logging.ERROR)
    if not is_main():
        shown.setFormatter(logging.Formatter(f"rank {rank()}: %(message)s"))
    logger.addHandler(shown)
    if path is None:
        logger.addHandler(MemoryHandler(1000, flushLevel=sys.maxsize))  # a file may follow
    elif file is not None:
        logger.addHandler(file)
    warnings.showwarning = lambda message, *_, **__: logger.warning("%s", readable(str(message)))
    return logger

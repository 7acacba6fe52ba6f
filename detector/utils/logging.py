"""The logger of the package: console output that does not break progress bars, and a log file."""

import logging
import sys
import warnings
from logging.handlers import MemoryHandler
from pathlib import Path

from detector.utils.distributed import is_main, rank
from detector.utils.errors import readable
from detector.utils.files import check_appendable


class _ConsoleHandler(logging.Handler):
    """Writes above progress bars."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm = sys.modules.get("tqdm")  # not loaded: there are no progress bars
        write = tqdm.tqdm.write if tqdm else print
        write(self.format(record), file=sys.stderr)


class _FileHandler(logging.FileHandler):
    """Prints no traceback if the disk is full: writing the results reports that."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def setup_logging(path: Path | None = None) -> logging.Logger:
    """The package's logger: INFO and above to standard error, everything to the end of the file `path`.

    What was logged before, since a call without `path`, goes to the file first. Of several processes, only
    the main one logs everything; the others print errors, with their rank. Warnings are logged too. Another
    call replaces the handlers of the last one.

    Raises:
        UserError: `path` is a link or not a regular file.
    """
    logger = logging.getLogger("detector")
    file = None
    if path is not None and is_main():
        check_appendable(path, "log file")
        file = _FileHandler(path, encoding="utf-8")
        file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        if isinstance(handler, MemoryHandler):
            handler.setTarget(file)
        handler.close()  # a MemoryHandler passes on what it holds
    logger.setLevel(logging.DEBUG)
    console = _ConsoleHandler(logging.INFO if is_main() else logging.ERROR)
    if not is_main():
        console.setFormatter(logging.Formatter(f"rank {rank()}: %(message)s"))
    logger.addHandler(console)
    if path is None:
        logger.addHandler(MemoryHandler(1000, flushLevel=sys.maxsize))  # a file may follow
    elif file is not None:
        logger.addHandler(file)
    warnings.showwarning = lambda message, *_, **__: logger.warning("warning: %s", readable(str(message)))
    return logger

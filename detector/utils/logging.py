"""One logger for the console and for the run folder's log, which leaves progress bars whole."""

import logging
import sys
import warnings
from pathlib import Path

from tqdm import tqdm

from detector.utils.distributed import is_main, rank


class _ConsoleHandler(logging.Handler):
    """Writes above the progress bars that are on the screen."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm.write(self.format(record), file=sys.stderr)


def setup_logging(path: Path | None = None) -> logging.Logger:
    """The package's logger: INFO and above to standard error, everything to the end of the file `path`.

    Of several processes only the main one says all; the others say errors, with their rank. Warnings go the
    same way. Called again, it replaces what was set up before. The library only logs; tools call this.
    """
    logger = logging.getLogger("detector")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(logging.DEBUG)
    console = _ConsoleHandler(logging.INFO if is_main() else logging.ERROR)
    if not is_main():
        console.setFormatter(logging.Formatter(f"rank {rank()}: %(message)s"))
    logger.addHandler(console)
    if path is not None and is_main():
        file = logging.FileHandler(path, encoding="utf-8")
        file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(file)
    warnings.showwarning = lambda message, *_, **__: logger.warning("warning: %s", message)
    return logger

"""What the commands in tools/ share: their arguments, and how they fail."""

import argparse
import logging
from collections.abc import Callable

from detector.utils.distributed import is_lost_process, is_main, leave_to_another
from detector.utils.logging import setup_logging

logger = logging.getLogger(__name__)


def config_parser(description: str) -> argparse.ArgumentParser:
    """A parser of --config-file FILE [KEY VALUE ...]; read it with `parse_intermixed_args`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--config-file", required=True, metavar="FILE", help="a file of configs/")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY VALUE",
        help="keys of the config to change, see detector/config.py",
    )
    return parser


def run_command(command: Callable[[], None]) -> int:
    """Run a command; its exit status: 0, 2 after one line on what the user can mend, 130 after Ctrl-C.

    It is 1 after one line on another process that has gone.
    """
    setup_logging()  # for what goes wrong before the command names its log file
    try:
        command()
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        logger.debug("where the error came from", exc_info=True)  # for the log file only
        if not leave_to_another():
            logger.error("error: %s", _message(error))
        return 2
    except KeyboardInterrupt:
        if is_main():
            logger.error("interrupted")
        return 130
    except RuntimeError as error:
        if not is_lost_process(error):
            raise
        logger.debug("where the error came from", exc_info=True)
        logger.error(
            "error: another process has stopped or does not answer: %s", str(error).partition(". ")[0]
        )
        return 1
    return 0


def _message(error: Exception) -> str:
    """The error's text; of one that a loader's worker process sent, without the worker's traceback."""
    text = str(error).strip()
    if text.startswith("Caught ") and "DataLoader worker" in text:
        return text.splitlines()[-1].partition(": ")[2]
    return text

"""What the commands in tools/ share: their arguments, and how they fail."""

import argparse
import logging
from collections.abc import Callable

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
    """Run a command; its exit status: 0, 2 after one line on what the user can mend, 130 after Ctrl-C."""
    setup_logging()  # for what goes wrong before the command names its log file
    try:
        command()
    except (ValueError, OSError, ImportError) as error:
        logger.debug("where the error came from", exc_info=True)  # for the log file only
        logger.error("error: %s", _message(error))
        return 2
    except KeyboardInterrupt:
        logger.error("interrupted")
        return 130
    return 0


def _message(error: Exception) -> str:
    """The error's text; of one that a loader's worker process sent, without the worker's traceback."""
    text = str(error).strip()
    if text.startswith("Caught ") and "DataLoader worker" in text:
        return text.splitlines()[-1].partition(": ")[2]
    return text

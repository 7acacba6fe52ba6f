"""Shared by the commands: arguments, exit statuses, and the number of cores to use.

torch takes seconds to import, and is not needed to answer a mistake: only its own errors ask for it.
"""

import argparse
import io
import logging
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from detector.utils.errors import UserError, is_out_of_memory, missing_package, readable, worker_failure
from detector.utils.interrupts import output_closed, quiet_pipe
from detector.utils.logging import setup_logging
from detector.utils.ranks import is_main, local_rank

logger = logging.getLogger(__name__)


def command_parser(command: str, description: str | None) -> argparse.ArgumentParser:
    """The parser of a command; its help shows the description, which has an example, as it is."""
    return argparse.ArgumentParser(
        prog=command,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def config_parser(command: str, description: str | None) -> argparse.ArgumentParser:
    """A parser of [CONFIG] [KEY VALUE ...]; read it with :func:`parse_config`."""
    parser = command_parser(command, description)
    parser.add_argument(
        "config", nargs="?", metavar="CONFIG", help="a .yaml file, a recipe's name, or a run folder"
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],  # else argparse calls them required
        metavar="KEY VALUE",
        help="config keys to change (docs/config.md); KEY=VALUE is the same",
    )
    parser.add_argument("--config-file", metavar="FILE", help=argparse.SUPPRESS)  # the same as CONFIG
    return parser


def model_words(model: str) -> list[str]:
    """--model as words of another command."""
    return [] if model == "auto" else ["--model", model]


def teacher_words(options: argparse.Namespace) -> list[str]:
    """--teacher as KEY VALUE words."""
    teacher = getattr(options, "teacher", None)
    return ["DATASETS.TEACHER", teacher] if teacher else []


def parse_config(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, *, required: bool = True
) -> argparse.Namespace:
    """The options of a :func:`config_parser`, with `config_file` and `overrides`."""
    options = parser.parse_intermixed_args(arguments)
    if options.config_file is None:
        options.config_file = options.config
    elif options.config is not None:
        options.overrides.insert(0, options.config)
    del options.config
    if required and options.config_file is None:
        parser.error("CONFIG is missing: a .yaml file, a recipe's name such as toybox_pcl, or a run folder")
    return options


def next_step(*words: object) -> None:
    """Name the command that usually comes next."""
    if is_main():
        texts = [
            f"./{word}" if isinstance(word, Path) and str(word)[0] == "-" else str(word) for word in words
        ]
        print(f"next: {shlex.join(texts)}")


def run_command(command: Callable[[], object]) -> int:
    """Run a command and return its exit status.

    0: success. 2: a :class:`UserError` or an `OSError`, which the user can correct, a package is not
    installed, a GPU has too little memory, or a worker process of a DataLoader has died; one line is printed,
    and the traceback goes to the log file, if there is one. 130: Ctrl-C. 1: another process of the same
    torchrun has stopped, or there is a bug, whose traceback is printed and logged.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a class may have a name that the terminal cannot encode
            stream.reconfigure(errors="backslashreplace")
    setup_logging(console=logging.INFO)  # for errors before the command opens its log file
    with quiet_pipe():
        return _run(command)


def _run(command: Callable[[], object]) -> int:
    try:
        command()
    except (UserError, OSError) as error:
        if isinstance(error, BrokenPipeError) and output_closed():
            raise
        logger.debug("traceback of the error:", exc_info=True)
        if not _leave_to_another():
            logger.error("error: %s", readable(str(error).strip()) or type(error).__name__)
        return 2
    except KeyboardInterrupt:
        if is_main():
            logger.error("interrupted")
        return 130
    except Exception as error:
        if _is_lost_process(error):
            logger.debug("traceback of the error:", exc_info=True)
            first_sentence = str(error).partition(". ")[0]
            logger.error("error: another process has stopped or does not answer: %s", first_sentence)
            return 1
        if failure := _correctable(error):
            logger.debug("traceback of the error:", exc_info=True)
            logger.error("error: %s", failure)
            return 2
        logger.exception("internal error, please report it with this traceback:")
        return 1
    return 0


def _leave_to_another() -> bool:
    if local_rank() == 0:
        return False
    from detector.utils.distributed import leave_to_another

    return leave_to_another()


def _is_lost_process(error: Exception) -> bool:
    if "torch" not in sys.modules:
        return False
    from detector.utils.distributed import is_lost_process

    return is_lost_process(error)


def _correctable(error: Exception) -> UserError | None:
    """A UserError for an error of another type that is not a bug; None: it is a bug."""
    if isinstance(error, ModuleNotFoundError):
        return missing_package(error)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        needed, _, others = str(error).partition(" is free. ")  # what follows lists all processes
        return UserError(
            f"{needed}{' is free' if others else ''}. Start again with a lower SOLVER.IMAGES_PER_BATCH, for "
            "a student SELF_TRAIN.IMAGES_PER_BATCH; docs/troubleshooting.md, out of memory, has more"
        )
    if is_out_of_memory(error):
        return UserError(
            f"there is too little memory ({str(error).strip() or 'MemoryError'}). Start again with lower "
            "SOLVER.IMAGES_PER_BATCH, DATASETS.WORKERS or INPUT.MAX_SIZE, for a student "
            "SELF_TRAIN.IMAGES_PER_BATCH; docs/troubleshooting.md, out of memory, has more"
        )
    return worker_failure(error)


def usable_cores() -> int:
    """The number of cores that a container or a scheduler leaves to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

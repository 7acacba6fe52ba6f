"""The command `detector`: which of its commands runs."""

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from detector.cli import data, runs
from detector.utils.command_line import command_parser, config_parser, parse_config, run_command
from detector.utils.files import check_utf8, user_path
from detector.utils.interrupts import quiet_interrupt


class Command(NamedTuple):
    """A command, see detector/cli/__init__.py."""

    define: Callable[[argparse.ArgumentParser], runs.Run]
    takes_config: bool = False

    @property
    def help(self) -> str:
        return inspect.getdoc(self.define) or ""


COMMANDS = {  # in the order in which they are used
    "init": Command(data.init),
    "propose": Command(data.propose, takes_config=True),
    "check": Command(data.check, takes_config=True),
    "train": Command(runs.train, takes_config=True),
    "test": Command(runs.test, takes_config=True),
    "self-train": Command(runs.self_train, takes_config=True),
    "predict": Command(runs.predict),
    "label": Command(data.label),
    "suggest": Command(data.suggest, takes_config=True),
    "review-import": Command(data.review_import),
    "report": Command(runs.report),
    "export": Command(runs.export),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names, and return its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words or words[0] not in COMMANDS:
        return _show_commands(words)
    name, *words = words
    command = COMMANDS[name]
    make_parser = config_parser if command.takes_config else command_parser
    parser = make_parser(f"detector {name}", command.help)
    run = command.define(parser)
    words = [_at_home(word) for word in words]
    if command.takes_config:
        options = parse_config(parser, words, required=name != "propose")
    else:
        options = parser.parse_intermixed_args(words)
    return run_command(lambda: _import_and_run(run, options, words))


def _at_home(word: str) -> str:
    """The word with the home folder for a "~" that the shell left, as it does in --output=~/found."""
    option, equals, path = word.partition("=~/")
    if equals and option.startswith("--"):
        return f"{option}={user_path('~/' + path)}"
    return user_path(word) if word.startswith("~/") else word


def _import_and_run(run: runs.Run, options: argparse.Namespace, words: Sequence[str]) -> None:
    for word in words:  # before any work: reports, JSON files and configs cannot hold such a name
        check_utf8(word)
    with quiet_interrupt():  # Ctrl-C during these imports, which take seconds; --help does without them
        import detector.api  # noqa: F401
    run(options)


def _show_commands(words: Sequence[str]) -> int:
    summaries = {name: re.split("[.:]", command.help)[0] for name, command in COMMANDS.items()}
    listed = "\n".join(f"  {name:<15}{summary}" for name, summary in summaries.items())
    parser = argparse.ArgumentParser(
        prog="detector",
        description="Train an object detector from image labels alone.",
        epilog=f"commands:\n{listed}\n\n`detector COMMAND --help` shows the arguments and an example.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of those below")
    if words:
        parser.parse_args(words)  # there is no known command: prints help or an error, and exits
    parser.print_help()
    return 2

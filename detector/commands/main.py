"""The command `detector`: which of its commands runs."""

import argparse
import importlib
import inspect
import itertools
import shlex
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from detector import __version__
from detector.utils.files import check_utf8, user_path
from detector.utils.interrupts import quiet_interrupt, quiet_pipe


class Command(NamedTuple):
    """A command; its arguments are in arguments.py, and the module of its name in this package has `run`."""

    summary: str
    takes_config: bool = False  # [CONFIG] [KEY VALUE ...]


COMMANDS = {  # in the order in which they are used
    "demo": Command(
        "Draw a small data set, train a detector on its tags in three minutes, and open the report"
    ),
    "init": Command("Write a config for a folder of your own pictures"),
    "propose": Command("Make the proposals of a data set or a folder", takes_config=True),
    "convert-proposals": Command(
        "Convert proposals of other projects to the file of a data set", takes_config=True
    ),
    "teacher": Command("Let a model of Hugging Face find boxes in the training images", takes_config=True),
    "check": Command("Look at a data set before training on it", takes_config=True),
    "train": Command("Train a detector from image labels", takes_config=True),
    "test": Command("Measure a trained detector", takes_config=True),
    "self-train": Command(
        "Train a student on what a weak detector finds in its training split, and measure it",
        takes_config=True,
    ),
    "predict": Command("Find objects in your own images"),
    "label": Command(
        "Find boxes for images whose tags are known, for a person to correct in a labeling tool"
    ),
    "suggest": Command(
        "Suggest the training images from whose boxes the detector would learn most", takes_config=True
    ),
    "review": Command("Correct boxes in the browser, on a page of this machine", takes_config=True),
    "review-import": Command("Keep the boxes that a person has corrected or accepted"),
    "report": Command("Write an HTML page about a run"),
    "export": Command(
        "Write a trained network to a file that runs without the code of its model, and check it"
    ),
    "env": Command("Print the versions and the devices that this program uses, for a report of a bug"),
}


# What other programs call them.
_OTHER_NAMES = {
    **dict.fromkeys(("eval", "evaluate", "val", "validate", "benchmark"), "test"),
    **dict.fromkeys(("detect", "infer", "inference", "run"), "predict"),
    **dict.fromkeys(("fit", "finetune", "resume"), "train"),
    **dict.fromkeys(("new", "create", "setup", "config"), "init"),
    **dict.fromkeys(("annotate", "autolabel"), "label"),
    **dict.fromkeys(("version", "checks", "settings"), "env"),
    "onnx": "export",
    "import": "review-import",
}

GROUPS = {
    "first, from tagged pictures to boxes:": ("demo", "init", "train", "predict", "report"),
    "the steps of train --to detector, one by one:": ("propose", "check", "test", "self-train"),
    "later, boxes that a person corrects (docs/labeling.md):": (
        *("label", "suggest", "review", "review-import"),
    ),
    "with boxes from elsewhere (docs/teachers.md, docs/proposals.md):": ("teacher", "convert-proposals"),
    "and:": ("export", "env"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names, and return its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] in (["--version"], ["-V"]):
        with quiet_pipe():
            print(f"detector {__version__}")
        return 0
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if not words or words[0] not in COMMANDS:
        with quiet_pipe():
            return _show_commands(words)
    name, *words = words
    with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
        from detector.utils.command_line import run_command
    return run_command(lambda: _run(name, words))


def _run(name: str, words: Sequence[str]) -> None:
    with quiet_interrupt():
        from detector.commands import arguments, early_checks
        from detector.utils.command_line import command_parser, config_parser, parse_config

    takes_config = COMMANDS[name].takes_config
    make_parser = config_parser if takes_config else command_parser
    add_arguments = getattr(arguments, name.replace("-", "_"))
    parser = make_parser(f"detector {name}", inspect.getdoc(add_arguments))
    add_arguments(parser)
    words = [_at_home(word) for word in words]
    _check_options(parser, words)
    if takes_config:
        options = parse_config(parser, words, required=name != "propose")
    else:
        options, others = parser.parse_known_intermixed_args(words)
        if others:
            parser.error(early_checks.unexpected(name, options, others))
    for word in words:  # before any work: reports, JSON files and configs cannot hold such a name
        check_utf8(word)
    early_checks.check(name, options)
    with quiet_interrupt():  # torch is imported here
        module = importlib.import_module(f"detector.commands.{name.replace('-', '_')}")
    module.run(options)


def _check_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Exit at an option that there is not, with what was probably meant."""
    from detector.config import KEYS
    from detector.config.yaml_files import other_name

    known = parser._option_string_actions
    for word in itertools.takewhile(lambda word: word != "--", words):
        name = word.partition("=")[0]
        if word[:1] in ("\N{EN DASH}", "\N{EM DASH}"):
            parser.error(f"{word} begins with a long dash, expected two short ones: --{word[1:].lstrip('-')}")
        if not name.startswith("--") or any(option.startswith(name) for option in known):
            continue
        if key := other_name(name) or (name[2:].upper() if name[2:].upper() in KEYS else None):
            parser.error(f"there is no option {word}; here it is the key {key}, written without --")
        parser.error(f"there is no option {name}{_meant(name, known)}; {parser.prog} --help lists all")


def _meant(word: str, known: Iterable[str]) -> str:
    alike = get_close_matches(word.lower(), known, n=2)
    return f" (did you mean {' or '.join(alike)}?)" if alike else ""


def _at_home(word: str) -> str:
    """The word with the home folder for a "~" that the shell left, as it does in --output=~/found."""
    option, equals, path = word.partition("=~/")
    if equals and option.startswith("--"):
        return f"{option}={user_path('~/' + path)}"
    return user_path(word) if word.startswith("~/") else word


def _show_commands(words: Sequence[str]) -> int:
    listed = "\n\n".join(
        f"{title}\n" + "\n".join(f"  {name:<19}{COMMANDS[name].summary}" for name in names)
        for title, names in GROUPS.items()
    )
    parser = argparse.ArgumentParser(
        prog="detector",
        description="Train an object detector from image labels alone.",
        epilog=f"{listed}\n\n`detector COMMAND --help` shows the arguments and an example;\n"
        "docs/quick_start.md is about the first hour.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", metavar="COMMAND", help="one of those below")
    if words and words[0] not in ("-h", "--help"):
        parser.error(_unknown_command(words))
    parser.print_help()
    return 0 if words else 2


def _unknown_command(words: Sequence[str]) -> str:
    """What to say where the first word is no command."""
    first, *others = words
    if later := next((word for word in others if word in COMMANDS), None):
        rest = [word for word in words if word != later]
        return f"the command comes first: {shlex.join(['detector', later, *rest])}"
    ours = _OTHER_NAMES.get(first.lower())
    hint = f" (did you mean {ours}?)" if ours else _meant(first, COMMANDS)
    return f"there is no command {first}{hint}; detector --help lists all"

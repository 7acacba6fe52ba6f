"""The command `detector`: which of its commands runs."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

# What each command is for; `detector NAME` is detector/cli/NAME.py. In the order in which they are used.
COMMANDS = {
    "init": "write a config for a folder of your own pictures",
    "propose": "find the boxes that a detector chooses among",
    "check": "look at a data set before training on it",
    "train": "train a detector from image labels",
    "test": "measure a trained detector",
    "self-train": "train a Faster R-CNN on what a weak detector finds",
    "predict": "find objects in images, folders and videos",
    "label": "find boxes for images whose tags are known, to be corrected",
    "suggest": "choose the images to box next",
    "review-import": "keep the boxes that a person has corrected",
    "report": "write an HTML page about a run",
    "export": "write a network to a file that runs without this package",
}


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words and words[0] in COMMANDS:
        command = import_module(f"detector.cli.{words[0].replace('-', '_')}")
        return command.main(words[1:])
    listed = "\n".join(f"  {name:<15}{what}" for name, what in COMMANDS.items())
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

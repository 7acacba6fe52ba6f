"""Renders the data set Doom, game scenes with true boxes, into a new folder in the layout of PASCAL VOC.

pip install vizdoom
python benchmarks/make_doom.py datasets/doom
"""

import argparse
import sys
from pathlib import Path

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from doom import render_doom

    from detector.utils.command_line import run_command, usable_cores


def main() -> int:
    return run_command(run)


def run() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=Path, help="the folder to make")
    parser.add_argument(
        "--seed", type=int, default=0, help="another seed renders another data set (default: 0)"
    )
    parser.add_argument(
        "--train", type=int, default=1200, help="images of the split trainval (default: 1200)"
    )
    parser.add_argument("--test", type=int, default=400, help="images of the split test (default: 400)")
    parser.add_argument("--workers", type=int, default=usable_cores(), help="processes (default: one a core)")
    arguments = parser.parse_args()
    if min(arguments.seed, arguments.train, arguments.test, arguments.workers - 1) < 0:
        parser.error("--seed, --train and --test must be at least 0, --workers at least 1")
    render_doom(
        arguments.root,
        seed=arguments.seed,
        train=arguments.train,
        test=arguments.test,
        workers=arguments.workers,
    )
    print(f"{arguments.root}: {arguments.train} images in trainval, {arguments.test} in test")


if __name__ == "__main__":
    sys.exit(main())

"""Draws Toybox, the embedded data set, into a new folder in the layout of PASCAL VOC.

python tools/make_toybox.py datasets/toybox
"""

import argparse
import sys
from pathlib import Path

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from detector.data.toybox import draw_toybox
    from detector.utils.command_line import run_command


def main() -> int:
    return run_command(run)


def run() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=Path, help="the folder to make")
    parser.add_argument(
        "--seed", type=int, default=0, help="another seed draws another data set (default: 0)"
    )
    parser.add_argument("--train", type=int, default=600, help="images of the split trainval (default: 600)")
    parser.add_argument("--test", type=int, default=200, help="images of the split test (default: 200)")
    arguments = parser.parse_args()
    if min(arguments.seed, arguments.train, arguments.test) < 0:
        parser.error("--seed, --train and --test must be at least 0")
    draw_toybox(arguments.root, seed=arguments.seed, train=arguments.train, test=arguments.test)
    print(f"{arguments.root}: {arguments.train} images in trainval, {arguments.test} in test")


if __name__ == "__main__":
    sys.exit(main())

"""Measure a trained detector: the command `detector test`."""

import sys

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from detector.commands.main import main

if __name__ == "__main__":
    sys.exit(main(["test", *sys.argv[1:]]))

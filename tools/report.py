"""Write an HTML page about a run: the command `detector report`."""

import sys

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from detector.cli.report import main

if __name__ == "__main__":
    sys.exit(main())

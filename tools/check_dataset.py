"""Look at a data set before training on it: the command `detector check`."""

import sys

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from detector.cli.check import main

if __name__ == "__main__":
    sys.exit(main())

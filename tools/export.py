"""Write a network to a file that runs without this package: the command `detector export`."""

import sys

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from detector.cli.export import main

if __name__ == "__main__":
    sys.exit(main())

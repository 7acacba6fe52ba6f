"""Make the proposals of a data set or of a folder of images: the command `detector propose`."""

import sys

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from detector.cli.propose import main

if __name__ == "__main__":
    sys.exit(main())

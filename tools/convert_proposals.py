"""Convert proposals of other projects: the command `detector convert-proposals`."""

import sys

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from detector.commands.main import main

if __name__ == "__main__":
    sys.exit(main(["convert-proposals", *sys.argv[1:]]))

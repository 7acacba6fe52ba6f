"""`python -m detector`: the same as the command `detector`."""

import sys

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from detector.commands.main import main

if __name__ == "__main__":
    sys.exit(main())

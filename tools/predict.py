"""Find objects in images, folders and videos: the command `detector predict`."""

import sys

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from detector.cli.predict import main

if __name__ == "__main__":
    sys.exit(main())

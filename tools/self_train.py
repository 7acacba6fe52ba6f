"""Train a Faster R-CNN on what a weak detector finds: the command `detector self-train`."""

import sys

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from detector.cli.self_train import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m detector`: the same as the command `detector`."""

import sys
from collections.abc import Sequence

from detector.utils.interrupts import quiet_interrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; see :func:`detector.commands.main.main`.

    What takes seconds to import is imported here, not above: a worker that is spawned imports this file
    before it can end with its parent.
    """
    with quiet_interrupt():
        from detector.commands.main import main as run
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())

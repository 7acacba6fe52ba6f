"""Write an HTML report of a run: metrics, error types, pictures, training curves and stream attention.

    python tools/report.py RUN [--output FILE] [KEY VALUE ...]

RUN is the run folder of tools/train_net.py, after tools/test_net.py. The page, RUN/report.html unless
--output names another file, is self-contained. See docs/report.md.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from detector.api.report import run
    from detector.utils.command_line import run_command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write an HTML report of a run.")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, trained and tested")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="config keys to change")
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: RUN/report.html")
    options = parser.parse_intermixed_args(arguments)
    return run_command(lambda: run(options.run, options.overrides, options.output))


if __name__ == "__main__":
    sys.exit(main())

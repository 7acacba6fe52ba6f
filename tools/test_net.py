"""Measure a trained detector: AP on the test split, CorLoc on the training split.

    python tools/test_net.py --config-file configs/toybox_pcl.yaml [--weights FILE] [KEY VALUE ...]

Writes metrics.json, detections.npz and pictures/ to the run folder: the one that holds the config file, if
that is the config.yaml of a run, else OUTPUT_DIR. The weights are its model_final.pt, or FILE. With other
weights, or keys that change the results, they go to a folder below RUN/tests instead, so that the run's own
metrics stay. Rerun the same command to resume a test that was killed. Under torchrun the processes share the
images. AP and CorLoc are computed on the images that have ground-truth boxes; the AP of the image-level
labels needs none.
"""

import sys
from collections.abc import Sequence

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from detector.api.testing import run
    from detector.utils.command_line import config_parser, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = config_parser("Measure a trained detector: AP on the test split, CorLoc on the training split.")
    parser.add_argument("--weights", metavar="FILE", help="a checkpoint; default: OUTPUT_DIR/model_final.pt")
    options = parser.parse_intermixed_args(arguments)
    return run_command(lambda: run(options.config_file, options.overrides, options.weights))


if __name__ == "__main__":
    sys.exit(main())

"""Measure a trained detector: AP on the test split, CorLoc on the training split.

    python tools/test_net.py --config-file configs/toybox_pcl.yaml [--weights FILE] [KEY VALUE ...]

Writes metrics.json, detections.npz and pictures/ to the run folder, OUTPUT_DIR. The weights are its
model_final.pt, or FILE. What is found goes to results/ as it comes: the same command goes on where a killed
one ended. Under torchrun each process tests a part of the images. AP and CorLoc speak of the images that have
true boxes; the AP of the image-level labels needs none.
"""

import sys
from collections.abc import Sequence

from detector.api.testing import run
from detector.utils.command_line import config_parser, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = config_parser("Measure a trained detector: AP on the test split, CorLoc on the training split.")
    parser.add_argument("--weights", metavar="FILE", help="a checkpoint; default: OUTPUT_DIR/model_final.pt")
    options = parser.parse_intermixed_args(arguments)
    return run_command(lambda: run(options.config_file, options.overrides, options.weights))


if __name__ == "__main__":
    sys.exit(main())

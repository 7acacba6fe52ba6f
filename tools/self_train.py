"""Train a Faster R-CNN on what a weak detector finds in its training split, and measure it the same way.

    python tools/self_train.py --config-file configs/doom_pcl_lite0.yaml [--weights FILE] [--resume] \
        [KEY VALUE ...]

The weak detector is OUTPUT_DIR/model_final.pt, or FILE. Everything goes to OUTPUT_DIR/self_train: pseudo/, a
data set in VOC's layout (with COCO's JSON) whose boxes are the detector's; log, events and checkpoints as of
train_net.py; metrics.json as of test_net.py, beside the weak detector's. The keys SELF_TRAIN decide; the
images' labels choose the classes, true boxes are read for the figures alone.
"""

import sys
from collections.abc import Sequence

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from detector.api.self_training import run
    from detector.utils.command_line import config_parser, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = config_parser("Train a Faster R-CNN on what a weak detector finds.")
    parser.add_argument("--weights", metavar="FILE", help="a checkpoint; default: OUTPUT_DIR/model_final.pt")
    parser.add_argument("--resume", action="store_true", help="go on from the folder's newest checkpoint")
    options = parser.parse_intermixed_args(arguments)
    return run_command(lambda: run(options.config_file, options.overrides, options.weights, options.resume))


if __name__ == "__main__":
    sys.exit(main())

"""Train a Faster R-CNN on what a weak detector finds in its training split, and measure it.

    detector self-train runs/demo [--resume]

Everything goes to OUTPUT_DIR/self_train: pseudo/, a data set in VOC's layout (with COCO's JSON)
whose boxes are the detector's; log, events and checkpoints as in training; metrics.json beside the
weak detector's. The keys SELF_TRAIN decide. Image labels choose the classes; ground-truth boxes are
read for the metrics alone.
"""

from collections.abc import Sequence

from detector.utils.command_line import config_parser, next_step, parse_config, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = config_parser("detector self-train", __doc__)
    parser.add_argument("--weights", metavar="FILE", help="a checkpoint; default: OUTPUT_DIR/model_final.pt")
    parser.add_argument("--resume", action="store_true", help="resume from the folder's newest checkpoint")
    options = parse_config(parser, arguments)

    def run() -> None:
        from detector.api.self_training import run as self_train
        from detector.config import load_cfg

        self_train(options.config_file, options.overrides, options.weights, options.resume)
        folder = load_cfg(options.config_file, options.overrides).OUTPUT_DIR
        next_step("detector", "predict", "--weights", folder, "--output", "found", "PICTURES")

    return run_command(run)

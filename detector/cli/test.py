"""Measure a trained detector: AP on the test split, CorLoc on the training split.

    detector test runs/demo

Writes metrics.json, detections.npz and pictures/ to the run folder. With other weights, or keys
that change the results, they go to a folder below RUN/tests. Rerun the same command to resume a
test that was killed; under torchrun the processes share the images. AP and CorLoc need images with
ground-truth boxes; the AP of the image-level labels needs none.
"""

from collections.abc import Sequence

from detector.utils.command_line import add_model_option, config_parser, next_step, parse_config, run_command
from detector.utils.config_files import find_config


def main(arguments: Sequence[str] | None = None) -> int:
    parser = config_parser("detector test", __doc__)
    parser.add_argument("--weights", metavar="FILE", help="a checkpoint; default: OUTPUT_DIR/model_final.pt")
    add_model_option(parser)
    options = parse_config(parser, arguments)

    def run() -> None:
        from detector.api.testing import find_run_folder
        from detector.api.testing import run as test
        from detector.config import load_cfg

        test(options.config_file, options.overrides, options.weights, options.model)
        file = find_config(options.config_file)
        next_step("detector", "report", find_run_folder(file, load_cfg(file, options.overrides)))

    return run_command(run)

"""Look at a data set before training on it: counts, balance, files, boxes, what proposals cover.

    detector check configs/toybox_pcl.yaml

Warnings name what will go wrong and what to do. The exit status is 2 where something would stop a
run. A sheet of samples of each split is drawn, OUTPUT_DIR/check/SPLIT.png.
"""

from collections.abc import Sequence

from detector.utils.command_line import config_parser, next_step, parse_config, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_config(config_parser("detector check", __doc__), arguments)

    def run() -> None:
        from detector.api.checking import run as check

        check(options.config_file, options.overrides)
        next_step("detector", "train", options.config_file, *options.overrides)

    return run_command(run)

"""Train a detector from image labels.

    detector train configs/toybox_pcl.yaml SOLVER.MAX_ITER 2000
    detector train mine.yaml --to detector
    torchrun --nproc_per_node 8 --max-restarts 3 -m detector train configs/toybox_pcl.yaml

Writes to the run folder, OUTPUT_DIR: config.yaml, run.json (versions, commit, seed), log.txt,
events for TensorBoard, checkpoints/, snapshots/ and, at the end, model_final.pt
(docs/distributed.md). With --to weak it makes the proposals before and tests afterwards, with
--to detector it also self-trains and writes the report; repeated, it continues from where it was.
"""

from collections.abc import Sequence

from detector.utils.command_line import config_parser, next_step, parse_config, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = config_parser("detector train", __doc__)
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
    what = "weak or detector, as above"
    parser.add_argument("--to", choices=("weak", "detector"), metavar="STAGE", help=what)
    options = parse_config(parser, arguments)

    def run() -> None:
        if options.to:
            from detector.api.pipeline import run_pipeline

            folder = run_pipeline(options.config_file, options.overrides, options.to)
            if options.to == "weak":
                next_step("detector", "self-train", options.config_file, *options.overrides)
            else:
                next_step("detector", "predict", "--weights", folder, "--output", "found", "PICTURES")
            return

        from detector.api.training import run as train

        folder = train(options.config_file, options.overrides, options.resume)
        next_step("detector", "test", folder)

    return run_command(run)

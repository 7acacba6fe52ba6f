"""Train a detector from image labels.

    detector train configs/toybox_pcl.yaml SOLVER.MAX_ITER 2000
    torchrun --nproc_per_node 8 --max-restarts 3 -m detector train configs/toybox_pcl.yaml

Writes to the run folder, OUTPUT_DIR: config.yaml, run.json (versions, commit, seed), log.txt,
events for TensorBoard, checkpoints/, snapshots/ and, at the end, model_final.pt
(docs/distributed.md).
"""

from collections.abc import Sequence

from detector.utils.command_line import config_parser, next_step, parse_config, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = config_parser("detector train", __doc__)
    parser.add_argument("--resume", action="store_true", help="go on from the run folder's newest checkpoint")
    options = parse_config(parser, arguments)

    def run() -> None:
        from detector.api.training import run as train

        folder = train(options.config_file, options.overrides, options.resume)
        next_step("detector", "test", folder)

    return run_command(run)

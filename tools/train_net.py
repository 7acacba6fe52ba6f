"""Train a detector from image labels.

    python tools/train_net.py --config-file configs/toybox_pcl.yaml [--resume] [KEY VALUE ...]
    torchrun --nproc_per_node 8 --max-restarts 3 tools/train_net.py --config-file ...

Everything goes to the run folder, OUTPUT_DIR: config.yaml, run.json (versions, commit, seed), log.txt, events
for TensorBoard, checkpoints/, snapshots/ and, at the end, model_final.pt. Processes that torchrun starts
again, as one of them died, go on from the newest checkpoint (docs/distributed.md).
"""

import sys
from collections.abc import Sequence

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from detector.api.training import run
    from detector.utils.command_line import config_parser, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = config_parser("Train a detector from image labels.")
    parser.add_argument("--resume", action="store_true", help="go on from the run folder's newest checkpoint")
    options = parser.parse_intermixed_args(arguments)
    return run_command(lambda: run(options.config_file, options.overrides, options.resume))


if __name__ == "__main__":
    sys.exit(main())

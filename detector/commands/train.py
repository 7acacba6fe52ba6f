"""Train a detector from image labels.

    detector train configs/toybox_pcl.yaml SOLVER.MAX_ITER 2000
    detector train mine.yaml --to detector [--teacher found.json]
    torchrun --nproc_per_node 8 --max-restarts 3 -m detector train configs/toybox_pcl.yaml

Writes config, log, checkpoints and model_final.pt to OUTPUT_DIR (docs/distributed.md). --to weak
also proposes and tests; --to detector also self-trains and reports; repeated, it continues.
--effort 2 trains a second weak detector, faster, if the first learns tags badly. Frequent keys:
SOLVER.MAX_ITER (steps), SOLVER.IMAGES_PER_BATCH, SOLVER.BASE_LR, INPUT.TRAIN_SIZES, OUTPUT_DIR.
"""

from argparse import ArgumentParser, Namespace

from detector.commands.hints import words_to_predict
from detector.commands.stages import run_with_effort
from detector.engine.train import train
from detector.inference.measured import print_how_to_measure
from detector.utils.command_line import add_teacher_option, next_step, teacher_words
from detector.utils.errors import UserError


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--resume", action="store_true", help="continue from the newest checkpoint")
    add("--to", choices=("weak", "detector"), metavar="STAGE", help="weak or detector, as above")
    what = "with --to: 2 may take twice as long, to try other learning rates (default: 1)"
    add_teacher_option(parser)
    add("--effort", type=int, choices=(1, 2), default=1, help=what)


def run(options: Namespace) -> None:
    if options.effort > 1 and not options.to:
        raise UserError("--effort chooses by the test of the weak detector: add --to weak or --to detector")
    options.overrides += teacher_words(options)
    if options.to:
        folder = run_with_effort(options.config_file, options.overrides, options.to, options.effort)
        print_how_to_measure(folder)
        if options.to == "weak":
            next_step("detector", "self-train", folder)
        else:
            next_step(*words_to_predict(folder))
        return

    folder = train(options.config_file, options.overrides, resume=options.resume)
    next_step("detector", "test", folder)

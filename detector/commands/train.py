"""Train a detector from image labels.

    detector train mine.yaml --to detector [--quick] [--teacher found.json]
    torchrun --nproc_per_node 8 --max-restarts 3 -m detector train toybox_pcl SOLVER.MAX_ITER 2000

--to weak also proposes and tests; --to detector also self-trains and reports; repeat it to go on.
Keys SOLVER.MAX_ITER (steps), SOLVER.IMAGES_PER_BATCH, SOLVER.BASE_LR, INPUT.TRAIN_SIZES, OUTPUT_DIR
"""

import shlex
from argparse import ArgumentParser, Namespace

from detector.commands.hints import hint_to_predict
from detector.commands.stages import quick, run_stages
from detector.config import load_cfg
from detector.engine.train import train
from detector.inference.measured import print_how_to_measure
from detector.utils.command_line import (
    add_teacher_option,
    add_verbose_option,
    next_step,
    teacher_words,
)
from detector.utils.errors import UserError
from detector.utils.logging import PROGRESS, STEP, setup_logging


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--resume", action="store_true", help="continue from the newest checkpoint")
    add("--to", choices=("weak", "detector"), metavar="STAGE", help="weak or detector, as above")
    what = "a first try in minutes, of lower AP, in OUTPUT_DIR_quick (--to detector)"
    add("--quick", action="store_true", help=what)
    add_teacher_option(parser)
    what = "1: keep the recipe where it does not learn the tags; 2 (default): begin again with another"
    add("--effort", type=int, choices=(1, 2), help=what)
    add_verbose_option(parser)


def run(options: Namespace) -> None:
    given = [options.config_file, *options.overrides]
    options.overrides += teacher_words(options)
    if options.quick:
        options.to = options.to or "detector"
        keys = quick(load_cfg(options.config_file, options.overrides))
        options.overrides = [str(word) for pair in keys.items() for word in pair] + options.overrides
    if options.effort and not options.to:
        raise UserError("--effort chooses by the test of the weak detector: add --to weak or --to detector")
    if options.verbose or options.to:
        setup_logging(console=STEP if options.verbose else PROGRESS)
    if options.to:
        effort = options.effort or (1 if options.quick else 2)
        folder = run_stages(options.config_file, options.overrides, options.to, effort=effort)
        print_how_to_measure(folder)
        if options.quick:
            whole = shlex.join(["detector", "train", *given, "--to", "detector"])
            steps = ", with the recipe's MAX_ITER" if any("MAX_ITER" in word for word in given) else ""
            print(f"the whole recipe reaches higher AP: {whole}{steps}")
        if options.to == "weak":
            next_step("detector", "self-train", folder)
        else:
            hint_to_predict(folder)
        return

    folder = train(options.config_file, options.overrides, resume=options.resume)
    next_step("detector", "test", folder)

"""The command `detector train`."""

import shlex
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from detector.commands.effort import as_words, other_seeds
from detector.commands.hints import hint_to_predict
from detector.commands.stages import quick, run_stages
from detector.config import Settings, load_cfg
from detector.engine.train import train
from detector.inference.measured import print_how_to_measure
from detector.utils.command_line import next_step, teacher_words
from detector.utils.distributed import is_main
from detector.utils.errors import UserError
from detector.utils.logging import PROGRESS, STEP, setup_logging


def without_steps(words: Sequence[str]) -> list[str]:
    """KEY VALUE words without the numbers of steps."""
    pairs = zip(words[::2], words[1::2], strict=True)
    return [word for pair in pairs if not pair[0].endswith("MAX_ITER") for word in pair]


def tell_of_boxes(cfg: Settings) -> None:
    """Say so where --effort 2 comes too late for the boxes of three weak detectors."""
    student = Path(cfg.output_dir, "self_train")
    if is_main() and student.exists() and not other_seeds(cfg, 2):
        print(
            f"{student} keeps the boxes that it learns from; for those of three weak detectors, name another "
            "OUTPUT_DIR"
        )


def run(options: Namespace) -> None:
    given = [options.config_file, *options.overrides]
    options.overrides += teacher_words(options)
    if options.quick:
        options.to = options.to or "detector"
        keys = quick(load_cfg(options.config_file, options.overrides))
        options.overrides = as_words(keys) + options.overrides
    if options.effort and not options.to:
        raise UserError("--effort chooses by the test of the weak detector: add --to weak or --to detector")
    if options.verbose or options.to:
        setup_logging(console=STEP if options.verbose else PROGRESS)
    if options.to:
        effort = options.effort or (1 if options.quick else 2)
        if options.effort == 2 and options.to == "detector":
            tell_of_boxes(load_cfg(options.config_file, options.overrides))
        folder = run_stages(options.config_file, options.overrides, options.to, effort=effort)
        print_how_to_measure(folder)
        if options.quick:
            given = [options.config_file, *without_steps(given[1:])]
            whole = shlex.join(["detector", "train", *given, "--to", "detector"])
            print(f"the whole recipe reaches higher AP: {whole}")
        if options.to == "weak":
            next_step("detector", "self-train", folder)
        else:
            hint_to_predict(folder)
        return

    folder = train(options.config_file, options.overrides, resume=options.resume)
    next_step("detector", "test", folder)

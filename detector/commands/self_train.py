"""The command `detector self-train`."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from detector.commands.effort import other_seeds
from detector.commands.forecast import announce
from detector.commands.hints import hint_to_predict
from detector.config import load_cfg
from detector.engine.resuming import last_step
from detector.engine.run_folder import hint_at_resume
from detector.inference.measured import print_how_to_measure
from detector.inference.test import run_test
from detector.inference.zoo import find_weights
from detector.self_training.self_train import refuse_begun, self_train
from detector.utils.distributed import is_main, restarts
from detector.utils.logging import STEP, setup_logging


def run(options: Namespace) -> None:
    if options.verbose:
        setup_logging(console=STEP)
    cfg = load_cfg(options.config_file, options.overrides)
    student = Path(cfg.output_dir, "self_train")
    refuse_begun(student, options.resume or restarts() > 0)  # before steps are timed
    named = [find_weights(path) for path in options.weights]
    runs = [Path(cfg.output_dir), *other_seeds(cfg, 1).values()]
    weights = named or [run / "model_final.pt" for run in runs]
    if not (student / "model_final.pt").exists() and all(path.is_file() for path in weights):
        announce(cfg, {"self-train": last_step(student)}, num_weights=len(weights))
    given = [str(path) for path in weights]
    folder = self_train_and_test(options.config_file, options.overrides, given, options.resume)
    print_how_to_measure(folder)
    hint_to_predict(folder)


def self_train_and_test(
    config_file: str, overrides: Sequence[str], weights: Sequence[str], resume: bool
) -> Path:
    """:func:`self_train`, then the test of the student; returns OUTPUT_DIR."""
    folder = self_train(config_file, overrides, weights, resume)
    with hint_at_resume(folder / "self_train"):
        _, metrics = run_test(folder, (), None, "student")
    if is_main() and (figures := metrics.get("pseudo_boxes")):
        print("{count} pseudo boxes: precision {precision:.1f}, recall {recall:.1f}".format(**figures))
    return folder

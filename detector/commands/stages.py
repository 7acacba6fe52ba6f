"""`detector train --to weak` and `--to detector`: everything from tagged pictures to a tested detector."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch

from detector.commands.propose import make_proposals
from detector.commands.self_train import self_train_and_test
from detector.config import Settings, check_resumable, load_cfg, parse_cfg
from detector.data.build import build_dataset, build_proposals, build_training_set, name_classes
from detector.data.proposals import load_proposals
from detector.data.training_set import changed_data, describe_truth
from detector.engine.checkpoint import load_checkpoint
from detector.engine.run_folder import check_class_names, check_same_data
from detector.engine.train import train
from detector.inference.results import results_key
from detector.inference.test import evaluate
from detector.report.build import is_current, write_report
from detector.self_training.pseudo_boxes import learned_from_others
from detector.utils.distributed import LONG_WAIT, find_device, gather, is_main, process_group, sync_errors
from detector.utils.errors import describe_value
from detector.utils.files import read_json, reading

logger = logging.getLogger(__name__)

_CPU = torch.device("cpu")


def run_stages(
    config_file: str | Path, overrides: Sequence[str] = (), to: Literal["weak", "detector"] = "detector"
) -> Path:
    """Make proposals, train, test, self-train and write the report; prints one line for each stage.

    What an earlier call has finished is not done again unless what it read has changed since: tags, boxes,
    weights or proposals of a test, or the results that a report shows. What it began is continued. Under
    torchrun the processes share each stage but the report.

    Args:
        to: "weak" ends with the test of the weak detector.

    Returns:
        the run folder, which stands for the Faster R-CNN of self-training where that was trained.

    Raises:
        UserError, OSError: of any stage; or the run folder holds a detector of another config.
    """
    cfg = load_cfg(config_file, overrides)
    folder, proposals = Path(cfg.output_dir), Path(cfg.datasets.proposals)
    weak, student = folder / "model_final.pt", folder / "self_train"
    config = str(config_file)
    find_device(cfg.device)  # an error now rather than after the proposals
    with process_group(_CPU, LONG_WAIT), sync_errors():
        check_same_run(cfg, weak)
        if is_main():
            warn_of_changes(cfg, weak, "SOLVER", "PROPOSALS", "INPUT", "TEST")
            if to == "detector":
                warn_of_changes(cfg, student / "model_final.pt", "SELF_TRAIN")

    def report() -> None:
        if is_main():
            write_report(folder, [], None, "student")

    stages: list[tuple[str, Path, Callable[[], object]]] = [  # name, what shows that it is done, what does it
        ("propose", proposals, lambda: make_proposals(config_file=config, overrides=overrides)),
        ("train", weak, lambda: train(config, overrides, resume=True)),
        ("test", folder / "metrics.json", lambda: evaluate(folder, model="weak")),
        (
            "self-train",
            student / "metrics.json",
            lambda: self_train_and_test(config, overrides, [], resume=True),
        ),
        ("report", student / "report.html", report),
    ]
    if to == "weak":
        stages = stages[:3]
    for number, (name, result, run) in enumerate(stages, start=1):
        with process_group(_CPU, LONG_WAIT):  # the main process may still write what another looks for
            done = gather(result.exists() and not _outdated(cfg, name, result))[0]
        if is_main():
            what = "done:" if done else "writes"
            print(f"stage {number} of {len(stages)}: {name}, {what} {result}", flush=True)
        if not done:
            run()
    return folder


def _outdated(cfg: Settings, stage: str, result: Path) -> bool:
    """Whether what a stage read has changed since it left `result`; of training, check_same_run tells.

    Raises:
        UserError: there are no proposals of some images, which are not made while there is a file of others.
    """
    folder = result.parent
    if stage == "propose":
        proposals = load_proposals(result)
        train_set = build_dataset(cfg, cfg.datasets.train_split)
        build_proposals(cfg, train_set, proposals)
        build_proposals(cfg, build_dataset(name_classes(cfg, train_set), cfg.datasets.test_split), proposals)
    if stage == "report":
        return not is_current(folder)
    if stage not in ("test", "self-train"):
        return False
    of_weak = folder.parent / "model_final.pt"
    if stage == "self-train" and of_weak.is_file() and learned_from_others(folder, of_weak):
        return True  # the stage refuses to go on, and says what to do
    own = load_cfg(folder / "config.yaml")
    metrics, key = read_json(result), results_key(own, folder / "model_final.pt", stage == "self-train")
    splits = (own.datasets.test_split, own.datasets.train_split)
    truth = describe_truth(*(build_dataset(own, split) for split in splits))
    # An older version did not write the key.
    return metrics.get("results_key", key) != key or bool(changed_data(metrics.get("truth"), truth))


def check_same_run(cfg: Settings, weights: Path) -> None:
    """Refuse to go on from a detector that was trained with another config or data; none yet is fine.

    Raises:
        UserError: names the key or the part of the data that differs.
    """
    if not weights.exists():
        return
    checkpoint = load_checkpoint(weights)
    training_set = build_training_set(cfg)
    cfg = name_classes(cfg, training_set.dataset)
    check_class_names(cfg, checkpoint, weights)
    with reading(weights, "checkpoint"):
        check_resumable(checkpoint["config"], cfg, "weak")
    check_same_data(weights.parent, training_set.describe())


def warn_of_changes(cfg: Settings, weights: Path, *groups: str) -> None:
    """Warn where a detector is finished and keys of its training or test, in `groups`, have changed since."""
    if not weights.exists():
        return
    with reading(weights, "checkpoint"):
        before = parse_cfg(load_checkpoint(weights)["config"], "its config").values()
    changes = [
        f"{key}: {describe_value(before[key])} -> {describe_value(value)}"
        for key, value in cfg.values().items()
        if key.split(".")[0] in groups and before[key] != value
    ]
    if changes:
        logger.warning(
            "warning: %s is finished and stays as it is, but it was made with other keys: %s; for a new one "
            "name another OUTPUT_DIR; detector test %s KEY VALUE tests it with other keys",
            *(weights, "; ".join(changes), weights.parent),
        )

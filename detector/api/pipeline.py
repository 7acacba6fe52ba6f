"""`detector train --to weak` and `--to detector`: everything from tagged pictures to a tested detector."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch

from detector.api.proposing import run as propose
from detector.api.report import run as report
from detector.api.run_folder import check_class_names, check_same_data, training_data
from detector.api.self_training import run as self_train
from detector.api.testing import evaluate
from detector.api.training import train
from detector.build_data import build_dataset, name_classes
from detector.config import Settings, check_resumable, load_cfg, parse_cfg
from detector.data.training_data import changed_data, describe_truth
from detector.engine.checkpoint import load_checkpoint
from detector.utils.distributed import LONG_WAIT, gather, is_main, process_group, together
from detector.utils.files import read_json, reading

logger = logging.getLogger(__name__)

_CPU = torch.device("cpu")


def run_pipeline(
    config_file: str | Path, overrides: Sequence[str] = (), to: Literal["weak", "detector"] = "detector"
) -> Path:
    """Make proposals, train, test, self-train and write the report; prints one line for each stage.

    What an earlier call has finished is not done again, except a test whose tags or boxes have changed since,
    and what it began is continued. Under torchrun the processes share each stage but the report.

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
    with process_group(_CPU, LONG_WAIT), together():
        check_same_run(cfg, weak)
        if is_main():
            warn_of_changes(cfg, weak, "SOLVER")
            if to == "detector":
                warn_of_changes(cfg, student / "model_final.pt", "SELF_TRAIN")

    def write_report() -> None:
        if is_main():
            report(folder, [], None)

    stages: list[tuple[str, Path, Callable[[], object]]] = [  # name, what shows that it is done, what does it
        ("propose", proposals, lambda: propose(config_file=config, overrides=overrides)),
        ("train", weak, lambda: train(config, overrides, resume=True)),
        ("test", folder / "metrics.json", lambda: evaluate(folder, model="weak")),
        ("self-train", student / "metrics.json", lambda: self_train(config, overrides, [], resume=True)),
        ("report", student / "report.html", write_report),
    ]
    if to == "weak":
        stages = stages[:3]
    done = True
    for number, (name, result, run) in enumerate(stages, start=1):
        # A page of an earlier call is about the test of that call.
        renewed = name == "report" and not done
        with process_group(_CPU, LONG_WAIT):  # the main process may still write what another looks for
            done = gather(not renewed and result.exists() and not _outdated(result))[0]
        if is_main():
            what = "done:" if done else "writes"
            print(f"stage {number} of {len(stages)}: {name}, {what} {result}", flush=True)
        if not done:
            run()
    return folder


def _outdated(result: Path) -> bool:
    """Whether these metrics were measured with other tags or boxes: `review-import --table` adds some."""
    if result.name != "metrics.json":
        return False
    cfg = load_cfg(result.parent / "config.yaml")
    splits = (cfg.datasets.test_split, cfg.datasets.train_split)
    truth = describe_truth(*(build_dataset(cfg, split) for split in splits))
    return bool(changed_data(read_json(result).get("truth"), truth))


def check_same_run(cfg: Settings, weights: Path) -> None:
    """Refuse to go on from a detector that was trained with another config or data; none yet is fine.

    Raises:
        UserError: names the key or the part of the data that differs.
    """
    if not weights.exists():
        return
    checkpoint = load_checkpoint(weights)
    train_set = build_dataset(cfg, cfg.datasets.train_split)
    cfg = name_classes(cfg, train_set)
    check_class_names(cfg, checkpoint, weights)
    with reading(weights, "checkpoint"):
        check_resumable(checkpoint["config"], cfg, "weak")
    check_same_data(weights.parent, training_data(cfg, train_set))


def warn_of_changes(cfg: Settings, weights: Path, group: str) -> None:
    """Warn where a detector is finished and keys of its training, those of `group`, have changed since."""
    if not weights.exists():
        return
    with reading(weights, "checkpoint"):
        before = parse_cfg(load_checkpoint(weights)["config"], "its config").values()
    changes = [
        f"{key}: {before[key]!r} -> {value!r}"
        for key, value in cfg.values().items()
        if key.startswith(f"{group}.") and before[key] != value
    ]
    if changes:
        logger.warning(
            "warning: %s is finished and stays as it is, but it was made with other keys: %s; for a new one "
            "name another OUTPUT_DIR",
            *(weights, "; ".join(changes)),
        )

"""A run folder: how a run begins there, resumes, and records what it was made with."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from detector.config import Settings, check_resumable, dump_cfg, parse_cfg
from detector.config.keys import Training
from detector.data.training_set import changed_data
from detector.engine.build import accumulated_batches
from detector.engine.checkpoint import DamagedCheckpoint, load_checkpoint
from detector.engine.precision import Precision, set_tf32
from detector.engine.resuming import (
    Progress,
    check_batches,
    list_checkpoints,
    load_newest,
    restore,
)
from detector.evaluation.summary import write_json
from detector.utils.distributed import find_device, gather, is_main, raise_once
from detector.utils.errors import ConfigError, UserError, shortened
from detector.utils.files import atomic_write, read_json, reading
from detector.utils.logging import PROGRESS, setup_logging
from detector.utils.reproducibility import run_info, seed_everything

logger = logging.getLogger(__name__)


def start_run(cfg: Settings, folder: Path) -> torch.device:
    """Set up threads, seeds, the run folder and its log, and return the device to run on."""
    device = find_device(cfg.device)
    folder.mkdir(parents=True, exist_ok=True)
    setup_logging(folder / "log.txt")
    if cfg.threads:
        torch.set_num_threads(cfg.threads)
    seed_everything(cfg.seed, cfg.deterministic)
    set_tf32(cfg.precision == "tf32")
    torch.backends.cudnn.benchmark = cfg.cudnn_benchmark
    return device


def refuse_earlier_run(folder: Path, resume: bool) -> None:
    """Raise UserError if a folder holds the checkpoints of an earlier run that is not to be resumed."""
    if not resume and (list_checkpoints(folder) or (folder / "model_final.pt").exists()):
        raise UserError(
            f"{folder} holds an earlier run: add --resume (resume=True in Python) to continue it, "
            "name another folder (OUTPUT_DIR NAME), or remove this one"
        )


def resume_run(
    cfg: Settings,
    folder: Path,
    model: nn.Module,
    optimizer: Optimizer,
    precision: Precision,
    training: Training,
) -> Progress:
    """Restore the newest usable checkpoint of a run folder, if there is one and it is of the same run.

    Args:
        cfg: with the names of the classes.
        training: which of the two trainings the run is.

    Raises:
        UserError: it was trained with other classes, another config, or other batches; or it is damaged.
    """
    newest = load_newest(folder)
    if newest is None:
        return Progress()
    path, checkpoint = newest
    check_batches(checkpoint, accumulated_batches(cfg.solver))
    check_class_names(cfg.datasets.classes, checkpoint, path)
    with reading(path, "checkpoint"):
        changes = check_resumable(checkpoint["config"], cfg, training)
    for line in changes:
        logger.warning("this run began with another config: %s", line)
    progress = restore(checkpoint, path, model, optimizer, precision.scaler)
    if progress.iteration < cfg.solver.max_iter:
        where = f"resuming from {path}, after step {progress.iteration} of {cfg.solver.max_iter}"
        logger.log(PROGRESS, "%s", where)
    elif progress.iteration > cfg.solver.max_iter:
        key = "SOLVER.MAX_ITER" if training == "weak" else "SELF_TRAIN.MAX_ITER"
        made = f"{progress.iteration} steps were made, more than {key} {cfg.solver.max_iter}"
        logger.warning("%s: %s; the model of all of them is kept", path, made)
    return progress


def check_class_names(classes: Sequence[str], checkpoint: Mapping[str, Any], path: Path) -> None:
    """Compare DATASETS.CLASSES, `classes`, with those that a checkpoint was trained with, as its config says.

    The shapes of the weights do not tell: the same names in another order would give every box a wrong label.

    Raises:
        ConfigError: they differ; names the file and the first differences.
    """
    with reading(path, "checkpoint"):
        saved = parse_cfg(checkpoint["config"], "its config").datasets.classes
    pairs = enumerate(zip_longest(saved, classes), start=1)
    differing = [f"class {i} is {old!r} there and {new!r} here" for i, (old, new) in pairs if old != new]
    if saved and differing:
        raise ConfigError(
            f"checkpoint {path} was trained with other classes than DATASETS.CLASSES: "
            f"{shortened(differing, 3, '; ')}. Use the config that it was trained with: config.yaml in its "
            "run folder"
        )


def record_run(
    cfg: Settings, folder: Path, device: torch.device, data: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Write config.yaml and run.json, from which the run can be repeated; only the main process does.

    Args:
        data: of :meth:`TrainingSet.describe`, for :func:`check_same_data`.
    """
    if is_main():
        with atomic_write(folder / "config.yaml", "w") as file:
            file.write(dump_cfg(cfg))
        write_json(folder / "run.json", run_info(device, cfg.seed) | {"data": dict(data)})


def has_final(folder: Path, iteration: int) -> bool:
    """Whether model_final.pt is that after this step, so that it need not be written again.

    Written again it would be another file, as it tells the seconds and the config: boxes that it found, which
    are known by its hash, would count as those of another detector.
    """
    path = folder / "model_final.pt"
    try:
        return path.is_file() and load_checkpoint(path)["iteration"] == iteration
    except DamagedCheckpoint:
        return False


def check_same_data(folder: Path, data: Mapping[str, str]) -> None:
    """Compare the data with those that a run began with, if its run.json says which.

    Raises:
        UserError: images, tags, reviewed boxes, hints or proposals were changed since; says which.
    """
    file = folder / "run.json"
    if file.exists() and (changed := changed_data(read_json(file).get("data"), data)):
        raise UserError(
            f"the run in {folder} began with other data: {changed}. Undo the change to go on with it, or "
            "start a run with the new data in another OUTPUT_DIR"
        )


def check_same_start(start: int) -> None:
    """Refuse to train where processes of several machines do not see the same checkpoints."""
    starts = gather(start)
    if len(set(starts)) > 1:
        raise_once(
            UserError(
                f"the processes would resume from different steps, by rank: {starts}; "
                "OUTPUT_DIR must be one folder that all machines see"
            )
        )


@contextmanager
def hint_at_resume(*folders: Path) -> Iterator[None]:
    """On Ctrl-C, say where the same command continues: run folders, in their order."""
    try:
        yield
    except KeyboardInterrupt:
        if is_main():
            saved = [path for folder in folders for path in list_checkpoints(folder)]
            where = f"resumes from {saved[-1]}" if saved else "starts over, as there is no checkpoint yet"
            needs = "train without --to, self-train and the tools need --resume, Python resume=True"
            logger.error("the same command %s (%s)", where, needs)
        raise

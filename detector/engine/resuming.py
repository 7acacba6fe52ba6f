"""The checkpoints of a run folder, and how a run resumes from the newest."""

import logging
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from detector.engine.checkpoint import (
    DamagedCheckpoint,
    Stateful,
    load_checkpoint,
    restore_model,
    restore_optimizer,
    restore_scaler,
)
from detector.utils.distributed import world_size
from detector.utils.errors import UserError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """How far a run has come, and how it was run."""

    iteration: int = 0  # steps made
    train_seconds: float = 0.0  # that they took
    batches_per_step: int | None = None  # of all processes together; None: not known
    world_size: int | None = None  # number of processes; None: not known
    config: str = ""  # its text; "": not known


def checkpoint_path(folder: Path, iteration: int) -> Path:
    """Where the checkpoint after `iteration` steps stands in a run folder."""
    return folder / "checkpoints" / f"{iteration:06d}.pt"


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run folder, oldest first."""
    found = [path for path in (folder / "checkpoints").glob("*.pt") if path.stem.isdigit()]
    return sorted(found, key=lambda path: int(path.stem))


def remove_old_checkpoints(folder: Path, iteration: int, keep: int) -> None:
    """Keep the newest `keep` checkpoints of those up to `iteration`, and what is later than that.

    What is later was left aside as damaged. Of a write that was killed, the unfinished file goes too.
    """
    written = [path for path in list_checkpoints(folder) if int(path.stem) <= iteration]
    for path in [*written[:-keep], *(folder / "checkpoints").glob(".*.pt.tmp")]:
        path.unlink()


def load_newest(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint of a run folder that can be used; None: it has no checkpoints.

    One that is damaged or not finite is skipped with a warning.

    Raises:
        UserError: none can be used, or the newest undamaged one is refused.
    """
    found = list_checkpoints(folder)
    for path in reversed(found):
        try:
            return path, load_checkpoint(path)
        except DamagedCheckpoint as error:
            logger.warning("warning: %s; the one before it is used", error)
    if found:
        raise UserError(
            f"all checkpoints in {found[0].parent} are damaged or not finite; remove them to start over"
        )
    return None


def restore(
    checkpoint: dict[str, Any],
    path: Path,
    model: nn.Module,
    optimizer: Optimizer,
    scaler: Stateful | None = None,
) -> Progress:
    """Load a checkpoint of `load_newest` to resume from it.

    Raises:
        UserError: it is of another model or optimizer, or damaged; names the file.
    """
    restore_model(model, checkpoint, path)
    restore_optimizer(optimizer, checkpoint, path)
    if scaler is not None:
        restore_scaler(scaler, checkpoint, path)
    logger.info("resuming from %s", path)
    return progress_of(checkpoint)


def progress_of(checkpoint: dict[str, Any]) -> Progress:
    """What a checkpoint says of the run that wrote it."""
    return Progress(**{f.name: checkpoint[f.name] for f in fields(Progress) if f.name in checkpoint})


def check_batches(progress: Progress, accumulate: int) -> None:
    """Refuse to continue with another number of batches a step, which would make the run another one.

    Another number of processes may continue where the product with `accumulate` is the same; results are then
    equal up to rounding, not bitwise, and a warning is logged.

    Raises:
        ValueError: names what would fit.
    """
    before, now = progress.batches_per_step, accumulate * world_size()
    if before is None:  # written before checkpoints said so
        return
    if before != now:
        fitting = [n for n in range(1, before + 1) if before % n == 0]
        raise UserError(
            f"the checkpoint was made with {before} batches a step, but {world_size()} processes x "
            f"{accumulate} accumulated batches are {now}; processes x SOLVER.ACCUMULATE must stay {before}, "
            f"so the number of processes can be {', '.join(map(str, fitting))}"
        )
    if progress.world_size not in (None, world_size()):
        logger.warning(
            "warning: %s processes made the checkpoint, %d continue: gradients are summed in another order, "
            "so that results are equal to rounding, not to the bit",
            *(progress.world_size, world_size()),
        )

"""The checkpoints of a run folder, and how a run resumes from the newest."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from detector.engine.checkpoint import (
    DamagedCheckpoint,
    load_checkpoint,
    restore_model,
    restore_optimizer,
)
from detector.utils.distributed import world_size
from detector.utils.errors import DataError, UserError
from detector.utils.files import all_temporary, reading

logger = logging.getLogger(__name__)


class Progress(NamedTuple):
    """How far a run has come."""

    iteration: int = 0  # steps made
    train_seconds: float = 0.0  # that they took


def checkpoint_path(folder: Path, iteration: int) -> Path:
    """The path of the checkpoint after `iteration` steps in a run folder."""
    return folder / "checkpoints" / f"{iteration:06d}.pt"


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run folder, oldest first."""
    found = [path for path in (folder / "checkpoints").glob("*.pt") if path.stem.isdigit()]
    return sorted(found, key=lambda path: int(path.stem))


def last_step(folder: Path) -> int:
    """The step of the newest checkpoint of a run folder; 0: it has none."""
    return max((int(path.stem) for path in list_checkpoints(folder)), default=0)


def remove_old_checkpoints(folder: Path, iteration: int, keep: int) -> None:
    """Keep the newest `keep` checkpoints of those up to `iteration`, and what is later than that.

    What is later was skipped as damaged. The unfinished file of a write that was killed is removed, too.
    """
    written = [path for path in list_checkpoints(folder) if int(path.stem) <= iteration]
    for path in [*written[:-keep], *all_temporary(folder / "checkpoints")]:
        path.unlink()


def load_newest(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint of a run folder that can be used; None: it has no checkpoints.

    One that is damaged or not finite is skipped with a warning.

    Raises:
        UserError: none can be used, or the newest undamaged one is refused; or there is none, but the weights
            of a finished run, which a new one would overwrite.
    """
    found = list_checkpoints(folder)
    for path in reversed(found):
        try:
            return path, load_checkpoint(path)
        except DamagedCheckpoint as error:
            logger.warning("%s; the one before it is used", error)
    if found:
        raise UserError(
            f"all checkpoints in {found[0].parent} are damaged or not finite; remove them to start over"
        )
    if (final := folder / "model_final.pt").exists():
        raise UserError(
            f"{final} is of an earlier run without a checkpoint to continue from: name another folder "
            "(OUTPUT_DIR NAME), or remove this file to train anew"
        )
    return None


def restore(
    checkpoint: dict[str, Any], path: Path, model: nn.Module, optimizer: Optimizer, scaler: GradScaler
) -> Progress:
    """Load a checkpoint of `load_newest` to resume from it.

    Raises:
        UserError: it is of another model or optimizer, or damaged; names the file.
    """
    restore_model(model, checkpoint, path)
    restore_optimizer(optimizer, checkpoint, path)
    if checkpoint.get("scaler") and scaler.is_enabled():  # else one of the two runs is not in float16
        with reading(path, "checkpoint"):
            for name, value in checkpoint["scaler"].items():  # which load_state_dict takes as they are
                if type(value) not in (int, float) or value < 0:
                    raise DataError(f"scaler.{name} is {value!r}, expected a number of 0 or more")
            scaler.load_state_dict(checkpoint["scaler"])
    return Progress(checkpoint["iteration"], checkpoint["train_seconds"])


def check_batches(checkpoint: Mapping[str, Any], accumulate: int) -> None:
    """Refuse to continue with another number of batches per step, which would make the run another one.

    Another number of processes may continue where the product with `accumulate` is the same; results are then
    equal up to rounding, not bitwise, and a warning is logged.

    Raises:
        UserError: names what would fit.
    """
    before, now = checkpoint["batches_per_step"], accumulate * world_size()
    if before != now:
        fitting = [n for n in range(1, before + 1) if before % n == 0]
        raise UserError(
            f"the checkpoint was made with {before} batches per step, but {world_size()} processes x "
            f"{accumulate} accumulated batches are {now}; processes x SOLVER.ACCUMULATE must stay {before}, "
            f"so the number of processes can be {', '.join(map(str, fitting))}"
        )
    if checkpoint["world_size"] != world_size():
        logger.warning(
            "%d processes made the checkpoint, %d continue: gradients are summed in another order, "
            "so that results are equal up to rounding, not bitwise",
            checkpoint["world_size"],
            world_size(),
        )

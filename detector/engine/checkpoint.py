"""Checkpoints: saved whole or not at all, loaded without running code, refused when damaged or another run's.

A checkpoint is a file of torch.save, a zip archive, and so has a checksum of each tensor: `load_checkpoint`
looks at them, torch.load does not. There is no state of random generators to keep: batches are a function of
(seed, position), and what the network draws is one of (seed, iteration, batch).
"""

import logging
import re
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from detector import __version__
from detector.utils.distributed import world_size
from detector.utils.files import atomic_write

logger = logging.getLogger(__name__)


class DamagedCheckpoint(ValueError):
    """The file is no checkpoint, or not all of one."""


class Stateful(Protocol):
    """What a checkpoint can keep beside the model, such as a torch.amp.GradScaler."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Progress:
    """How far a run has come, and how it was run."""

    iteration: int = 0  # steps made
    train_seconds: float = 0.0  # that they took
    batches_per_step: int | None = None  # of all processes together; None: not known
    world_size: int | None = None  # number of processes; None: not known
    config: str = ""  # its text; "": not known


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: Optimizer | None,
    *,
    iteration: int,
    train_seconds: float,
    batches_per_step: int = 1,
    config: str = "",
    scaler: Stateful | None = None,
) -> None:
    """Write what resuming needs (with the optimiser, and the loss scaler) or what testing needs (without).

    Args:
        iteration: steps made; the next batch is number `iteration * batches_per_step`.
        train_seconds: that they took.
        batches_per_step: of all processes together.
        config: text that tells how the run was made.
        scaler: of the loss, where the precision needs one.

    Raises:
        OSError: it could not be written, as on a full disk; earlier checkpoints are as they were.
    """
    state = {
        "model": model.state_dict(),
        "iteration": iteration,
        "train_seconds": train_seconds,
        "batches_per_step": batches_per_step,
        "world_size": world_size(),
        "config": config,
        "version": __version__,
    }
    if optimizer is not None:
        state["optimizer"] = optimizer.state_dict()
    if scaler is not None:
        state["scaler"] = scaler.state_dict()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        torch.save(state, file)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """What `save_checkpoint` wrote, on the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedCheckpoint: it is cut off, or its bytes are not those that were written.
        ValueError: it is not a checkpoint of this package, or of a later version of it.
    """
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint {path} does not exist; train first, or name another file")
    try:
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # over bytes that are not a checkpoint's zipfile and torch raise many kinds
        first_line = str(error).partition("\n")[0]
        raise DamagedCheckpoint(f"{path} is not a checkpoint, or a damaged one: {first_line}") from None
    if not isinstance(state, dict) or not {"model", "iteration", "train_seconds"} <= state.keys():
        raise ValueError(f"{path} is not a checkpoint written by tools/train_net.py")
    version = state.get("version", __version__)
    if _numbers(version) > _numbers(__version__):
        raise ValueError(f"{path} was written by detector {version}, this is {__version__}: install that one")
    return state


def restore_model(model: nn.Module, checkpoint: dict[str, Any], path: Path) -> None:
    """Load the weights of a checkpoint; ValueError names what differs if it is of another model."""
    own, saved = model.state_dict(), checkpoint["model"]
    differing = [f"it lacks {key}" for key in own if key not in saved]
    differing += [f"it has {key}, which the model lacks" for key in saved if key not in own]
    differing += [
        f"{key} is {tuple(saved[key].shape)}, in the model {tuple(own[key].shape)}"
        for key in own
        if key in saved and saved[key].shape != own[key].shape
    ]
    if differing:
        more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
        raise ValueError(
            f"checkpoint {path} is of another model: {'; '.join(differing[:3])}{more}. "
            "Use the config that it was trained with: config.yaml in its run folder"
        )
    model.load_state_dict(saved)


def restore_optimizer(optimizer: Optimizer, checkpoint: dict[str, Any], path: Path) -> None:
    """Load the optimiser's momenta; learning rates and decays stay those of `optimizer`, as configured."""
    if "optimizer" not in checkpoint:
        raise ValueError(f"{path} has weights only; resuming needs a file of the checkpoints folder")
    groups = optimizer.state_dict()["param_groups"]
    saved = checkpoint["optimizer"]
    if [len(g["params"]) for g in saved["param_groups"]] != [len(g["params"]) for g in groups]:
        raise ValueError(
            f"checkpoint {path} was made with other parameters frozen; "
            "resume with config.yaml of its run folder"
        )
    optimizer.load_state_dict({"state": saved["state"], "param_groups": groups})


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
    """The newest checkpoint of a run folder that is not damaged; None: it has no checkpoints.

    A warning says of each damaged one that it is left aside.

    Raises:
        ValueError: all are damaged, or the newest whole one is refused.
    """
    found = list_checkpoints(folder)
    for path in reversed(found):
        try:
            return path, load_checkpoint(path)
        except DamagedCheckpoint as error:
            logger.warning("warning: %s; the one before it is used", error)
    if found:
        raise ValueError(f"all checkpoints in {found[0].parent} are damaged; remove them to start over")
    return None


def restore_newest(
    folder: Path, model: nn.Module, optimizer: Optimizer, scaler: Stateful | None = None
) -> Progress:
    """Load the newest whole checkpoint of a run folder, if it has any.

    Raises:
        ValueError: all are damaged, or the newest is of another model or of a later version.
    """
    newest = load_newest(folder)
    if newest is None:
        return Progress()
    path, checkpoint = newest
    restore_model(model, checkpoint, path)
    restore_optimizer(optimizer, checkpoint, path)
    if scaler is not None and checkpoint.get("scaler"):  # {} but for float16
        scaler.load_state_dict(checkpoint["scaler"])
    logger.info("going on from %s", path)
    return Progress(**{f.name: checkpoint[f.name] for f in fields(Progress) if f.name in checkpoint})


def check_batches(progress: Progress, accumulate: int) -> None:
    """Refuse to go on with another number of batches a step, which would make the run another one.

    Another number of processes may go on where the product with `accumulate` is the same; results are then
    equal to rounding, not to the bit, and a warning says so.

    Raises:
        ValueError: names what would fit.
    """
    before, now = progress.batches_per_step, accumulate * world_size()
    if before is None:  # written before checkpoints said so
        return
    if before != now:
        fitting = [n for n in range(1, before + 1) if before % n == 0]
        raise ValueError(
            f"the checkpoint was made with {before} batches a step, but {world_size()} processes x "
            f"{accumulate} accumulated batches are {now}; processes x SOLVER.ACCUMULATE must stay {before}, "
            f"so the number of processes can be {', '.join(map(str, fitting))}"
        )
    if progress.world_size not in (None, world_size()):
        logger.warning(
            "warning: %s processes made the checkpoint, %d go on: gradients are summed in another order, so "
            "that results are equal to rounding, not to the bit",
            *(progress.world_size, world_size()),
        )


def _numbers(version: str) -> list[int]:
    """The numbers that a version begins with: "1.10.0+local" is [1, 10, 0]."""
    return [int(part) for part in re.match(r"\d*(\.\d+)*", version)[0].split(".") if part]

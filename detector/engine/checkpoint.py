"""A checkpoint: saved whole or not at all, loaded without running code, refused when damaged or another's.

It is a file of torch.save, a zip archive, and so has a checksum of each tensor: `load_checkpoint` looks at
them, torch.load does not. There is no state of random generators to keep: batches are a function of
(seed, position), and what the network draws is one of (seed, iteration, batch).
"""

import re
import zipfile
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from detector import __version__
from detector.utils.distributed import world_size
from detector.utils.errors import DataError, UserError
from detector.utils.files import atomic_write


class DamagedCheckpoint(DataError):
    """The file is no checkpoint, or not all of one."""


class Stateful(Protocol):
    """What a checkpoint can keep beside the model, such as a torch.amp.GradScaler."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


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
        raise UserError(f"{path} is not a checkpoint written by tools/train_net.py")
    version = state.get("version", __version__)
    if _numbers(version) > _numbers(__version__):
        raise UserError(f"{path} was written by detector {version}, this is {__version__}: install that one")
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
        raise UserError(
            f"checkpoint {path} is of another model: {'; '.join(differing[:3])}{more}. "
            "Use the config that it was trained with: config.yaml in its run folder"
        )
    model.load_state_dict(saved)


def restore_optimizer(optimizer: Optimizer, checkpoint: dict[str, Any], path: Path) -> None:
    """Load the optimiser's momenta; learning rates and decays stay those of `optimizer`, as configured."""
    if "optimizer" not in checkpoint:
        raise UserError(f"{path} has weights only; resuming needs a file of the checkpoints folder")
    groups = optimizer.state_dict()["param_groups"]
    saved = checkpoint["optimizer"]
    if [len(g["params"]) for g in saved["param_groups"]] != [len(g["params"]) for g in groups]:
        raise UserError(
            f"checkpoint {path} was made with other parameters frozen; "
            "resume with config.yaml of its run folder"
        )
    optimizer.load_state_dict({"state": saved["state"], "param_groups": groups})


def _numbers(version: str) -> list[int]:
    """The numbers that a version begins with: "1.10.0+local" is [1, 10, 0]."""
    return [int(part) for part in re.match(r"\d*(\.\d+)*", version)[0].split(".") if part]

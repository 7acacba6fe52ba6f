"""Checkpoints: saved whole or not at all, loaded without running code, refused when of another model."""

import logging
import pickle
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from detector.utils.files import atomic_write

logger = logging.getLogger(__name__)


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: Optimizer | None,
    *,
    iteration: int,
    train_seconds: float,
    scaler: GradScaler | None = None,
) -> None:
    """Write what resuming needs (with the optimiser, and the loss scaler) or what testing needs (without).

    Raises:
        OSError: it could not be written, as on a full disk; earlier checkpoints are as they were.
    """
    state = {"model": model.state_dict(), "iteration": iteration, "train_seconds": train_seconds}
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
        ValueError: it is not a checkpoint of this package.
    """
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint {path} does not exist; train first, or name another file")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        first_line = str(error).partition("\n")[0]
        raise ValueError(f"{path} is not a checkpoint, or a damaged one: {first_line}") from None
    if not isinstance(state, dict) or not {"model", "iteration", "train_seconds"} <= state.keys():
        raise ValueError(f"{path} is not a checkpoint written by tools/train_net.py")
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


def restore_newest(
    folder: Path, model: nn.Module, optimizer: Optimizer, scaler: GradScaler | None = None
) -> tuple[int, float]:
    """Load the newest checkpoint of a run folder, if it has any.

    Returns:
        the steps that were made and the seconds that they took: (0, 0.0) where there is no checkpoint.
    """
    found = list_checkpoints(folder)
    if not found:
        return 0, 0.0
    checkpoint = load_checkpoint(found[-1])
    restore_model(model, checkpoint, found[-1])
    restore_optimizer(optimizer, checkpoint, found[-1])
    if scaler is not None and checkpoint.get("scaler"):  # {} but for float16
        scaler.load_state_dict(checkpoint["scaler"])
    logger.info("going on from %s", found[-1])
    return checkpoint["iteration"], checkpoint["train_seconds"]

"""Checkpoints: written completely or not at all, loaded with weights_only=True, validated on load.

A checkpoint is a file of torch.save. Every number in it is finite, when it is written and when it is loaded.
It keeps no state of random generators: batches are a function of (seed, position), and the random numbers of
the network one of (seed, iteration, batch).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.torch_version import TorchVersion

from detector import __version__
from detector.utils.config_files import how_to_make
from detector.utils.distributed import world_size
from detector.utils.errors import DataError, UserError, describe_value, shortened
from detector.utils.files import atomic_write, reading
from detector.utils.torch_file import non_finite, read_torch_file

_TYPES: dict[str, type[Any]] = {
    "model": dict,
    "iteration": int,
    "train_seconds": float,
    "batches_per_step": int,
    "world_size": int,
    "config": str,
    "version": str,
}
_LEAST = {"iteration": 0, "train_seconds": 0, "batches_per_step": 1, "world_size": 1}
_LONGEST = 1e10  # seconds of training
_VERSION = re.compile(r"\d{1,9}(\.\d{1,9}){0,3}[\w.+-]{0,40}")

# The tensors that torch's optimizers keep of a parameter; their state dicts do not say.
_OPTIMIZER_STATE = {"SGD": {"momentum_buffer"}, "AdamW": {"step", "exp_avg", "exp_avg_sq"}}


class DamagedCheckpoint(DataError):
    """The file is not a checkpoint, not all of one, or holds values that are not finite."""


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: Optimizer | None,
    *,
    iteration: int,
    train_seconds: float,
    batches_per_step: int = 1,
    config: str = "",
    scaler: GradScaler | None = None,
) -> None:
    """Write what resuming needs (with the optimizer, and the loss scaler) or what testing needs (without).

    Args:
        iteration: steps made; the next batch is number `iteration * batches_per_step`.
        train_seconds: the time these steps took.
        batches_per_step: of all processes together.
        config: the config of the run as text, with the names of its classes.
        scaler: of the loss, where the precision needs one.

    Raises:
        UserError: a weight, a buffer or a value of the optimizer is NaN or infinite; names it. Nothing is
            written.
        OSError: it could not be written, for example because the disk is full; earlier checkpoints are
            unchanged.
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
    if name := non_finite(state):
        raise UserError(
            f"{path} is not written: {name} is not finite after {iteration} steps, so training has diverged; "
            "lower SOLVER.BASE_LR, or check INPUT.MEAN and INPUT.STD"
        )
    path.parent.mkdir(exist_ok=True)  # not the run folder, which may have been moved
    with atomic_write(path) as file:
        torch.save(state, file)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """What `save_checkpoint` wrote, on the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedCheckpoint: it is cut off, its bytes are not those that were written, a value is of the wrong
            type, or a number is NaN or infinite.
        UserError: it is not a checkpoint of this package, or of a later version of it.
    """
    if not path.exists():
        raise FileNotFoundError(f"checkpoint {path} does not exist; {how_to_make(path)}")
    try:
        state = read_torch_file(path, "checkpoint")
    except DataError as error:
        raise DamagedCheckpoint(str(error)) from error
    if not isinstance(state, dict) or not _TYPES.keys() <= state.keys():
        raise UserError(f"{path} is not a checkpoint written by detector train or self-train")
    if problem := _wrong_type(state):
        raise DamagedCheckpoint(f"checkpoint {path} is damaged: {problem}")
    version = state["version"]
    if TorchVersion(version) > __version__:
        raise UserError(f"{path} was written by detector {version}, this is {__version__}: install that one")
    if name := non_finite(state):
        raise DamagedCheckpoint(
            f"checkpoint {path} cannot be used: {name} is not finite, because training diverged; "
            "use an earlier one, or train again with a lower SOLVER.BASE_LR"
        )
    return state


def _wrong_type(state: Mapping[str, Any]) -> str | None:
    """The first entry that is not as `save_checkpoint` writes it; None: there is none."""
    optional: dict[str, type[Any]] = {name: dict for name in ("optimizer", "scaler") if name in state}
    for name, kind in (_TYPES | optional).items():
        value = state[name]
        if not isinstance(value, kind):
            return f"{name} is a {type(value).__name__}, expected a {kind.__name__}"
        if name in _LEAST and not _LEAST[name] <= value <= _LONGEST:
            return f"{name} is {describe_value(value)}, expected {_LEAST[name]} to {_LONGEST:g}"
    if not _VERSION.fullmatch(state["version"]):
        return f"version is {describe_value(state['version'])}, expected one such as {__version__}"
    for name, tensor in state["model"].items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            return f"model.{str(name)[:200]} is a {type(tensor).__name__}, expected a tensor"
    return None


def restore_model(model: nn.Module, checkpoint: dict[str, Any], path: Path) -> None:
    """Load the weights of a checkpoint.

    Raises:
        UserError: it is of another model; names what differs.
    """
    own, saved = model.state_dict(), checkpoint["model"]
    differing = [f"it lacks {key}" for key in own if key not in saved]
    differing += [f"it has {key}, which the model lacks" for key in saved if key not in own]
    differing += [
        f"{key} is {saved[key].dtype} {tuple(saved[key].shape)}, in the model {own[key].dtype} {tuple(shape)}"
        for key, shape in ((key, own[key].shape) for key in own if key in saved)
        if saved[key].shape != shape or saved[key].dtype != own[key].dtype
    ]
    if differing:
        raise UserError(
            f"checkpoint {path} is of another model: {shortened(differing, 3, '; ')}. "
            "Use the config that it was trained with: config.yaml in its run folder"
        )
    model.load_state_dict(saved)


def restore_optimizer(optimizer: Optimizer, checkpoint: dict[str, Any], path: Path) -> None:
    """Load the optimizer's momenta; learning rates and decays stay those of `optimizer`, as configured.

    Raises:
        UserError: the checkpoint has no momenta, those of other parameters, or of another optimizer.
    """
    if "optimizer" not in checkpoint:
        raise UserError(f"{path} has weights only; resuming needs a file of the checkpoints folder")
    groups, saved = optimizer.state_dict()["param_groups"], checkpoint["optimizer"]
    parameters = dict(
        enumerate(parameter for group in optimizer.param_groups for parameter in group["params"])
    )
    expected = _OPTIMIZER_STATE.get(type(optimizer).__name__)
    with reading(path, "checkpoint"):  # names the file where the state has another form
        if [len(group["params"]) for group in saved["param_groups"]] != [len(g["params"]) for g in groups]:
            raise UserError(
                "it was made with other parameters frozen; resume with config.yaml of its run folder"
            )
        for index, values in saved["state"].items():
            if expected is not None and values.keys() != expected:
                kept = shortened([str(name) for name in values])
                raise UserError(
                    f"it was saved by another optimizer, which keeps {kept} for each parameter; "
                    f"{type(optimizer).__name__} keeps {', '.join(sorted(expected))}"
                )
            for name, value in values.items():
                shape = torch.Size() if name == "step" else parameters[index].shape
                if value is not None and value.shape != shape:  # torch compares only the numbers of tensors
                    found, wanted = tuple(value.shape), tuple(shape)
                    raise DataError(f"{name} of parameter {index} is {found}, expected a tensor {wanted}")
        optimizer.load_state_dict({"state": saved["state"], "param_groups": groups})

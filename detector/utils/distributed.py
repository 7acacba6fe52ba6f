"""One program in several processes that torchrun started: who is who, and what they tell each other.

Everything here holds for a single process without torchrun too: it has rank 0 of 1.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

_REPORTING = 1.0  # seconds that the others leave the main process to say why all stop


def rank() -> int:
    """Number of this process, from 0."""
    return _environment("RANK", 0)


def world_size() -> int:
    """Number of processes, on all machines."""
    return _environment("WORLD_SIZE", 1)


def local_rank() -> int:
    """Number of this process on its machine, from 0: that of its GPU."""
    return _environment("LOCAL_RANK", 0)


def restarts() -> int:
    """How often torchrun has started these processes again after one died (its --max-restarts)."""
    return _environment("TORCHELASTIC_RESTART_COUNT", 0)


def is_main() -> bool:
    """Is this the process that logs, writes and draws for all?"""
    return rank() == 0


@contextmanager
def process_group(device: torch.device, timeout: float) -> Iterator[None]:
    """Join the processes that torchrun started, if it did: NCCL between GPUs, gloo between CPUs.

    Args:
        device: of this process.
        timeout: seconds to wait for the others before giving up with an error.
    """
    if not dist.is_torchelastic_launched():
        yield
        return
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"  # objects travel from CPU to CPU, and never wait for a GPU
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    # Left by an error it stays open: closing it could wait for a process that is gone.
    yield
    dist.destroy_process_group()


def gather(value: Any) -> list[Any]:
    """`value` of every process by rank, in every process; anything that can be pickled."""
    if not dist.is_initialized():
        return [value]
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


@contextmanager
def together() -> Iterator[None]:
    """All processes get through the block, or none does: what one cannot do is raised once, by the main one.

    For set-up, where every process does the same and none waits for another in the block.

    Raises:
        ValueError, OSError: what the main process met; else ValueError with what another did.
    """
    error: ValueError | OSError | None = None
    try:
        yield
    except (ValueError, OSError) as caught:
        error = caught
    messages = gather(None if error is None else str(error))
    failed = [(number, message) for number, message in enumerate(messages) if message is not None]
    if failed:
        number, message = failed[0]
        raise_once(error if is_main() and error else ValueError(f"rank {number}: {message}"))


def raise_once(error: Exception) -> NoReturn:
    """Raise an error that all processes know of in the main one; the others leave without a word."""
    if is_main():
        raise error
    time.sleep(_REPORTING)  # torchrun stops all as soon as one has left
    raise SystemExit(1)


def replicate(model: nn.Module) -> nn.Module:
    """The model with gradients averaged over the processes; as it is where there is one process."""
    if world_size() == 1:
        return model
    # Without device_ids it leaves the inputs where they are: the counts of a batch belong on the CPU.
    return DistributedDataParallel(model)


def _environment(name: str, alone: int) -> int:
    # Job schedulers set RANK and the like as well, for their own ends.
    return int(os.environ[name]) if dist.is_torchelastic_launched() else alone

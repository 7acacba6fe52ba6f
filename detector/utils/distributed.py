"""One program in several processes that torchrun started: who is who, and what they tell each other.

Everything here holds for a single process without torchrun too: it has rank 0 of 1.
"""

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from detector.utils.errors import UserError

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


def local_world_size() -> int:
    """Number of processes on this machine."""
    return _environment("LOCAL_WORLD_SIZE", 1)


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
        torch.cuda.set_device(local_rank())
        backend = "cpu:gloo,cuda:nccl"  # objects travel from CPU to CPU, and never wait for a GPU
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout), **_meeting_place())
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
        UserError, OSError: the error of the main process; else a UserError with that of another process.
    """
    error: UserError | OSError | None = None
    try:
        yield
    except (UserError, OSError) as caught:
        error = caught
    messages = gather(None if error is None else str(error))
    failed = [(number, message) for number, message in enumerate(messages) if message is not None]
    if failed:
        number, message = failed[0]
        raise_once(error if is_main() and error else UserError(f"rank {number}: {message}"))


def leave_to_another() -> bool:
    """Is it for another process to say what went wrong? Before all have met those of a machine fail alike."""
    if dist.is_initialized() or local_rank() == 0:
        return False
    time.sleep(_REPORTING)
    return True


def raise_once(error: Exception) -> NoReturn:
    """Raise an error that all processes know of in the main one; the others leave without a word."""
    if is_main():
        raise error
    time.sleep(_REPORTING)  # torchrun stops all as soon as one has left
    raise SystemExit(1)


def is_lost_process(error: Exception) -> bool:
    """Is it torch's way to say that another process has gone, or does not answer in time?"""
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and world_size() > 1 and "gloo" in str(error)


def replicate(model: nn.Module) -> nn.Module:
    """The model with gradients averaged over the processes; as it is where there is one process."""
    if world_size() == 1:
        return model
    # Without device_ids it leaves the inputs where they are: the counts of a batch belong on the CPU. The
    # view spares a copy of all gradients.
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def no_sync(model: nn.Module) -> AbstractContextManager[None]:
    """Where gradients of what `replicate` returned are added up in their process, not yet averaged."""
    return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()


def _meeting_place() -> dict[str, Any]:
    """How `init_process_group` finds the others, where torchrun's own way does not do.

    After a restart torchrun lends the store of the first start once more, in which gloo and NCCL would find
    the addresses of processes that are gone (pytorch issue 135712); so would a second group of the same
    processes, as of `detector.train` and then `detector.evaluate`. So each group has names of its own: the
    store counts the groups that each process has joined since the start. On several machines the counts of
    restarts may differ; docs/distributed.md says what to do there.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or os.environ.get("GROUP_WORLD_SIZE") != "1":
        return {}
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    group = store.add(f"groups_{restarts()}_{rank()}", 1)
    named = dist.PrefixStore(f"start_{restarts()}_group_{group}", store)
    return {"store": named, "rank": rank(), "world_size": world_size()}


def _environment(name: str, alone: int) -> int:
    # Job schedulers set RANK and the like as well, for their own ends.
    return int(os.environ.get(name, alone)) if dist.is_torchelastic_launched() else alone

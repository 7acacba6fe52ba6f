"""Ranks and collectives of the processes that torchrun started.

Without torchrun there is one process, which has rank 0.
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

from detector.utils.errors import UserError, counted
from detector.utils.ranks import is_main as is_main
from detector.utils.ranks import local_rank as local_rank
from detector.utils.ranks import local_world_size as local_world_size
from detector.utils.ranks import rank as rank
from detector.utils.ranks import restarts as restarts
from detector.utils.ranks import world_size as world_size

LONG_WAIT = 24 * 3600.0  # seconds: another process may have much larger images, or draw pictures
_REPORTING = 1.0  # seconds that the other processes give the main one to report why all stop


def find_device(device: str | torch.device = "auto") -> torch.device:
    """The device of a name; "auto" is a GPU if there is one. Under torchrun each process has its own GPU.

    Raises:
        UserError: there is no such device.
    """
    available = torch.cuda.is_available()
    if device == "auto":
        device = "cuda" if available else "cpu"
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):  # TypeError: of another type, such as a dict of config keys
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise UserError(f"device is {device!r}, expected 'auto', 'cpu' or 'cuda'")
    if found.type == "cuda" and not available:
        raise UserError(
            f"device is {str(device)!r}, but torch finds no CUDA device; use 'auto' or 'cpu' "
            "(the key DEVICE of a config, --device of a command)"
        )
    if found.index is not None and found.type == "cuda":
        _check_gpu(found.index)
    if found.type == "cpu" or found.index is not None or world_size() == 1:
        return found
    if local_world_size() > torch.cuda.device_count():
        raise UserError(
            f"{local_world_size()} processes were started where there are {torch.cuda.device_count()} GPUs; "
            "give torchrun --nproc_per_node of at most that, or use the device cpu"
        )
    return torch.device("cuda", local_rank())


def _check_gpu(index: int) -> None:
    """Raise UserError if there is no GPU of this index, or if torchrun gave this process another one."""
    count = torch.cuda.device_count()
    if index >= count:
        found = counted(count, "GPU", "GPUs")
        raise UserError(f"device is 'cuda:{index}', but torch finds {found}, from cuda:0; use 'cuda'")
    if local_world_size() > 1 and index != local_rank():
        raise UserError(
            f"device is 'cuda:{index}' in process {local_rank()} of {local_world_size()}, expected 'cuda', "
            f"which is cuda:{local_rank()}: under torchrun each process has its own GPU"
        )


@contextmanager
def process_group(device: torch.device, timeout: float) -> Iterator[None]:
    """Join the processes that torchrun started: NCCL between GPUs, gloo between CPUs.

    Args:
        device: of this process.
        timeout: seconds to wait for other processes before an error.
    """
    if not dist.is_torchelastic_launched():
        yield
        return
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(local_rank())
        backend = "cpu:gloo,cuda:nccl"  # objects are sent between CPUs without waiting for a GPU
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout), **_own_store())
    # After an error it stays open, because closing it could wait for a process that has ended.
    yield
    dist.destroy_process_group()


def gather(value: Any) -> list[Any]:
    """The `value` of every process, by rank; it must be picklable."""
    if not dist.is_initialized():
        return [value]
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


@contextmanager
def sync_errors() -> Iterator[None]:
    """Run a block in every process; an error in one of them ends all, and is reported once.

    For set-up code in which no process waits for another.

    Raises:
        UserError, OSError: the error of the main process, or a UserError with the message of another one.
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
    """Whether another process reports an error: before they join, all processes of a machine fail alike."""
    if dist.is_initialized() or local_rank() == 0:
        return False
    time.sleep(_REPORTING)
    return True


def raise_once(error: Exception) -> NoReturn:
    """Raise an error that all processes have in the main one; the others exit silently."""
    if is_main():
        raise error
    time.sleep(_REPORTING)  # torchrun stops all processes as soon as one exits
    raise SystemExit(1)


def is_lost_process(error: Exception) -> bool:
    """Whether torch's `error` means that another process has ended or does not answer in time."""
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and world_size() > 1 and "gloo" in str(error)


def replicate(model: nn.Module) -> nn.Module:
    """The model with gradients averaged over the processes; unchanged if there is only one."""
    if world_size() == 1:
        return model
    # Without device_ids the inputs stay on their devices: the counts of a batch belong on the CPU. The view
    # avoids a copy of all gradients.
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def no_sync(model: nn.Module) -> AbstractContextManager[None]:
    """A context in which the gradients of a replicated model accumulate without being averaged."""
    return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()


def _own_store() -> dict[str, Any]:
    """Arguments of `init_process_group` that give each group its own prefix in torchrun's store.

    After a restart, torchrun reuses the store, in which gloo and NCCL would find the addresses of processes
    that have ended (pytorch issue 135712). So would a second group of the same processes, such as that of
    `detector.evaluate` after `detector.train`. The prefix has the number of restarts and of the groups that
    this process has joined since. On several machines the number of restarts may differ; see
    docs/distributed.md.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or os.environ.get("GROUP_WORLD_SIZE") != "1":
        return {}
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    group = store.add(f"groups_{restarts()}_{rank()}", 1)
    named = dist.PrefixStore(f"start_{restarts()}_group_{group}", store)
    return {"store": named, "rank": rank(), "world_size": world_size()}

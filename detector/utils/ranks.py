"""Which of the processes that torchrun started this one is: without torchrun, rank 0 of 1.

torch is not imported: what logs or answers a mistake asks for the rank, too.
"""

import os


def rank() -> int:
    """Rank of this process, from 0."""
    return _environment("RANK", 0)


def world_size() -> int:
    """Number of processes, on all machines."""
    return _environment("WORLD_SIZE", 1)


def local_rank() -> int:
    """Rank of this process on its machine, from 0, and the index of its GPU."""
    return _environment("LOCAL_RANK", 0)


def local_world_size() -> int:
    """Number of processes on this machine."""
    return _environment("LOCAL_WORLD_SIZE", 1)


def restarts() -> int:
    """Number of times that torchrun has restarted the processes after one died (its --max-restarts)."""
    return _environment("TORCHELASTIC_RESTART_COUNT", 0)


def is_main() -> bool:
    """Whether this process, rank 0, logs and writes files for all."""
    return rank() == 0


def _environment(name: str, default: int) -> int:
    # Job schedulers set RANK and similar variables too.
    return int(os.environ.get(name, default)) if "TORCHELASTIC_RUN_ID" in os.environ else default

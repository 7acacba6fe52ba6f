"""What torch's errors about the worker processes of a DataLoader mean, and what the user can do."""

from detector.utils.errors import UserError

TIMED_OUT = "DataLoader timed out"  # how torch's message begins


def worker_failure(error: BaseException) -> UserError | None:
    """The error for the user, if torch's `error` says that a worker has died or does not answer; else None.

    Torch raises it wherever the main process is when a worker dies, which may be in the middle of a step.
    """
    text = str(error).partition("\n")[0].rstrip(". ")
    if not isinstance(error, RuntimeError):
        return None
    if text.startswith(TIMED_OUT):
        return UserError(
            f"the processes that read images gave no batch in time ({text}): one of them was stopped, or the "
            "disk does not answer. DATASETS.WORKERS 0 reads in the main process and shows where it waits"
        )
    if text.startswith("DataLoader worker (pid"):
        return UserError(
            f"a process that reads images has died ({text}). Most likely there was too little memory, or "
            "shared memory (/dev/shm; in a container see docker run --shm-size): set DATASETS.WORKERS lower; "
            "0 needs no further process"
        )
    return None

"""A DataLoader with errors that say what to do when a worker process dies or hangs."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.queues import Queue
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from detector.data.batch_order import SeededBatches
from detector.utils.errors import TIMED_OUT, UserError, worker_failure

# Seconds without a batch, twice in a row, after which workers count as hung. A batch takes about a second,
# but a network drive may pause for minutes.
_WORKER_TIMEOUT = 300


class WorkerLoader(DataLoader):
    """A DataLoader that raises a UserError if a worker process dies or does not answer.

    Args:
        workers: processes that read images; 0: this process reads.
        options: further arguments of DataLoader.
    """

    def __init__(self, dataset: Dataset, *, workers: int, **options: Any):
        super().__init__(
            dataset,
            num_workers=workers,
            persistent_workers=workers > 0,
            timeout=_WORKER_TIMEOUT if workers else 0,
            worker_init_fn=_begin_worker,
            # DataLoader draws a seed for its workers. Drawn from the global generator, it would change the
            # random numbers of the model (dropout) after a resume.
            generator=torch.Generator(),
            **options,
        )

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return _explain_errors(super().__iter__())


def _begin_worker(_: int) -> None:
    """End this worker if it cannot send a batch, for example for lack of shared memory.

    Otherwise the thread of multiprocessing drops the batch, and the main process waits for ten minutes.
    """
    Queue._on_queue_feeder_error = staticmethod(_end_worker)  # type: ignore[attr-defined]


def _end_worker(error: Exception, _: object) -> None:
    reason = str(error).partition("\n")[0] or type(error).__name__
    sys.stderr.write(f"a process that reads images cannot send them: {reason}\n")
    sys.stderr.flush()
    os._exit(1)


def seeded_loader(
    dataset: Dataset,
    collate: Callable[[Sequence], object],
    *,
    images_per_batch: int,
    seed: int,
    workers: int = 0,
    **options: Any,
) -> WorkerLoader:
    """Endless batches of items `dataset[index, draw]`, the same for any number of `workers`.

    Args:
        collate: makes a batch, which has the method `pin_memory`, of items.
        workers: processes that read images; 0: this process.
        options: of :class:`SeededBatches`.
    """
    return WorkerLoader(
        dataset,
        workers=workers,
        batch_sampler=SeededBatches(len(dataset), images_per_batch, seed, **options),  # type: ignore[arg-type]
        collate_fn=collate,
        pin_memory=torch.cuda.is_available(),  # Batch.to(..., non_blocking=True) requires it
    )


def _explain_errors(batches: Any) -> Iterator[Any]:
    """The items of a DataLoader's iterator; errors of its workers say what the user can do."""
    may_wait = True
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        except (UserError, OSError) as error:
            if "DataLoader worker process" not in str(error).partition("\n")[0]:
                raise
            raise _without_traceback(error) from error
        except RuntimeError as error:
            timed_out = str(error).startswith(TIMED_OUT)
            if timed_out and may_wait:  # this also happens after this process was suspended
                may_wait = False
                continue
            if timed_out:
                _kill_workers(batches)
            if failure := worker_failure(error):
                raise failure from error
            raise
        may_wait = True
        yield batch


def _kill_workers(batches: Any) -> None:
    """Kill the workers of a DataLoader's iterator: Python would wait at exit for one that is suspended."""
    batches._shutdown_workers()  # first, so that torch does not report killed workers
    for worker in batches._workers:
        worker.kill()
        worker.join()


def _without_traceback(error: Exception) -> Exception:
    """The error as a worker raised it: DataLoader puts the worker's traceback into its message.

    str(error) may lack the end of that, see :class:`UserError`.
    """
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return kind(str(error.args[0]).rpartition(f"\n{name}: ")[2].strip())

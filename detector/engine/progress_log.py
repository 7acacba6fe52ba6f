"""The progress of training: a bar or log lines, and TensorBoard's events."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from detector.utils.distributed import is_main
from detector.utils.logging import PROGRESS, STEP
from detector.utils.progress import duration, progress_bar

logger = logging.getLogger(__name__)


class ProgressLog:
    """Counts steps and images; reports values, the speed and the time left.

    Only the main process writes: in the others `writer` is None. Where standard error is no terminal, ten log
    lines replace the bar.
    """

    def __init__(self, writer: SummaryWriter | None, start: int, max_iter: int) -> None:
        self.writer = writer
        self._start, self._max_iter, self._images = start, max_iter, 0
        self._began = self._reported = time.perf_counter()
        self._tenths = 10 * start // max_iter  # of the steps, of which the console was told
        self._ap: dict[str, float] = {}  # the last one
        self.bar = progress_bar(total=max_iter, initial=start, unit="step", shown=is_main())

    def add(self, images: int) -> None:
        """Count a step, on so many images."""
        self.bar.update()
        self._images += images

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()

    def report(self, iteration: int, values: Mapping[str, float]) -> None:
        """Write the values after step `iteration`."""
        now = time.perf_counter()
        values = {**values, "images/s": self._images / (now - self._reported)}
        self._images, self._reported = 0, now
        if self.writer is None:
            return
        for name, value in values.items():
            self.writer.add_scalar(f"train/{name}", value, iteration)
        loss = {"loss": values["loss"]} if "loss" in values else {}
        self.bar.set_postfix_str(_text(loss | self._ap))
        seconds_left = (now - self._began) / (iteration - self._start) * (self._max_iter - iteration)
        tenths = 10 * iteration // self._max_iter
        level = PROGRESS if self.bar.disable and tenths > self._tenths else STEP
        self._tenths = tenths
        left = duration(seconds_left)
        logger.log(level, "step %d/%d  %s  time left %s", iteration, self._max_iter, _text(values), left)

    def report_ap(self, iteration: int, ap: float) -> None:
        """Write the AP50, in percent, that some test images have after step `iteration`."""
        self._ap = {"AP50": ap}
        if self.writer is not None:
            self.writer.add_scalar("train/AP50", ap, iteration)
        level = PROGRESS if self.bar.disable else STEP
        logger.log(level, "step %d/%d  AP50 %.1f on some test images", iteration, self._max_iter, ap)


@contextmanager
def open_progress_log(folder: Path, start: int, max_iter: int) -> Iterator[ProgressLog]:
    """A log of the steps after `start`, with TensorBoard's events in `folder`.

    Raises:
        OSError: the events could not be written; names the folder.
    """
    with _quiet_writer_thread():
        try:
            writer = SummaryWriter(folder, purge_step=start + 1) if is_main() else None
            if writer:  # its thread opens the file now, not where the folder was a moment ago
                writer.flush()
            progress = ProgressLog(writer, start, max_iter)
            try:
                with progress.bar:
                    yield progress
            except BaseException:
                with suppress(OSError):  # it would hide the error that ended the block
                    progress.close()
                raise
            progress.close()
        except OSError as error:  # that of a full disk names no file
            if error.strerror is None or error.filename is not None or not is_main():
                raise
            raise OSError(f"cannot write the TensorBoard events in {folder}: {error.strerror}") from error


@contextmanager
def _quiet_writer_thread() -> Iterator[None]:
    """Print no traceback of TensorBoard's writer thread, whose OSError is raised in this thread again."""
    before = threading.excepthook

    def hook(arguments: threading.ExceptHookArgs) -> None:
        in_writer = type(arguments.thread).__module__.startswith("tensorboard")
        if not (in_writer and issubclass(arguments.exc_type, OSError)):
            before(arguments)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


def _text(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.3g}" for name, value in values.items())

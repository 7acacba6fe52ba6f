"""The training loop."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from detector.engine.checkpoint import save_checkpoint
from detector.engine.loss_log import LossLog, NonFiniteLoss
from detector.engine.precision import Precision
from detector.engine.resuming import checkpoint_path, remove_old_checkpoints
from detector.engine.schedule import logged_lr, set_lr
from detector.engine.snapshots import Snapshots
from detector.structures import Batch
from detector.utils.distributed import is_lost_process, is_main, no_sync, rank, replicate, world_size
from detector.utils.errors import UserError
from detector.utils.interrupts import uninterrupted
from detector.utils.reproducibility import seed_batch
from detector.utils.torch_file import non_finite

logger = logging.getLogger(__name__)


def train(
    model: nn.Module,
    criterion: Callable[..., Mapping[str, Tensor]],
    optimizer: Optimizer,
    batches: Iterable[Batch],
    *,
    folder: Path,
    device: torch.device,
    seed: int,
    max_iter: int,
    lr_factor: Callable[..., float],
    accumulate: int = 1,
    gradient_factor: float = 1.0,
    scale_momentum: bool = False,
    clip_norm: float = 0.0,
    log_period: int = 20,
    checkpoint_period: int = 2500,
    keep_checkpoints: int = 2,
    snapshots: Snapshots | None = None,
    config: str = "",
    start: int = 0,
    train_seconds: float = 0.0,
    precision: Precision | None = None,
) -> float:
    """Train from step `start` to step `max_iter`; returns the seconds that all steps took, earlier ones too.

    What a step does is a function of the weights, the optimizer's state, its batches and (seed, iteration),
    so a run that is resumed from a checkpoint equals one that was never interrupted. On Ctrl-C the state
    after the last complete step is saved as a checkpoint.

    If torchrun started several processes, each calls this with its own batches. A step averages the
    gradients of all; process r of W makes of each step the batches r, r + W, r + 2W, ... that one process
    which accumulates W times as many would make, and draws what that would draw. The main process logs and
    writes, for all.

    Args:
        criterion: (outputs, batch) to losses by name; their sum is minimized.
        batches: endless, and already at the batch that follows step `start`.
        folder: run folder; takes the events of TensorBoard, checkpoints/, snapshots/ and model_final.pt.
        lr_factor: number of finished steps, and perhaps the `gamma` of a parameter group, to the factor of
            the learning rate.
        accumulate: batches of this process whose gradients are averaged into one step.
        gradient_factor: of that average; the images per step make it the sum over images.
        scale_momentum: of :func:`detector.engine.schedule.set_lr`.
        clip_norm: longest gradient (2-norm over all parameters); 0: not clipped.
        keep_checkpoints: how many of the newest to keep.
        snapshots: what periodically takes pictures of the streams; None: nothing does.
        config: text that the checkpoints carry, compared when a run is resumed.
        start: steps already done.
        train_seconds: seconds that they took.
        precision: what the model computes in; None: float32.

    Raises:
        NonFiniteLoss: a loss, a score or the gradient is NaN or infinite, in any process; names the step and
            the images. It is in no checkpoint.
        UserError: the criterion refused a batch; names the images. Or the weights are not finite.
        OSError: a checkpoint or the events could not be written; earlier checkpoints are intact.
    """
    batches, replica = iter(batches), replicate(model)
    precision = precision or Precision("float32", device)
    loss_log, images_seen = LossLog(), 0
    divisor = accumulate / gradient_factor  # of each batch's loss
    began = last_log = time.perf_counter()
    done = saved = start  # steps
    buffers = list(model.buffers())  # batch norm that is trained changes them in the forward pass
    buffers_after_step = [buffer.clone() for buffer in buffers]

    def save(path: Path, iteration: int, optimizer: Optimizer | None) -> float:
        seconds = train_seconds + time.perf_counter() - began
        if is_main():
            save_checkpoint(
                path,
                model,
                optimizer,
                iteration=iteration,
                train_seconds=seconds,
                batches_per_step=accumulate * world_size(),
                config=config,
                scaler=None if optimizer is None else precision.scaler,
            )
        return seconds

    model.train()
    try:
        with _open_events(folder, start) as writer, _open_bar(start, max_iter) as bar:
            for iteration in range(start + 1, max_iter + 1):
                log_now = iteration % log_period == 0 or iteration == max_iter
                save_now = iteration % checkpoint_period == 0 or iteration == max_iter
                set_lr(optimizer, lr_factor, iteration - 1, scale_momentum=scale_momentum)
                image_ids: tuple[str, ...] = ()
                for number in range(accumulate):
                    batch = next(batches).to(device, non_blocking=True)
                    seed_batch(seed, iteration, number * world_size() + rank())
                    # The last backward pass of a step averages the gradients over the processes.
                    with nullcontext() if number == accumulate - 1 else no_sync(replica):
                        _add_gradient(replica, criterion, batch, divisor, loss_log, precision, iteration)
                    image_ids += batch.image_ids
                gradient_norm = _gradient_norm(optimizer, precision)
                loss_log.add({"gradient_norm": precision.logged_norm(gradient_norm)}, image_ids, iteration)
                # On a GPU the check waits for the device: it is made only where the log reads the values
                # anyway, and before a checkpoint, which must not hold what a non-finite loss did. On the CPU
                # it is free.
                if device.type == "cpu" or log_now or save_now:
                    loss_log.check()
                    precision.check(iteration, image_ids)
                if clip_norm > 0:
                    clip_grads_with_norm_(_parameters(optimizer), clip_norm, gradient_norm)
                with uninterrupted():  # the weights change here and nowhere else
                    precision.scaler.step(optimizer)
                    precision.scaler.update()
                    _copy(buffers, buffers_after_step)
                    done = iteration
                optimizer.zero_grad(set_to_none=True)

                bar.update()
                images_seen += len(image_ids) * world_size()
                now = time.perf_counter()
                if log_now:
                    values = loss_log.means() | logged_lr(optimizer)
                    values["images/s"] = images_seen / (now - last_log)
                    seconds_left = (now - began) / (iteration - start) * (max_iter - iteration)
                    if writer is not None:
                        _report(iteration, max_iter, values, seconds_left, writer, bar)
                    images_seen, last_log = 0, now
                if writer is not None and snapshots is not None and snapshots.due(iteration, max_iter):
                    snapshots.take(model, iteration, folder, writer)
                if save_now:
                    save(checkpoint_path(folder, iteration), iteration, optimizer)
                    saved = iteration
                    if is_main():
                        remove_old_checkpoints(folder, iteration, keep_checkpoints)
    except KeyboardInterrupt:
        if done > saved:
            try:
                loss_log.check_own()  # of a non-finite loss nothing is saved
                _copy(buffers_after_step, buffers)
                save(checkpoint_path(folder, done), done, optimizer)
            except (UserError, OSError) as error:
                logger.error("error: no checkpoint of step %d: %s", done, error)
        raise
    return save(folder / "model_final.pt", max(start, max_iter), None)


@contextmanager
def _open_events(folder: Path, start: int) -> Iterator[SummaryWriter | None]:
    """Where the main process writes for TensorBoard; None in the others."""
    if not is_main():
        yield None
        return
    with _naming_events(folder), _quiet_writer_thread():
        writer = SummaryWriter(folder, purge_step=start + 1)
        try:
            yield writer
        except BaseException:
            with suppress(OSError):  # it would hide the error that ended the block
                writer.close()
            raise
        writer.close()


@contextmanager
def _quiet_writer_thread() -> Iterator[None]:
    """Print no traceback of TensorBoard's writer thread: it raises its OSError in this thread once more."""
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


@contextmanager
def _naming_events(folder: Path) -> Iterator[None]:
    """Name the events of TensorBoard in an OSError that names no file, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.strerror is None or error.filename is not None:
            raise
        raise OSError(f"cannot write the TensorBoard events in {folder}: {error.strerror}") from error


def _open_bar(start: int, max_iter: int) -> tqdm:
    # None: no bar where there is no screen to draw it on; log lines take its place there.
    disable = None if is_main() else True
    return tqdm(total=max_iter, initial=start, unit="step", disable=disable, dynamic_ncols=True)


def _add_gradient(
    model: nn.Module,
    criterion: Callable[..., Mapping[str, Tensor]],
    batch: Batch,
    divisor: float,
    loss_log: LossLog,
    precision: Precision,
    step: int,
) -> None:
    """Add the gradient of one of the batches of a step, divided by `divisor`, to that of the parameters."""
    outputs = None
    try:
        with precision.autocast():
            outputs = model(*batch.inputs)
        losses = criterion(outputs, batch)
    except (ValueError, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError) or is_lost_process(error):
            raise
        # Layers and criteria refuse NaN, each in its own words. The cause may be a loss that is not yet read.
        loss_log.check_own()
        if non_finite(outputs) or not all(p.isfinite().all() for p in model.parameters()):
            raise NonFiniteLoss.at(step, "the scores are not finite", batch.image_ids) from error
        if not isinstance(error, ValueError):
            raise
        raise UserError(f"images {', '.join(batch.image_ids)}: {error}") from error
    loss = torch.stack(list(losses.values())).sum()
    precision.scaler.scale(loss / divisor).backward()
    loss_log.add({"loss": loss, **losses}, batch.image_ids, step)


def _gradient_norm(optimizer: Optimizer, precision: Precision) -> Tensor:
    """The 2-norm of the gradient over all parameters, which is unscaled first (float16 only)."""
    precision.scaler.unscale_(optimizer)
    return get_total_norm(p.grad for p in _parameters(optimizer) if p.grad is not None)


@torch.no_grad()
def _copy(source: list[Tensor], target: list[Tensor]) -> None:
    if source:
        torch._foreach_copy_(target, source)


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _report(
    iteration: int,
    max_iter: int,
    values: Mapping[str, float],
    seconds_left: float,
    writer: SummaryWriter,
    bar: tqdm,
) -> None:
    for name, value in values.items():
        writer.add_scalar(f"train/{name}", value, iteration)
    on_bar = {
        name: value for name, value in values.items() if name not in ("gradient_norm", "lr", "lr_backbone")
    }
    bar.set_postfix_str(_text(on_bar))
    level = logging.INFO if bar.disable else logging.DEBUG  # DEBUG goes to the log file only
    left = timedelta(seconds=round(seconds_left))
    logger.log(level, "step %d/%d  %s  time left %s", iteration, max_iter, _text(values), left)


def _text(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.3g}" for name, value in values.items())

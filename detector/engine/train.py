"""The training loop."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from detector.engine.checkpoint import save_checkpoint
from detector.engine.loss_log import LossLog
from detector.engine.precision import Precision
from detector.engine.resuming import checkpoint_path, remove_old_checkpoints
from detector.engine.schedule import set_lr
from detector.engine.snapshots import Snapshots
from detector.structures import Batch
from detector.utils.distributed import is_main, no_sync, rank, replicate, world_size
from detector.utils.errors import UserError
from detector.utils.reproducibility import seed_batch

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
    lr_factor: Callable[[int], float],
    accumulate: int = 1,
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
    """Train from step `start` to step `max_iter`; returns the seconds that all steps took, those before too.

    What a step does is a function of the weights, the optimiser's state, its batches and (seed, iteration),
    so a run that goes on from a checkpoint equals one that was never interrupted.

    Where torchrun started several processes each calls this with its own batches. A step averages the
    gradients of all; process r of W makes of each step the batches r, r + W, r + 2W, ... that one process
    which accumulates W times as many would make, and draws what that would draw. The main process logs and
    writes, for all.

    Args:
        criterion: (outputs, batch) to losses by name; their sum is what is minimised.
        batches: endless, and already at the batch that follows step `start`.
        folder: run folder; takes the events of TensorBoard, checkpoints/, snapshots/ and model_final.pt.
        lr_factor: number of finished steps to the factor of the learning rate.
        accumulate: batches of this process whose gradients are averaged into one step.
        clip_norm: longest gradient (2-norm over all parameters); 0: not clipped.
        keep_checkpoints: how many of the newest to keep.
        snapshots: what takes pictures of the streams now and then; None: nothing does.
        config: text that the checkpoints carry, for who goes on from one to compare.
        start: steps already done.
        train_seconds: seconds that they took.
        precision: what the model computes in; None: float32.

    Raises:
        NonFiniteLoss: a loss or the gradient is NaN or infinite, in any process; names the images. It is in
            no checkpoint.
        ValueError: the criterion refused a batch; names the images.
        OSError: a checkpoint could not be written; earlier ones are intact.
    """
    batches, replica = iter(batches), replicate(model)
    precision = precision or Precision("float32", device)
    loss_log, images_seen = LossLog(), 0
    saved = {"batches_per_step": accumulate * world_size(), "config": config}
    began = last_log = time.perf_counter()
    model.train()
    with _open_events(folder, start) as writer, _open_bar(start, max_iter) as bar:
        for iteration in range(start + 1, max_iter + 1):
            log_now = iteration % log_period == 0 or iteration == max_iter
            save_now = iteration % checkpoint_period == 0 or iteration == max_iter
            set_lr(optimizer, lr_factor(iteration - 1))
            image_ids: tuple[str, ...] = ()
            for number in range(accumulate):
                batch = next(batches).to(device, non_blocking=True)
                seed_batch(seed, iteration, number * world_size() + rank())
                # The last backward pass of a step averages the gradients over the processes.
                with nullcontext() if number == accumulate - 1 else no_sync(replica):
                    _add_gradient(replica, criterion, batch, accumulate, loss_log, precision)
                image_ids += batch.image_ids
            # On a GPU the check waits for the device: it is made only where the log reads the values anyway,
            # and before a checkpoint, which must not hold what a non-finite loss did. On the CPU it is free.
            check = device.type == "cpu" or log_now or save_now
            _update(optimizer, clip_norm, loss_log, precision, image_ids, check)

            bar.update()
            images_seen += len(image_ids) * world_size()
            now = time.perf_counter()
            if log_now:
                values = loss_log.means()
                values["lr"] = optimizer.param_groups[0]["lr"]
                values["images/s"] = images_seen / (now - last_log)
                seconds_left = (now - began) / (iteration - start) * (max_iter - iteration)
                if writer is not None:
                    _report(iteration, max_iter, values, seconds_left, writer, bar)
                images_seen, last_log = 0, now
            if writer is not None and snapshots is not None and snapshots.due(iteration, max_iter):
                snapshots.take(model, iteration, folder, writer)
            if save_now and is_main():
                saved |= {"iteration": iteration, "train_seconds": train_seconds + now - began}
                path = checkpoint_path(folder, iteration)
                save_checkpoint(path, model, optimizer, scaler=precision.scaler, **saved)
                remove_old_checkpoints(folder, iteration, keep_checkpoints)
    seconds = train_seconds + time.perf_counter() - began
    if is_main():
        saved |= {"iteration": max(start, max_iter), "train_seconds": seconds}
        save_checkpoint(folder / "model_final.pt", model, None, **saved)
    return seconds


def _open_events(folder: Path, start: int) -> AbstractContextManager[SummaryWriter | None]:
    """Where the main process writes for TensorBoard; None in the others."""
    return closing(SummaryWriter(folder, purge_step=start + 1)) if is_main() else nullcontext()


def _open_bar(start: int, max_iter: int) -> tqdm:
    # None: no bar where there is no screen to draw it on; log lines take its place there.
    disable = None if is_main() else True
    return tqdm(total=max_iter, initial=start, unit="step", disable=disable, dynamic_ncols=True)


def _add_gradient(
    model: nn.Module, criterion, batch: Batch, accumulate: int, loss_log: LossLog, precision: Precision
) -> None:
    """Add the gradient of one of the `accumulate` batches of a step to that of the parameters."""
    with precision.autocast():
        outputs = model(*batch.inputs)
    try:
        losses = criterion(outputs, batch)
    except ValueError as error:
        loss_log.check_own()  # scores that are not finite may be the doing of an earlier batch, not yet read
        raise UserError(f"images {', '.join(batch.image_ids)}: {error}") from error
    loss = torch.stack(list(losses.values())).sum()
    precision.scaler.scale(loss / accumulate).backward()
    loss_log.add({"loss": loss, **losses}, batch.image_ids)


def _update(
    optimizer: Optimizer,
    clip_norm: float,
    loss_log: LossLog,
    precision: Precision,
    image_ids: tuple[str, ...],
    check: bool,
) -> None:
    """Step along the gradient of these images, unless the check finds it or a loss not finite."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    scaler = precision.scaler  # does nothing but for float16
    scaler.unscale_(optimizer)
    gradient_norm = get_total_norm(p.grad for p in parameters if p.grad is not None)
    loss_log.add({"gradient_norm": precision.logged_norm(gradient_norm)}, image_ids)
    if check:
        loss_log.check()
        precision.check()
    if clip_norm > 0:
        clip_grads_with_norm_(parameters, clip_norm, gradient_norm)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)


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
    on_bar = {name: value for name, value in values.items() if name not in ("gradient_norm", "lr")}
    bar.set_postfix_str(_text(on_bar))
    level = logging.INFO if bar.disable else logging.DEBUG  # DEBUG goes to the log file only
    left = timedelta(seconds=round(seconds_left))
    logger.log(level, "step %d/%d  %s  time left %s", iteration, max_iter, _text(values), left)


def _text(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.3g}" for name, value in values.items())

"""The training loop."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from detector.engine.checkpoint import save_checkpoint
from detector.engine.loss_log import LossLog, NonFiniteLoss, training_warning
from detector.engine.precision import Precision
from detector.engine.progress_log import open_progress_log
from detector.engine.resuming import checkpoint_path, remove_old_checkpoints
from detector.engine.running_ap import RunningAP
from detector.engine.schedule import logged_lr, set_lr
from detector.engine.snapshots import Snapshots
from detector.structures import Batch
from detector.utils.distributed import is_lost_process, is_main, no_sync, rank, replicate, world_size
from detector.utils.errors import UserError
from detector.utils.interrupts import uninterrupted
from detector.utils.outputs import SameFolder
from detector.utils.reproducibility import seed_batch
from detector.utils.torch_file import non_finite

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainOptions:
    """How :func:`make_steps` makes its steps."""

    seed: int
    max_iter: int
    lr_factor: Callable[..., float]  # (finished steps, gamma of a parameter group) to a factor, see set_lr
    accumulate: int = 1  # batches of this process whose gradients are averaged into one step
    gradient_factor: float = 1.0  # of that average; the images per step make it the sum over images
    scale_momentum: bool = False  # see set_lr
    clip_norm: float = 0.0  # maximum 2-norm of the gradient of all parameters; 0: not clipped
    log_period: int = 20
    checkpoint_period: int = 2500
    keep_checkpoints: int = 2  # the newest


def make_steps(
    model: nn.Module,
    criterion: Callable[..., Mapping[str, Tensor]],
    optimizer: Optimizer,
    batches: Iterable[Batch],
    options: TrainOptions,
    *,
    folder: Path,
    precision: Precision,
    snapshots: Snapshots | None = None,
    running_ap: RunningAP | None = None,
    config: str = "",
    start: int = 0,
    train_seconds: float = 0.0,
    final: nn.Module | None = None,
) -> float:
    """Train from step `start` to the last one; returns the seconds that all steps took, earlier ones too.

    What a step does is a function of the weights, the optimizer's state, its batches and (seed, iteration),
    so a resumed run equals one that was never interrupted. On Ctrl-C the state after the last complete step
    is saved as a checkpoint.

    If torchrun started several processes, each calls this with its own batches, and a step averages the
    gradients of all. Process r of W takes the batches r, r + W, r + 2W, ... of each step, with the random
    numbers of one process that accumulates W times as many. The main process logs and writes for all.

    Args:
        criterion: (outputs, batch) to losses by name; their sum is minimized.
        batches: endless, starting with the batch that follows step `start`.
        folder: run folder, for TensorBoard's events, checkpoints/, snapshots/ and model_final.pt.
        precision: of the model, on its device.
        snapshots: what is recorded periodically; None: nothing.
        running_ap: measures `final` on some test images now and then; None: nothing does.
        config: text that the checkpoints carry.
        start: steps already done, which took `train_seconds`.
        final: the part of the model whose weights model_final.pt gets; None: all of it.

    Raises:
        NonFiniteLoss: a loss, a score or the gradient is NaN or infinite, in any process; names the step and
            the images. No checkpoint contains it.
        UserError: the weights are not finite; or the folder was moved, deleted or replaced.
        OSError: a checkpoint or the events could not be written; earlier checkpoints are intact.
    """
    place = SameFolder(folder) if is_main() else None
    step = Step(model, criterion, optimizer, options, precision, start)
    saver = _Saver(model, optimizer, options, precision, folder, config, start, train_seconds, place)
    batches = iter(batches)
    first: Mapping[str, float] = {}  # the mean losses of the first log line
    last = first
    model.train()
    try:
        with open_progress_log(folder, start, options.max_iter) as progress:
            for iteration in range(start + 1, options.max_iter + 1):
                is_last = iteration == options.max_iter
                log_now = is_last or iteration % options.log_period == 0
                save_now = is_last or iteration % options.checkpoint_period == 0
                # On a GPU the check waits for the device: it is made only where the log reads the values
                # anyway, and before a checkpoint, which must not hold the result of a non-finite loss. On the
                # CPU it is free.
                images = step(iteration, batches, check=precision.device.type == "cpu" or log_now or save_now)
                progress.add(images * world_size())
                if place and (log_now or save_now):
                    place.check()
                if log_now:
                    last = step.losses.means()
                    first = first or last
                    progress.report(iteration, last | logged_lr(optimizer))
                if place and progress.writer and snapshots and snapshots.due(iteration, options.max_iter):
                    with place.written():
                        snapshots.take(model, iteration, folder, progress.writer)
                if place and running_ap:
                    ap = running_ap.measure(model if final is None else final, iteration, options.max_iter)
                    if ap is not None:
                        progress.report_ap(iteration, ap)
                if save_now:
                    saver.save_checkpoint(iteration)
    except KeyboardInterrupt:
        saver.save_interrupted(step)
        raise
    if start == 0 and (doubt := training_warning(first, last)):
        logger.warning("%s", doubt)
    return saver.save_final(model if final is None else final, max(start, options.max_iter))


@dataclass
class _Saver:
    """Writes the state of the training to files; only the main process does."""

    model: nn.Module
    optimizer: Optimizer
    options: TrainOptions
    precision: Precision
    folder: Path
    config: str
    saved: int  # the step of the newest checkpoint
    earlier_seconds: float
    place: SameFolder | None  # of the main process
    began: float = field(default_factory=time.perf_counter)

    def save_checkpoint(self, iteration: int) -> None:
        """All that a resumption after step `iteration` needs; the oldest checkpoints are removed."""
        path = checkpoint_path(self.folder, iteration)
        self._save(path, self.model, iteration, self.optimizer)
        self.saved = iteration
        if is_main():
            remove_old_checkpoints(self.folder, iteration, self.options.keep_checkpoints)

    def save_interrupted(self, step: "Step") -> None:
        """A checkpoint after the last complete step; an error says why there is none."""
        if step.done > self.saved:
            try:
                step.undo_unfinished()
                self.save_checkpoint(step.done)
            except (UserError, OSError) as error:
                logger.error("error: no checkpoint of step %d: %s", step.done, error)

    def save_final(self, model: nn.Module, iteration: int) -> float:
        """The weights alone; returns the seconds that all steps took, which are with them."""
        return self._save(self.folder / "model_final.pt", model, iteration, optimizer=None)

    def _save(self, path: Path, model: nn.Module, iteration: int, optimizer: Optimizer | None) -> float:
        seconds = self.earlier_seconds + time.perf_counter() - self.began
        if self.place:
            with self.place.written():
                save_checkpoint(
                    path,
                    model,
                    optimizer,
                    iteration=iteration,
                    train_seconds=seconds,
                    batches_per_step=self.options.accumulate * world_size(),
                    config=self.config,
                    scaler=self.precision.scaler if optimizer else None,
                )
        return seconds


class Step:
    """One step of the optimizer, on the mean gradient of some batches."""

    def __init__(
        self,
        model: nn.Module,
        criterion: Callable[..., Mapping[str, Tensor]],
        optimizer: Optimizer,
        options: TrainOptions,
        precision: Precision,
        start: int,
    ) -> None:
        self.model, self.criterion, self.optimizer = replicate(model), criterion, optimizer
        self.options, self.precision = options, precision
        self.losses, self.done = LossLog(), start
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        # Trained batch norm changes its buffers in the forward pass, before the step is complete.
        self._buffers = list(model.buffers())
        self._buffers_when_done = [buffer.clone() for buffer in self._buffers]

    def __call__(self, iteration: int, batches: Iterator[Batch], *, check: bool) -> int:
        """Make step `iteration`, from 1, and return its number of images in this process."""
        options, precision = self.options, self.precision
        image_ids: tuple[str, ...] = ()
        for number in range(options.accumulate):
            batch = next(batches).to(precision.device, non_blocking=True)
            seed_batch(options.seed, iteration, number * world_size() + rank())
            # The last backward pass of a step averages the gradients over the processes.
            with nullcontext() if number == options.accumulate - 1 else no_sync(self.model):
                self._add_gradient(batch, iteration)
            image_ids += batch.image_ids
        precision.scaler.unscale_(self.optimizer)  # of float16's gradients
        gradient_norm = get_total_norm(p.grad for p in self._parameters if p.grad is not None)
        self.losses.add({"gradient_norm": precision.logged_norm(gradient_norm)}, image_ids, iteration)
        if check:
            self.losses.check()
            precision.check(iteration, image_ids)
        if options.clip_norm > 0:
            clip_grads_with_norm_(self._parameters, options.clip_norm, gradient_norm)
        with uninterrupted():  # the weights and momenta change here and nowhere else
            set_lr(self.optimizer, options.lr_factor, iteration - 1, scale_momentum=options.scale_momentum)
            precision.scaler.step(self.optimizer)
            precision.scaler.update()
            _copy(self._buffers, self._buffers_when_done)
            self.done = iteration
        self.optimizer.zero_grad(set_to_none=True)
        return len(image_ids)

    def undo_unfinished(self) -> None:
        """Give the model its state after step `done`; NonFiniteLoss if a loss up to there was not finite."""
        self.losses.check_own()
        _copy(self._buffers_when_done, self._buffers)

    def _add_gradient(self, batch: Batch, iteration: int) -> None:
        """Add the gradient of one of the batches of a step, as a part of their mean."""
        outputs = None
        try:
            with self.precision.autocast():
                outputs = self.model(*batch.inputs)
            losses = self.criterion(outputs, batch)
        except (ValueError, RuntimeError) as error:
            if isinstance(error, torch.OutOfMemoryError) or is_lost_process(error):
                raise
            # Layers and criteria refuse NaN with errors of their own; the cause may be a loss not yet read.
            self.losses.check_own()
            if non_finite(outputs) or not all(p.isfinite().all() for p in self.model.parameters()):
                raise NonFiniteLoss.at(iteration, "the scores are not finite", batch.image_ids) from error
            raise
        loss = torch.stack(list(losses.values())).sum()
        divisor = self.options.accumulate / self.options.gradient_factor
        self.precision.scaler.scale(loss / divisor).backward()
        self.losses.add({"loss": loss, **losses}, batch.image_ids, iteration)


@torch.no_grad()
def _copy(source: list[Tensor], target: list[Tensor]) -> None:
    if source:
        torch._foreach_copy_(target, source)

"""Whose boxes of a class a student learns best from: the weak detector's, a teacher's, or both joined.

Nobody has drawn a box, so the tags decide. A short student learns from each source in one half of the images,
and scores the other half, whose tags it has not seen; its image AP there says how well it tells the class. A
student that has learned wrong places tells its classes worse (docs/teachers.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from detector.config import Settings, with_values
from detector.data.datasets.annotated import AnnotatedImages
from detector.engine.checkpoint import load_checkpoint
from detector.engine.precision import Precision
from detector.evaluation.voc import image_ap
from detector.self_training.fuse import SOURCES, Source
from detector.self_training.networks import predict_all, restore_network
from detector.self_training.student import StudentRun, train_detector
from detector.utils.distributed import gather, rank, world_size

HALVES = 2
# Share of the error of a source below which another one is better. Two trials from the same boxes differ by
# two standard deviations as much, in a class and in the mean of all (measured on Toybox).
_CLEARLY, _CLEARLY_OF_ALL = 0.8, 0.9


@dataclass(frozen=True)
class Trials:
    """The short students; :meth:`image_ap` of each source and half can be called in a process of its own.

    Args:
        run: of the student. Its folder has the data set SOURCE of each source, and gets the runs SOURCE_HALF.
        shown, known: (N, C) bool, the classes that each image shows, and those of which it is known.
        found_by: as of :func:`train_detector`.
    """

    run: StudentRun
    dataset: AnnotatedImages
    shown: Tensor
    known: Tensor
    found_by: Path

    def image_ap(self, source: Source, half: int) -> np.ndarray:
        """The image AP (C,) of a student of one half in the other; nan: no image there shows the class.

        A run that is complete is not made again.
        """
        factors = np.ones(len(self.dataset)) if self.run.factors is None else self.run.factors
        learned = _halves(factors > 0, self.run.cfg.seed) == half
        folder = self.run.folder / f"{source}_{half}"
        weights = folder / "model_final.pt"
        short = replace(self.run, cfg=trial_cfg(self.run.cfg), folder=folder, factors=factors * learned)
        folder.mkdir(exist_ok=True)
        if not weights.exists():
            train_detector(short, self.found_by, self.run.folder / source)
            gather(None)  # the main process has written model_final.pt before another reads it
        rest = np.flatnonzero(~learned).tolist()
        scores = _score(short, self.dataset, weights, rest)
        return image_ap(scores, list(self.shown[rest]), list(~self.known[rest]))


def trial_cfg(cfg: Settings) -> Settings:
    """The config of a short student, with SELF_TRAIN.TRIAL_SHARE of the steps."""
    share, solver = cfg.self_train.trial_share, cfg.solver
    steps, warmup = max(1, round(share * solver.max_iter)), round(share * solver.warmup_iters)
    return with_values(cfg, {"SOLVER.MAX_ITER": steps, "SOLVER.WARMUP_ITERS": warmup, "SOLVER.AP_SHARE": 0.0})


def try_sources(trials: Trials) -> dict[Source, np.ndarray]:
    """The image AP (C,) of each source, the mean of both halves; nan: no image shows the class."""
    found: dict[Source, np.ndarray] = {}
    for source in SOURCES:
        of_halves = [trials.image_ap(source, half) for half in range(HALVES)]
        with np.errstate(invalid="ignore"):  # 0 / 0 is nan
            found[source] = np.nansum(of_halves, axis=0) / (~np.isnan(of_halves)).sum(axis=0)
    return found


def best_sources(image_aps: Mapping[Source, np.ndarray], named: np.ndarray) -> list[Source]:
    """The source that each class learns from.

    The error of a source is what is missing to an image AP of 1. A class learns from the source that is best
    for all classes, unless another has less than 80 % of its error there. For all classes that is "both",
    unless another has less than 90 % of its mean error, as where all boxes of a teacher are too large.

    Args:
        image_aps: of each source, (C,); nan: no image shows the class.
        named: (C,) bool, the classes of which the teacher has boxes: others say nothing of it.
    """
    errors = 1 - np.nan_to_num(np.stack([image_aps[source] for source in SOURCES]))  # (3, C)
    of_all = errors[:, named].mean(axis=1) if named.any() else np.ones(len(SOURCES))
    default = SOURCES.index("both")
    if of_all.min() < _CLEARLY_OF_ALL * of_all[default]:
        default = int(of_all.argmin())
    clear = errors.min(axis=0) < _CLEARLY * errors[default]
    return [SOURCES[row] for row in np.where(clear, errors.argmin(axis=0), default)]


def _halves(drawn: np.ndarray, seed: int) -> np.ndarray:
    """(N,) 0 or 1 for each image at random; of those that are drawn (N,), as many of each, or one more."""
    order = np.random.default_rng(seed).permutation(len(drawn))
    order = np.concatenate([order[drawn[order]], order[~drawn[order]]])
    return np.argsort(order) % HALVES


def _score(run: StudentRun, dataset: AnnotatedImages, weights: Path, indices: Sequence[int]) -> list[Tensor]:
    """The best score (C,) of each class in the images of `indices`; 0: it has no box."""
    model = restore_network(run.cfg, load_checkpoint(weights), weights, "student").to(run.device)
    own, best = indices[rank() :: world_size()], dict[int, Tensor]()
    precision = Precision(run.cfg.precision, run.device)
    for index, found in zip(own, predict_all(run.cfg, model, dataset, own, precision), strict=True):
        scores = found.scores.float().cpu()  # (R, C)
        best[index] = torch.cat([scores, torch.zeros(1, scores.shape[1])]).amax(dim=0)
    for others in gather(best):
        best |= others
    return [best[index] for index in indices]

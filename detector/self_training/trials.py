"""Whose boxes of a class a student learns best from: the weak detector's, a teacher's, or both joined.

Nobody has drawn a box, so the tags decide. A short student learns from each source in one half of the images,
and scores the other half, whose tags it has not seen; its image AP there says how well it tells the class. A
student that has learned wrong places tells its classes worse (docs/teachers.md).
"""

from collections.abc import Mapping, Sequence
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
from detector.self_training.student import train_detector
from detector.utils.distributed import gather, rank, world_size

HALVES = 2
_CLEARLY = 0.95  # share of the error of both sources below which one of them is better alone


def trial_cfg(cfg: Settings) -> Settings:
    """The config of a short student, with SELF_TRAIN.TRIAL_SHARE of the steps."""
    share, solver = cfg.self_train.trial_share, cfg.solver
    steps, warmup = max(1, round(share * solver.max_iter)), round(share * solver.warmup_iters)
    return with_values(cfg, {"SOLVER.MAX_ITER": steps, "SOLVER.WARMUP_ITERS": warmup, "SOLVER.AP_SHARE": 0.0})


def try_sources(
    cfg: Settings,
    dataset: AnnotatedImages,
    tags: tuple[Tensor, Tensor],
    pseudo: Mapping[Source, Path],
    folder: Path,
    device: torch.device,
    found_by: Path,
    factors: np.ndarray | None,
) -> dict[Source, np.ndarray]:
    """The image AP (C,) of each source, the mean of both halves; nan: none shows the class.

    Args:
        cfg: of the student.
        tags: (N, C) bool each, the classes that each image shows, and those of which it is known.
        pseudo: the data set of each source.
        folder: for the runs; one that is complete is not made again.
        found_by, factors: as of :func:`train_detector`.
    """
    short, (shown, known) = trial_cfg(cfg), tags
    learned = np.ones(len(dataset)) if factors is None else factors
    halves = _halves(learned > 0, cfg.seed)
    found: dict[Source, np.ndarray] = {}
    for source in SOURCES:
        of_halves = []
        for half in range(HALVES):
            run = folder / f"{source}_{half}"
            run.mkdir(exist_ok=True)
            if not (run / "model_final.pt").exists():
                train_detector(short, run, device, found_by, learned * (halves == half), pseudo[source])
                gather(None)  # the main process has written model_final.pt before another reads it
            rest = np.flatnonzero(halves != half).tolist()
            scores = _score(short, dataset, run / "model_final.pt", rest, device)
            of_halves.append(image_ap(scores, list(shown[rest]), list(~known[rest])))
        with np.errstate(invalid="ignore"):  # 0 / 0 is nan
            found[source] = np.nansum(of_halves, axis=0) / (~np.isnan(of_halves)).sum(axis=0)
    return found


def best_sources(image_aps: Mapping[Source, np.ndarray]) -> list[Source]:
    """The source that each class learns from: "both", unless another has less than 95 % of its error.

    The error is what is missing to an image AP of 1. Less is the chance of few images and few steps.
    """
    errors = {source: 1 - np.nan_to_num(image_aps[source]) for source in SOURCES}
    other = np.minimum(errors["tags"], errors["teacher"])
    better: list[Source] = ["teacher" if each else "tags" for each in errors["teacher"] <= errors["tags"]]
    clearly = other < _CLEARLY * errors["both"]
    return [source if sure else "both" for source, sure in zip(better, clearly, strict=True)]


def _halves(drawn: np.ndarray, seed: int) -> np.ndarray:
    """(N,) 0 or 1 for each image at random; of those that are drawn (N,), as many of each, or one more."""
    order = np.random.default_rng(seed).permutation(len(drawn))
    order = np.concatenate([order[drawn[order]], order[~drawn[order]]])
    return np.argsort(order) % HALVES


def _score(
    cfg: Settings, dataset: AnnotatedImages, weights: Path, indices: Sequence[int], device: torch.device
) -> list[Tensor]:
    """The best score (C,) of each class in the images of `indices`; 0: it has no box."""
    model = restore_network(cfg, load_checkpoint(weights), weights, "student").to(device)
    own, best = indices[rank() :: world_size()], dict[int, Tensor]()
    for index, found in zip(
        own, predict_all(cfg, model, dataset, own, Precision(cfg.precision, device)), strict=True
    ):
        scores = found.scores.float().cpu()  # (R, C)
        best[index] = torch.cat([scores, torch.zeros(1, scores.shape[1])]).amax(dim=0)
    for others in gather(best):
        best |= others
    return [best[index] for index in indices]

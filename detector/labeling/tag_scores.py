"""How likely each class is in each training image, by detectors that have not learned from the image."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from detector.config import Settings, with_values
from detector.data.build import build_test_loader, build_train_loader
from detector.data.loader import collate
from detector.data.training_set import TrainingSet
from detector.engine.build import build_optimizer, build_train_options
from detector.engine.loop import Step
from detector.engine.precision import Precision
from detector.modeling.backbones.build import load_pretrained
from detector.modeling.build import build_criterion, build_model
from detector.modeling.head import HeadOutputs
from detector.modeling.per_image import sum_per_image
from detector.structures import Views
from detector.utils.progress import progress_bar
from detector.utils.reproducibility import seed_everything


class TagScores(NamedTuple):
    """What detectors say of N images."""

    heads: Tensor  # (N, 3, C) in [0, 1]: the sum of MIL, the best proposal, the image head
    boxes: Tensor  # (N, C, 4) the best proposal of each class, xyxy in pixels of the image; 0: there is none


def draw_folds(count: int, seed: int, folds: int) -> np.ndarray:
    """The fold (N,) int64 of each of N images, at random, all equally large but for one image."""
    fold = np.empty(count, dtype=np.int64)
    fold[np.random.default_rng(seed).permutation(count)] = np.arange(count) % folds
    return fold


def score_by_folds(
    cfg: Settings,
    training_set: TrainingSet,
    device: torch.device,
    *,
    folds: int,
    steps: int,
    backbone: Mapping[str, Tensor] | None,
) -> TagScores:
    """The scores of each image by a weak detector that learned from the images of the other folds.

    Args:
        cfg: its DATASETS.CLASSES are not empty.
        steps: of each of these trainings.
        backbone: weights of the backbone, which then are not trained; None: MODEL.WEIGHTS, all is trained.
    """
    warmup = min(cfg.solver.warmup_iters, steps // 10)
    cfg = with_values(cfg, {"SOLVER.MAX_ITER": steps, "SOLVER.WARMUP_ITERS": warmup})
    precision, count = Precision(cfg.precision, device), len(training_set.dataset)
    fold, parts = draw_folds(count, cfg.seed, folds), []
    for number in range(folds):
        seed_everything(cfg.seed, cfg.deterministic)
        model = build_model(cfg).to(device)
        if backbone is None:
            load_pretrained(cfg.model, cfg.input, model)
        else:
            model.backbone.load_state_dict(backbone)
            model.backbone.requires_grad_(False)
        others = np.flatnonzero(fold != number).tolist()
        batches = iter(build_train_loader(cfg, training_set, stride=model.backbone.stride, indices=others))
        step = Step(
            model,
            build_criterion(cfg),
            build_optimizer(cfg.solver, model),
            build_train_options(cfg.solver, cfg.seed),
            precision,
            0,
        )
        model.train()
        for iteration in progress_bar(range(1, steps + 1), total=steps, desc=f"part {number + 1} of {folds}"):
            step(iteration, batches, check=iteration % cfg.solver.log_period == 0 or iteration == steps)
        parts.append(score_images(cfg, model, training_set, np.flatnonzero(fold == number), precision))
    order = torch.from_numpy(np.argsort(np.concatenate([np.flatnonzero(fold == n) for n in range(folds)])))
    return TagScores(*(torch.cat(of_parts)[order] for of_parts in zip(*parts, strict=True)))


@torch.no_grad()
def score_images(
    cfg: Settings,
    model: nn.Module,
    training_set: TrainingSet,
    indices: Sequence[int] | np.ndarray,
    precision: Precision,
) -> TagScores:
    """The scores of the images `indices`: means over test passes, and the most over tiles."""
    model.eval()
    scores, boxes = [], []
    indices = [int(index) for index in indices]
    for image in build_test_loader(cfg, training_set.dataset, indices, training_set.proposals):
        tiles = [
            _of_views(model, views, precision) for views in ([image] if isinstance(image, Views) else image)
        ]
        heads, found = (
            torch.stack(of_tiles) for of_tiles in zip(*tiles, strict=True)
        )  # (T, 3, C), (T, C, 4)
        best = heads[:, 1].argmax(dim=0)  # (C,)
        scores.append(heads.amax(dim=0))
        boxes.append(found[best, torch.arange(len(best))])
    return TagScores(torch.stack(scores), torch.stack(boxes))


def _of_views(model: nn.Module, views: Views, precision: Precision) -> tuple[Tensor, Tensor]:
    """The scores (3, C) of an image or tile, and the best proposals (C, 4)."""
    passes = []
    for sample in views.samples:
        batch = collate([sample]).to(precision.device)
        with precision.autocast():
            outputs: HeadOutputs = model(*batch.inputs)
        of_mil = sum_per_image(outputs.mil.float(), batch.counts)[0].clamp(max=1)  # (C,)
        of_image = of_mil if outputs.image_logits is None else outputs.image_logits.float().sigmoid()[0]
        passes.append((torch.stack([of_mil, of_mil, of_image]), outputs.scores().float()))
    heads, scores = (torch.stack(values).mean(dim=0).cpu() for values in zip(*passes, strict=True))
    if len(scores) == 0:  # no proposals
        return heads, torch.zeros(heads.shape[1], 4)
    best = scores.max(dim=0)
    heads[1] = best.values
    return heads, views.proposals[best.indices]

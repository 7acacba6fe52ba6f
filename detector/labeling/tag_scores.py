"""How likely each class is in each training image, by detectors that have not seen the image."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from detector.config import Settings, with_values
from detector.data.build import build_test_loader, build_train_loader
from detector.data.loader import collate
from detector.data.training_set import TrainingSet
from detector.engine.build import build_optimizer, build_precision, build_train_options
from detector.engine.loop import Step
from detector.engine.precision import Precision
from detector.modeling.backbones.build import load_pretrained
from detector.modeling.build import build_criterion, build_model
from detector.modeling.per_image import sum_per_image
from detector.structures import Views
from detector.utils.progress import progress_bar
from detector.utils.reproducibility import seed_everything


def folds_of(image_ids: Sequence[str], seed: int, folds: int) -> np.ndarray:
    """The fold (N,) int64 of each image, of equal sizes."""
    order = np.random.default_rng([seed, len(image_ids)]).permutation(len(image_ids))
    fold = np.empty(len(image_ids), dtype=np.int64)
    fold[order] = np.arange(len(image_ids)) % folds
    return fold


def out_of_fold_scores(
    cfg: Settings,
    training_set: TrainingSet,
    device: torch.device,
    *,
    folds: int,
    steps: int,
    backbone: Mapping[str, Tensor] | None,
) -> Tensor:
    """The scores (N, C) of the classes in each image, by a weak detector that learned from the other folds.

    Args:
        cfg: its DATASETS.CLASSES are not empty.
        steps: of the training without a fold.
        backbone: weights of the backbone, which then are not trained; None: MODEL.WEIGHTS, all is trained.
    """
    cfg = with_values(
        cfg, {"SOLVER.MAX_ITER": steps, "SOLVER.WARMUP_ITERS": min(cfg.solver.warmup_iters, steps // 10)}
    )
    dataset, precision = training_set.dataset, build_precision(cfg, device)
    fold = folds_of(dataset.image_ids, cfg.seed, folds)
    scores = torch.zeros(len(dataset), 3, len(dataset.class_names))
    for number in range(folds):
        seed_everything(cfg.seed, cfg.deterministic)
        model = build_model(cfg).to(device)
        if backbone is None:
            load_pretrained(cfg, model)
        else:
            model.backbone.load_state_dict(backbone)
            model.backbone.requires_grad_(False)
        others = np.flatnonzero(fold != number).tolist()
        batches = iter(build_train_loader(cfg, training_set, stride=model.backbone.stride, indices=others))
        step = Step(
            model, build_criterion(cfg), build_optimizer(cfg, model), build_train_options(cfg), precision, 0
        )
        model.train()
        for iteration in progress_bar(range(1, steps + 1), total=steps, desc=f"fold {number + 1} of {folds}"):
            step(iteration, batches, check=iteration == steps)
        held_out = np.flatnonzero(fold == number).tolist()
        scores[held_out] = image_scores(cfg, model, training_set, held_out, precision)
    return scores


@torch.no_grad()
def image_scores(
    cfg: Settings, model: nn.Module, training_set: TrainingSet, indices: Sequence[int], precision: Precision
) -> Tensor:
    """The scores (K, C) of the classes in the images `indices`, the mean over test passes."""
    model.eval()
    rows = []
    for image in build_test_loader(cfg, training_set.dataset, indices, training_set.proposals):
        tiles = [image] if isinstance(image, Views) else [*image]
        rows.append(torch.stack([_of_views(model, views, precision) for views in tiles]).amax(dim=0))
    return torch.stack(rows)


def _of_views(model: nn.Module, views: Views, precision: Precision) -> Tensor:
    passes = []
    for sample in views.samples:
        batch = collate([sample]).to(precision.device)
        with precision.autocast():
            outputs = model(*batch.inputs)
        of_mil = sum_per_image(outputs.mil.float(), batch.counts)[0]  # (C,)
        of_boxes = outputs.scores().float().amax(dim=0) if len(outputs.mil) else of_mil
        of_image = of_mil if outputs.image_logits is None else outputs.image_logits.float().sigmoid()[0]
        passes.append(torch.stack([of_mil, of_boxes, of_image]))  # (3, C)
    return torch.stack(passes).mean(dim=0).cpu()

"""Both kinds of detectors, from a checkpoint, and the scores that either gives to images."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import nn

from detector.config import Settings
from detector.data.build import build_test_loader, build_tiling
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.proposals import Proposals
from detector.engine.checkpoint import restore_model
from detector.engine.passes import predict
from detector.engine.precision import Precision
from detector.modeling.build import build_model
from detector.modeling.weak_rcnn import WeakRCNN
from detector.self_training.build import Student, build_student
from detector.self_training.scoring import score_images
from detector.structures import Scores
from detector.utils.distributed import is_main
from detector.utils.errors import UserError
from detector.utils.progress import progress_bar

logger = logging.getLogger(__name__)

Model = Literal["auto", "weak", "student"]


def is_student(checkpoint: Mapping[str, Any]) -> bool:
    """Whether a checkpoint is that of a student of self-training, not of a weak detector."""
    return any(name.startswith(("rpn.", "head.classification_head.")) for name in checkpoint["model"])


def restore_network(
    cfg: Settings, checkpoint: dict[str, Any], path: Path, model: Model = "auto"
) -> WeakRCNN | Student:
    """The network of a checkpoint, loaded from `path`, with its weights; the log says which kind it is.

    Raises:
        UserError: it is that of another model than `model` or the config says.
    """
    kind = "student" if is_student(checkpoint) else "weak"
    if model not in ("auto", kind):
        raise UserError(f"{path} is the checkpoint of a {kind} detector, expected that of a {model} one")
    network = build_student(cfg, pretrained=False) if kind == "student" else build_model(cfg)
    restore_model(network, checkpoint, path)
    what = f"the {network.kind} of self-training" if isinstance(network, Student) else "the weak detector"
    logger.info("model       %s, %s", what, path)
    return network


def predict_all(
    cfg: Settings,
    model: nn.Module,
    dataset: AnnotatedImages,
    indices: Sequence[int],
    precision: Precision,
    proposals: Proposals | None = None,
) -> Iterator[Scores]:
    """The scores of the images of `indices`, on the device, behind a progress bar.

    Args:
        proposals: for a weak detector; None: those of DATASETS.PROPOSALS are read.
    """
    options: dict[str, Any] = {"device": precision.device, "precision": precision}
    if isinstance(model, Student):
        options |= {"images_per_batch": cfg.self_train.images_per_batch, "workers": cfg.datasets.workers}
        results = score_images(model, dataset, indices, tiling=build_tiling(cfg.input), **options)
    else:
        loader = build_test_loader(cfg, dataset, indices, proposals)
        results = predict(model, loader, **options)
    return iter(progress_bar(results, total=len(indices), desc=dataset.name, shown=is_main()))

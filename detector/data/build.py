"""From the settings to data sets and batches."""

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch.utils.data import DataLoader, Subset

from detector.config import Settings, with_values
from detector.config.settings import DatasetSettings, InputSettings, ProposalSettings, SolverSettings
from detector.data.batch_order import repeat_factors
from detector.data.check import doubtful_classes
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.datasets.coco import COCODataset
from detector.data.datasets.image_labels import ImageLabels
from detector.data.datasets.voc import VOCDataset
from detector.data.hints import read_hints
from detector.data.loader import TestDataset, WeakDataset, collate, is_large
from detector.data.proposals import JoinedProposals, Proposals, load_proposals
from detector.data.reviewed import (
    annotations_as_reviewed,
    contradictions,
    describe_reviewed,
    draw_images,
    read_reviewed,
    reviewed_sampling_weights,
    unused_images,
)
from detector.data.sources.table_source import changed_source
from detector.data.teacher import read_teacher, teacher_proposals
from detector.data.tiles import Tiling
from detector.data.training_set import TrainingSet
from detector.data.transforms import TestTransform, TrainTransform
from detector.data.worker_loader import WorkerLoader, seeded_loader
from detector.structures import Hints, ReviewedBoxes, TeacherBoxes, Views
from detector.utils.distributed import rank, world_size
from detector.utils.errors import DataError, UserError
from detector.utils.files import read_text

logger = logging.getLogger(__name__)


def build_dataset(cfg: Settings, split: str) -> AnnotatedImages:
    """The images, labels and annotations of one split.

    Raises:
        UserError, OSError: they cannot be read; or an image is larger than Pillow allows, without INPUT.TILE.
    """
    dataset = _build_dataset(cfg.datasets, split)
    large = [] if cfg.input.tile else [i for i in range(len(dataset)) if is_large(dataset, i)]
    if large:
        height, width = dataset.image_size(large[0])
        raise DataError(
            f"image {dataset.image_path(large[0])} has {width} x {height} pixels, more than are read at "
            "once: set INPUT.TILE, with which it is read in parts (docs/large_pictures.md)"
        )
    return dataset


def _build_dataset(data: DatasetSettings, split: str) -> AnnotatedImages:
    if data.format == "coco":
        return COCODataset(
            data.root,
            split,
            data.classes,
            annotations=data.coco_json,
            images=data.coco_images,
            crowd_labels=data.difficult_labels,
        )
    if data.format == "image_labels":
        if split == data.train_split and (changed := changed_source(Path(data.root))):
            again = f"detector init --again --output {data.root}.yaml"
            line = f"the tables in {data.root} are older than changes of {changed}: write them anew, {again}"
            warnings.warn(line, stacklevel=1)  # the same place for every stage, so that it is shown once
        return ImageLabels(data.root, split, data.classes)
    return VOCDataset(data.root, split, data.classes, difficult_labels=data.difficult_labels)


def build_splits(cfg: Settings) -> tuple[AnnotatedImages, AnnotatedImages]:
    """The training split and the test split, which has the classes of the former."""
    train_set = build_dataset(cfg, cfg.datasets.train_split)
    return train_set, build_dataset(name_classes(cfg, train_set), cfg.datasets.test_split)


def find_test_set(cfg: Settings, train_set: AnnotatedImages) -> AnnotatedImages | None:
    """The test split, without its warnings; None if it cannot be read, since training does not need it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return build_dataset(name_classes(cfg, train_set), cfg.datasets.test_split)
    except (UserError, OSError):
        return None


def name_classes(cfg: Settings, dataset: AnnotatedImages) -> Settings:
    """The config with the classes of the data set to learn from, if DATASETS.CLASSES is empty."""
    if cfg.datasets.classes:
        return cfg
    return with_values(cfg, {"DATASETS.CLASSES": dataset.class_names})


def build_training_set(cfg: Settings) -> TrainingSet:
    """The training split with all that training reads of it."""
    dataset = build_dataset(cfg, cfg.datasets.train_split)
    cfg, file = name_classes(cfg, dataset), Path(cfg.datasets.proposals)
    teacher = build_teacher(cfg.datasets, dataset)
    proposals = load_proposals(file) if file.is_file() else None
    if proposals is not None and teacher:
        proposals = JoinedProposals(proposals, teacher_proposals(teacher))
    reviewed, hints = build_reviewed(cfg, dataset), build_hints(cfg.datasets, dataset)
    return TrainingSet(dataset, reviewed, hints, proposals, teacher)


def build_proposals(
    data: DatasetSettings, dataset: AnnotatedImages, proposals: Proposals | None = None
) -> Proposals:
    """The proposals (None: of DATASETS.PROPOSALS), checked against the images of the data set."""
    if proposals is None:
        proposals = load_proposals(data.proposals)
    proposals.check(dataset)
    return proposals


def build_reviewed(cfg: Settings, dataset: AnnotatedImages) -> dict[str, ReviewedBoxes]:
    """The reviewed boxes that training may see, by image id.

    Warnings count reviewed images that are not in the data set, and boxes that contradict tags.
    """
    named, share = cfg.datasets.boxed, cfg.datasets.boxed_share
    others: list[str] = []
    if named.endswith(".txt"):
        lines = read_text(named, "list of images").splitlines()
        reviewed = annotations_as_reviewed(dataset, [line.strip() for line in lines if line.strip()])
    elif named:
        reviewed, others = read_reviewed(Path(named), dataset)
    elif share:
        reviewed = annotations_as_reviewed(dataset, draw_images(dataset.image_ids, share, cfg.seed))
    else:
        return {}
    test_set = find_test_set(cfg, dataset) if others else None
    unused = unused_images(named, others, dataset, test_set)
    for line in [*unused, *contradictions(dataset, reviewed)]:
        warnings.warn(line, stacklevel=2)
    return reviewed


def build_hints(data: DatasetSettings, dataset: AnnotatedImages) -> dict[str, Hints]:
    """Points and counts of images, by image id."""
    return read_hints(Path(data.hints), dataset) if data.hints else {}


def build_teacher(data: DatasetSettings, dataset: AnnotatedImages) -> dict[str, TeacherBoxes]:
    """The boxes that the teacher of the config found in the images that it has seen, by image id."""
    if not data.teacher:
        return {}
    table = Path(data.teacher_classes) if data.teacher_classes else None
    return read_teacher(Path(data.teacher), table, dataset)


def draw_factors(solver: SolverSettings, training_set: TrainingSet) -> np.ndarray | None:
    """How often to draw each image (N,), by SOLVER.REPEAT_THRESHOLD and BOXED_SHARE; None: equally often."""
    boxed = np.array([image_id in training_set.reviewed for image_id in training_set.dataset.image_ids])
    threshold, share = solver.repeat_threshold, solver.boxed_share if boxed.any() else 0.0
    if not threshold and not share:
        return None
    labels = training_set.labels()
    return repeat_factors(labels, threshold) * reviewed_sampling_weights(boxed, labels, share)


def build_train_loader(
    cfg: Settings, training_set: TrainingSet, *, stride: int, start: int = 0
) -> DataLoader:
    """Endless training batches (:class:`Batch`); the first is the one after `start` batches of all processes.

    Classes that cannot be learned and labels that are probably misspelt are logged as warnings. `stride` is
    the backbone's.
    """
    inputs, dataset, reviewed = cfg.input, training_set.dataset, training_set.reviewed
    for line in doubtful_classes(dataset.name, training_set.label_counts(), len(dataset)):
        logger.warning("warning: %s", line)
    if reviewed:
        logger.info(describe_reviewed(dataset, reviewed))
    transform = TrainTransform(
        sizes=inputs.train_sizes,
        side=inputs.side,
        max_size=inputs.max_size,
        flip=inputs.flip,
        inclusive_rois=inputs.inclusive_rois,
    )
    samples = WeakDataset(
        dataset,
        build_proposals(cfg.datasets, dataset, training_set.proposals),
        transform,
        min_size=cfg.proposals.min_size,
        stride=stride,
        max_count=cfg.proposals.max_count,
        reviewed=reviewed,
        hints=training_set.hints,
        tiling=build_tiling(inputs),
    )
    return seeded_loader(
        samples,
        partial(collate, multiple=inputs.pad_multiple),
        **batch_options(cfg, start),
        window=cfg.solver.sort_window,
        shape=samples.shape,
        repeats=draw_factors(cfg.solver, training_set),
    )


def build_tiling(inputs: InputSettings) -> Tiling | None:
    """How large images are cut, INPUT.TILE; None: they are not."""
    return Tiling(inputs.tile, inputs.tile_overlap, inputs.tiles_per_step) if inputs.tile else None


def build_test_transforms(inputs: InputSettings) -> list[TestTransform]:
    """One for each test pass: each of INPUT.TEST_SIZES, flipped as well if INPUT.TEST_FLIP is True."""
    return [
        TestTransform(size, test_side(inputs), inputs.max_size, flip, inputs.inclusive_rois)
        for size in inputs.test_sizes
        for flip in ((False, True) if inputs.test_flip else (False,))
    ]


def test_side(inputs: InputSettings) -> str:
    """The side of an image to which INPUT.TEST_SIZES refer: "shortest" or "longest"."""
    return inputs.side if inputs.test_side == "same" else inputs.test_side


def build_test_loader(
    cfg: Settings, dataset: AnnotatedImages, indices: Sequence[int], proposals: Proposals | None = None
) -> Iterable[Views | Iterator[Views]]:
    """The images of `indices`, once, in order, with a sample for each test pass.

    With INPUT.TILE this process reads them, since another one would send all tiles of an image at once.

    Args:
        proposals: None: those of DATASETS.PROPOSALS are read.
    """
    tiling = build_tiling(cfg.input)
    proposals = build_proposals(cfg.datasets, dataset, proposals)
    passes = _test_dataset(cfg.proposals, dataset, build_test_transforms(cfg.input), proposals, tiling)
    if tiling is not None:
        return (passes[index] for index in indices)
    return WorkerLoader(Subset(passes, indices), workers=cfg.datasets.workers, batch_size=None)


def build_snapshot_views(cfg: Settings, training_set: TrainingSet, indices: Sequence[int]) -> list[Views]:
    """The images of `indices` in one pass each, of the first training size and not flipped."""
    inputs = cfg.input
    transform = TestTransform(
        inputs.train_sizes[0], inputs.side, inputs.max_size, flip=False, inclusive_rois=inputs.inclusive_rois
    )
    proposals = build_proposals(cfg.datasets, training_set.dataset, training_set.proposals)
    passes = _test_dataset(cfg.proposals, training_set.dataset, [transform], proposals)
    return [cast(Views, passes[index]) for index in indices]  # without tiles


def _test_dataset(
    limits: ProposalSettings,
    dataset: AnnotatedImages,
    transforms: Sequence[TestTransform],
    proposals: Proposals,
    tiling: Tiling | None = None,
) -> TestDataset:
    return TestDataset(
        dataset,
        proposals,
        transforms,
        min_size=limits.min_size,
        max_count=limits.max_count,
        tiling=tiling,
    )


def batch_options(cfg: Settings, start: int) -> dict[str, Any]:
    """Which batches this process makes: those after `start` batches of all processes."""
    return {
        "images_per_batch": cfg.solver.images_per_batch,
        "seed": cfg.seed,
        "start": start,
        "workers": cfg.datasets.workers,
        "rank": rank(),
        "world_size": world_size(),
    }

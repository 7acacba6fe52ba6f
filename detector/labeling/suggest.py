"""`detector suggest`: the images of the training split from whose boxes a detector would learn most."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from detector.config import Settings, load_cfg
from detector.data.build import build_test_loader, build_training_set, name_classes
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.formats import ReviewImage, review_image
from detector.data.loader import collate, read_parts
from detector.data.reviewed import find_id
from detector.data.training_set import TrainingSet
from detector.engine.passes import predict
from detector.engine.precision import Precision
from detector.engine.run_folder import check_class_names, start_run
from detector.inference.load import find_checkpoint, load, read_run
from detector.inference.thresholds import find_thresholds
from detector.labeling.label import check_formats, common_folder, encode_all, tagged_boxes
from detector.labeling.suggestions import choose, entropy, information_density, typicality
from detector.modeling.weak_rcnn import WeakRCNN
from detector.self_training.build import Student
from detector.self_training.fuse import disagreement, support
from detector.self_training.join import tags_of, trust_of
from detector.self_training.networks import Model, restore_network
from detector.structures import Scores, Views
from detector.utils.errors import UserError
from detector.utils.files import file_digest
from detector.utils.folder_lock import folder_lock
from detector.utils.outputs import OutputFolder

RULES = ("information-density", "typical", "entropy", "random", "disagreement")
SCORE_THRESHOLD = 0.1  # of a detection that is drawn, where `detector test` has chosen none
_CANDIDATES = 200  # proposals of an image from which a person chooses


def suggest(
    config_file: str,
    overrides: Sequence[object],
    *,
    count: int,
    by: str,
    output: Path,
    formats: Sequence[str] | None = None,
    model: Model = "auto",
) -> list[ReviewImage]:
    """Write tasks for a labeling tool: the images to box next, with the boxes that the detector finds.

    The weak detector chooses them; the one that stands for the run, or `model`, finds their boxes. Images
    with reviewed boxes (DATASETS.BOXED) are not suggested again.

    Args:
        config_file: config whose OUTPUT_DIR holds a trained detector, or the folder of its run.
        count: number of images.
        by: one of `RULES`.
        output: folder for the files, and for images.txt, the ids of the images.
        formats: some of :data:`detector.data.formats.FORMATS`; None: label-studio.
        model: which detector finds the boxes, see :func:`detector.inference.load.load`.

    Raises:
        UserError, OSError: there is no detector, nothing to suggest, an argument cannot be used, or a file is
            in the way; before any image is scored.
    """
    if by not in RULES:
        raise UserError(f"the rule is {by!r}, expected one of {', '.join(RULES)}")
    if count < 1:
        raise UserError(f"the number of images is {count}, expected at least 1")
    formats = check_formats(formats or ("label-studio",))
    with warnings.catch_warnings(), folder_lock(output):  # the log takes them until the end
        return _suggest(config_file, overrides, count, by, output, formats, model)


def _suggest(
    config_file: str,
    overrides: Sequence[object],
    count: int,
    by: str,
    output: Path,
    formats: Sequence[str],
    model: Model,
) -> list[ReviewImage]:
    cfg, weights = find_detector(config_file, overrides)
    drawing = find_checkpoint(cfg.output_dir, model)
    training_set = build_training_set(cfg)
    dataset, reviewed = training_set.dataset, training_set.reviewed
    cfg = name_classes(cfg, dataset)
    if by == "disagreement" and not training_set.teacher:
        raise UserError("the rule disagreement compares tags with a teacher: name its file, DATASETS.TEACHER")
    boxed = [i for i, image_id in enumerate(dataset.image_ids) if image_id in reviewed]
    left = [i for i, image_id in enumerate(dataset.image_ids) if image_id not in reviewed]
    if not left:
        raise UserError(f"all {len(dataset)} images of {dataset.name} have reviewed boxes")
    folder = common_folder(((dataset.image_path(i), image_name(dataset, i)) for i in left), formats)
    words = ["suggest", by, str(count), *map(file_digest, dict.fromkeys((weights, drawing)))]
    outputs = OutputFolder(output, " ".join(words))
    empty = [ReviewImage(image_name(dataset, i), dataset.image_size(i), ()) for i in left]
    files = encode_all(formats, empty, dataset.class_names, folder)
    outputs.check(["images.txt", *(name for name, _ in files)])
    device = start_run(cfg, output)
    found = assess(cfg, device, training_set, left, boxed, by)
    if by == "random":
        rows = found.values.argsort(descending=True)[:count].tolist()
    else:
        labels = torch.from_numpy(training_set.labels())
        known = {"known_features": found.known_features, "known_labels": labels[boxed]}
        rows = choose(found.values, found.features, labels[left], count, **known)
    chosen = [found.images[row] for row in rows]
    if drawing != weights:
        drawn = student_boxes(drawing, training_set, [left[row] for row in rows], str(device))
        chosen = [boxes.image for boxes in drawn]
    image_ids = (find_id(image.name, dataset.image_ids) for image in chosen)
    outputs.write("images.txt", "".join(f"{image_id}\n" for image_id in image_ids).encode())
    for name, content in encode_all(formats, chosen, dataset.class_names, folder):
        outputs.write(name, content)
    return chosen


def find_detector(config_file: str, overrides: Sequence[object]) -> tuple[Settings, Path]:
    """The config, and the checkpoint of the weak detector in its OUTPUT_DIR."""
    cfg = load_cfg(config_file, overrides)
    weights = find_checkpoint(cfg.output_dir, "weak")
    if not weights.is_file():
        raise UserError(
            f"{weights} (OUTPUT_DIR) does not exist, expected the folder of a trained detector: train first, "
            "or name another folder"
        )
    return cfg, weights


class Assessed(NamedTuple):
    """What a weak detector says of N images without reviewed boxes, and of K with them."""

    values: Tensor  # (N,) float64, what there is to learn from an image
    features: Tensor  # (N, F)
    known_features: Tensor  # (K, F)
    images: list[ReviewImage]  # N, with the boxes that the detector finds
    tag_scores: Tensor  # (N, C), the best score of each class in the image
    candidates: list[Tensor]  # N, of :func:`best_candidates`


def assess(
    cfg: Settings,
    device: torch.device,
    training_set: TrainingSet,
    indices: Sequence[int],
    boxed: Sequence[int],
    by: str,
) -> Assessed:
    """What the rule `by` says of the images `indices`; those of `boxed` have reviewed boxes.

    Args:
        cfg: its DATASETS.CLASSES are not empty.
        by: one of `RULES`.
    """
    dataset, labels = training_set.dataset, torch.from_numpy(training_set.labels())  # (all images, C) bool
    precision, features = Precision(cfg.precision, device), []
    weak = _network(cfg, "weak").to(device).eval()
    assert isinstance(weak, WeakRCNN)
    thresholds = find_thresholds(
        find_checkpoint(cfg.output_dir, "weak"), cfg.datasets.classes, fallback=SCORE_THRESHOLD
    )

    def described(
        loader: Iterable[Views | Iterator[Views]],
    ) -> Iterator[Views | list[Views]]:
        for image in loader:
            parts = [image] if isinstance(image, Views) else [*image]
            views = parts[-1]  # the whole image, if none of its tiles has all proposals
            batch = collate(views.samples[:1]).to(device)
            with torch.no_grad():
                features.append(weak.features(batch.images).mean(dim=(2, 3))[0].cpu())
            yield image if isinstance(image, Views) else parts

    for _ in described(build_test_loader(cfg, dataset, boxed, training_set.proposals)):
        pass  # their features are enough
    loader = described(build_test_loader(cfg, dataset, indices, training_set.proposals))
    scored = predict(weak, loader, device=device, precision=precision)
    values, images, tag_scores, candidates = [], [], [], []
    by_teacher = _by_teacher(training_set) if by == "disagreement" else None
    progress = tqdm(
        zip(indices, scored, strict=True), total=len(indices), desc="order", unit="image", disable=None
    )
    for index, scores in progress:
        scores = scores.to("cpu")
        found = boxes_to_review(training_set, index, labels[index], scores, thresholds)
        values.append(by_teacher(index, scores) if by_teacher else entropy(scores, labels[index]))
        images.append(found.image)
        tag_scores.append(found.tag_scores)
        candidates.append(found.candidates)
    known, new = torch.stack(features).split([len(boxed), len(indices)])
    value = torch.tensor(values, dtype=torch.float64)
    typical = typicality(torch.cat([new, known]))[: len(new)]
    if by == "random":
        value = torch.rand(len(new), generator=torch.Generator().manual_seed(cfg.seed)).double()
    elif by == "typical":
        value = typical
    elif by == "information-density":
        value = information_density(value, typical)
    return Assessed(value, new, known, images, torch.stack(tag_scores), candidates)


def _by_teacher(training_set: TrainingSet) -> Callable[[int, Scores], float]:
    """How much the teacher differs from the tags and from the weak detector, whose scores these are."""
    (shown, known), trust = tags_of(training_set), trust_of(training_set, None)

    def value(index: int, scores: Scores) -> float:
        found = training_set.teacher.get(training_set.dataset.image_ids[index])
        if found is None:
            return 0.0
        said = support(found, scores, shown[index])
        return disagreement(found, shown[index], known[index], trust, said)

    return value


class FoundBoxes(NamedTuple):
    """What a detector finds in an image; the fields are those of :class:`Assessed`."""

    image: ReviewImage
    tag_scores: Tensor  # (C,)
    candidates: Tensor


def student_boxes(
    checkpoint: Path, training_set: TrainingSet, indices: Sequence[int], device: str
) -> Iterator[FoundBoxes]:
    """The boxes and scores of a Faster R-CNN in the images `indices`."""
    dataset, labels = training_set.dataset, torch.from_numpy(training_set.labels())  # (all images, C) bool
    predictor = load(checkpoint, device, score_threshold=None)
    thresholds = find_thresholds(checkpoint, predictor.class_names, fallback=SCORE_THRESHOLD)
    for index in tqdm(indices, desc="boxes", unit="image", disable=None):
        scores = predictor.scores(read_parts(dataset, index), image_id=dataset.image_ids[index]).to("cpu")
        yield boxes_to_review(training_set, index, labels[index], scores, thresholds)


def boxes_to_review(
    training_set: TrainingSet, index: int, labels: Tensor, scores: Scores, thresholds: Tensor
) -> FoundBoxes:
    """The boxes of an image for a person to review, from the scores of its proposals.

    Args:
        labels: (C,) bool, the classes that the image shows.
        thresholds: (C,), the scores above which boxes are shown.
    """
    dataset = training_set.dataset
    unknown = dataset.unknown(index)
    unknown = torch.zeros_like(labels) if unknown is None else unknown
    found, doubtful = tagged_boxes(scores, labels, unknown, thresholds=thresholds)
    name, size = image_name(dataset, index), dataset.image_size(index)
    image = review_image(name, size, found, dataset.class_names, doubtful=doubtful)
    image = replace(image, upright=dataset.apply_orientation)
    return FoundBoxes(image, _best(scores), best_candidates(scores, labels))


def _best(scores: Scores) -> Tensor:
    """(C,): the best score of each class; 0 without proposals."""
    return (
        scores.scores.amax(dim=0) if len(scores.scores) else scores.scores.new_zeros(scores.scores.shape[1])
    )


def best_candidates(scores: Scores, labels: Tensor) -> Tensor:
    """The best proposals of an image for a person to choose from, at most 200, best first.

    Returns:
        (K, 6): x1, y1, x2, y2, class, score.

    Args:
        labels: (C,) bool, the tagged classes, of which each proposal has its best; all if there are none.
    """
    labels = labels if labels.any() else torch.ones_like(labels)
    best, label = scores.scores.where(labels, -1.0).max(dim=1)  # (R,)
    rows = best.argsort(descending=True, stable=True)[:_CANDIDATES]
    boxes = scores.boxes[rows, label[rows]]  # (K, 4)
    return torch.cat([boxes, label[rows, None].float(), best[rows, None]], dim=1)


def _network(cfg: Settings, model: Model) -> WeakRCNN | Student:
    """A network of the run folder, built from the config of its checkpoint."""
    file, checkpoint, own = read_run(cfg.output_dir, model=model)
    check_class_names(cfg.datasets.classes, checkpoint, file)
    return restore_network(own, checkpoint, file, model)


def image_name(dataset: AnnotatedImages, index: int) -> str:
    """The name of an image in the files: its id with the suffix of its file."""
    image_id, suffix = dataset.image_ids[index], dataset.image_path(index).suffix
    return image_id if image_id.endswith(suffix) else image_id + suffix

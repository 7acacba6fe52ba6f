"""Short rounds of training on what a person has reviewed so far, and the boxes that come of it."""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from detector.config import Settings, with_values
from detector.data.build import build_train_loader, draw_factors
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.formats import review_file
from detector.data.reviewed import find_id, read_reviewed, reviewed_counts
from detector.data.training_set import TrainingSet
from detector.engine.build import build_optimizer, build_precision, build_train_options
from detector.engine.loop import make_steps
from detector.evaluation.voc import voc_ap
from detector.inference.load import read_run
from detector.inference.thresholds import find_thresholds
from detector.labeling.suggest import SCORE_THRESHOLD, boxes_to_review
from detector.modeling.build import build_criterion, build_postprocess
from detector.modeling.weak_rcnn import WeakRCNN
from detector.review.session import detector_name, new_image
from detector.review.store import Store
from detector.self_training.box_loader import BoxDataset
from detector.self_training.build import build_box_loader, build_student_postprocess
from detector.self_training.faster_rcnn import FasterRCNN
from detector.self_training.networks import predict_all, restore_network
from detector.self_training.self_train import student_cfg
from detector.self_training.teacher import distort_images
from detector.structures import Annotation, Detections, ReviewedBoxes, Scores
from detector.utils.reproducibility import seed_everything

logger = logging.getLogger(__name__)

STEPS = 60  # of a round
_LR_FACTOR = 0.3  # of the learning rate of the training before
_ONE_IN = 5  # of the reviewed images, that are never trained on
_ENOUGH = 5  # such images, from which a round that lowers their AP is undone
_SURE = 0.5  # score of a box that nobody has reviewed, from which a student learns it


def is_held_out(image_id: str) -> bool:
    """Whether a reviewed image measures the detector, and is never trained on: by its name alone."""
    return int(hashlib.sha256(image_id.encode()).hexdigest(), 16) % _ONE_IN == 0


def short_cfg(cfg: Settings, number: int) -> Settings:
    """The config of a training as that of a round."""
    short = {
        "SEED": cfg.seed + number,
        "SOLVER.MAX_ITER": STEPS,
        "SOLVER.BASE_LR": _LR_FACTOR * cfg.solver.base_lr,
        "SOLVER.SCHEDULE": "cosine",
        "SOLVER.WARMUP_ITERS": min(10, STEPS - 1),
        "SOLVER.CHECKPOINT_PERIOD": STEPS,
    }
    return with_values(cfg, short)


@dataclass
class _Detector:
    """A network, and what it found in images that are held out."""

    path: Path
    network: WeakRCNN | FasterRCNN
    config: Settings  # its own
    found: dict[int, Detections] = field(default_factory=dict)


class Rounds:
    """The rounds of one review; what was learned is in the file of the review and in FOLDER/round_N.pt.

    A weak detector goes on with its training, with the reviewed boxes; a student learns these and, in other
    images, boxes that were found. The backbone stays as it is. One in five reviewed images measures AP
    instead; a round that lowers it is undone. After a kill all goes on from the last complete round.

    Args:
        weights: of the detector that the review began with.
        folder: of the weights that are learned.
    """

    def __init__(
        self,
        cfg: Settings,
        store: Store,
        training_set: TrainingSet,
        weights: Path,
        folder: Path,
        device: torch.device,
    ) -> None:
        # Workers of a loader would outlive a kill.
        self.cfg, self.device = with_values(cfg, {"DATASETS.WORKERS": 0}), device
        self.store, self.training_set, self.weights, self.folder = store, training_set, weights, folder
        self.rounds: list[dict[str, Any]] = json.loads(store.get_meta("rounds") or "[]")
        self.asked = store.get_meta("asked")  # when Label Studio last asked for a round
        self.first = self._load(weights)
        kept = [
            each["number"] for each in self.rounds if each["kept"] and self._path(each["number"]).exists()
        ]
        self.number = kept[-1] if kept else 0  # of the round whose weights find boxes now; 0: none
        self.now = self._load(self._path(self.number)) if kept else self.first

    def _path(self, number: int) -> Path:
        return self.folder / f"round_{number}.pt"

    def _load(self, path: Path) -> _Detector:
        file, checkpoint, own = read_run(path)
        network = restore_network(own, checkpoint, file).to(self.device)
        return _Detector(file, network, own)

    def due(self, every: int) -> bool:
        """Whether `every` images were reviewed since the last round began."""
        before = self.rounds[-1]["images"] if self.rounds else 0
        new = self.store.progress(0)["decided"] - before
        asked, self.asked = self.asked, self.store.get_meta("asked")
        return new >= every or (new > 0 and asked != self.asked)

    def take(self) -> dict[str, Any]:
        """Learn from what is reviewed; returns what the page tells of the round.

        Raises:
            UserError, OSError: as training does.
        """
        images = self.store.progress(0)["decided"]
        reviewed: dict[str, ReviewedBoxes] = {}
        if any(image.reviewed != "none" for image in review_file.read(self.store.path)):
            reviewed, _ = read_reviewed(self.store.path, self.training_set.dataset)
        held = {name: each for name, each in reviewed.items() if each.complete and is_held_out(name)}
        learned = {**self.training_set.reviewed, **reviewed}
        learned = {name: each for name, each in learned.items() if name not in held}
        found = {"number": len(self.rounds) + 1, "images": images, "held_out": len(held), "kept": False}
        new = self._train(found["number"], learned, held) if learned else self.now
        before, after, first = (self._ap(each, held) for each in (self.now, new, self.first))
        kept = new is not self.now
        if len(held) >= _ENOUGH and before is not None and after is not None:
            kept = kept and after >= before
        found |= {"kept": kept, "ap": after if kept else before, "ap_first": first}
        logger.info("round       %s", found)
        self.rounds.append(found)
        self.store.set_meta(rounds=self.rounds)  # from here on the round is complete
        if kept:
            self.now, self.number = new, found["number"]
        for path in self.folder.glob("round_*.pt"):
            if path != self.now.path:
                path.unlink()
        return found

    def improve(self, count: int) -> int:
        """Find boxes anew in the next `count` images that nobody has opened; returns in how many."""
        detector, dataset = detector_name(self.weights, self.number), self.training_set.dataset
        names = self.store.outdated(detector, count)
        rows = {image_id: index for index, image_id in enumerate(dataset.image_ids)}
        indices = [rows[find_id(name, rows)] for name in names]
        labels = torch.from_numpy(self.training_set.labels())  # (all images, C) bool
        thresholds = find_thresholds(self.weights, dataset.class_names, fallback=SCORE_THRESHOLD)
        images = []
        for index, scores in zip(indices, self._scores(self.now, indices), strict=True):
            found = boxes_to_review(self.training_set, index, labels[index], scores, thresholds)
            images.append(new_image(dataset, index, found, detector))
        self.store.improve(images)
        return len(names)

    def _scores(self, detector: _Detector, indices: Sequence[int]) -> Iterator[Scores]:
        precision = build_precision(self.cfg, self.device)
        found = predict_all(
            *(self.cfg, detector.network, self.training_set.dataset, indices, precision),
            self.training_set.proposals,
        )
        return (scores.to("cpu") for scores in found)

    def _ap(self, detector: _Detector, held: Mapping[str, ReviewedBoxes]) -> float | None:
        """AP50 in percent on the images that are held out, the mean of the classes that they show."""
        dataset = self.training_set.dataset
        rows = [index for index, image_id in enumerate(dataset.image_ids) if image_id in held]
        student = isinstance(detector.network, FasterRCNN)
        finish = build_student_postprocess(self.cfg) if student else build_postprocess(self.cfg)
        new = [row for row in rows if row not in detector.found]
        for row, scores in zip(new, self._scores(detector, new), strict=True):
            detector.found[row] = finish(scores)
        truth = [_annotation(dataset.image_ids[row], held[dataset.image_ids[row]]) for row in rows]
        if not any(len(each.labels) for each in truth):
            return None
        aps = voc_ap([detector.found[row] for row in rows], truth, len(dataset.class_names))
        return round(100 * float(np.nanmean(aps)), 1)

    def _train(
        self, number: int, reviewed: Mapping[str, ReviewedBoxes], held: Mapping[str, ReviewedBoxes]
    ) -> _Detector:
        """A copy of the detector, after a round of training."""
        new, folder = self._load(self.now.path), self.folder / "round"
        shutil.rmtree(folder, ignore_errors=True)  # of a round that was killed
        folder.mkdir(parents=True)
        training_set = replace(self.training_set, reviewed=reviewed)
        student = isinstance(new.network, FasterRCNN)
        cfg = short_cfg(student_cfg(self.cfg) if student else self.cfg, number)
        seed_everything(cfg.seed, cfg.deterministic)
        batches: DataLoader
        if isinstance(new.network, FasterRCNN):
            batches = self._student_batches(cfg, training_set, held)
            if cfg.self_train.strong_views:
                new.network.register_forward_pre_hook(distort_images)
        else:
            batches = build_train_loader(cfg, training_set, stride=new.network.backbone.stride)
        frozen: nn.Module = new.network.backbone.body if student else new.network.backbone  # type: ignore[assignment]
        frozen.requires_grad_(False)
        new.network.register_forward_pre_hook(
            lambda *_: frozen.eval() and None
        )  # batch norm has weights, too
        make_steps(
            new.network,
            (lambda losses, batch: losses) if student else build_criterion(cfg),
            build_optimizer(cfg, new.network),
            batches,
            build_train_options(cfg),
            folder=folder,
            precision=build_precision(cfg, self.device),
            config=new.config.dump(),
        )
        path = self._path(number)
        (folder / "model_final.pt").replace(path)
        shutil.rmtree(folder)
        return self._load(path)

    def _student_batches(
        self, cfg: Settings, training_set: TrainingSet, held: Mapping[str, ReviewedBoxes]
    ) -> DataLoader:
        """Batches of reviewed boxes, and in other images of those that were found and are sure."""
        dataset, starts = training_set.dataset, self.store.starts()
        rows = {image_id: index for index, image_id in enumerate(dataset.image_ids)}
        found = {find_id(name, rows): start for name, start in starts.items()}
        boxes, drawn = [], []
        for image_id in dataset.image_ids:
            known = training_set.reviewed.get(image_id)
            drawn.append(known is not None)
            if known is None:
                known = _sure_boxes(found.get(image_id, {"boxes": []}), dataset.class_names)
                drawn[-1] = image_id not in held and len(known.boxes) > 0
            boxes.append(_annotation(image_id, known))
        factors = draw_factors(cfg, training_set)
        factors = np.array(drawn) * (1.0 if factors is None else factors)
        weighs = cfg.self_train.pseudo_weight != 1
        images = BoxDataset(
            _Boxed(dataset, boxes),
            flip=cfg.input.flip,
            reviewed=reviewed_counts(training_set.reviewed, dataset.image_ids) if weighs else (),
            copy_paste=cfg.self_train.copy_paste,
            mosaic=cfg.self_train.mosaic,
            pool=np.flatnonzero(factors),
        )
        return build_box_loader(cfg, images, start=0, factors=factors)


def _sure_boxes(start: Mapping[str, Any], class_names: Sequence[str]) -> ReviewedBoxes:
    """The boxes of an image that nobody has reviewed, as far as the detector is sure of them."""
    sure = [box for box in start["boxes"] if (box["score"] or 0.0) >= _SURE]
    labels = [class_names.index(box["label"]) for box in sure]
    boxes = torch.tensor([box["box"] for box in sure]).reshape(-1, 4)
    return ReviewedBoxes(boxes, torch.tensor(labels, dtype=torch.int64), complete=False)


def _annotation(image_id: str, known: ReviewedBoxes) -> Annotation:
    return Annotation(image_id, known.boxes, known.labels, torch.zeros(len(known.labels), dtype=torch.bool))


class _Boxed:
    """A data set with other boxes than its own."""

    def __init__(self, dataset: AnnotatedImages, boxes: Sequence[Annotation]) -> None:
        self.class_names, self.image_ids = dataset.class_names, dataset.image_ids
        self.image_size, self.read_image = dataset.image_size, dataset.read_image
        self.labels, self.unknown = dataset.labels, dataset.unknown
        self.annotation = boxes.__getitem__

"""Short rounds of training on the boxes reviewed so far, and new boxes from the trained detector."""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from detector.config import Settings, with_values
from detector.data.build import build_tiling, build_train_loader, draw_factors
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.formats import review_file
from detector.data.loader import read_parts
from detector.data.reviewed import find_id, read_reviewed, reviewed_counts
from detector.data.training_set import TrainingSet
from detector.engine.build import build_optimizer, build_train_options
from detector.engine.loop import make_steps
from detector.engine.precision import Precision
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

STEPS = 60  # training steps of a round
_LR_FACTOR = 0.3  # relative to the learning rate of the run
_HELD_OUT_ONE_IN = 5  # one reviewed image in this many is held out from training
_LEAST_HELD_OUT = 5  # held-out images needed to undo a round that lowers their AP
_LEAST_SCORE = 0.5  # least score of an unreviewed box that a student learns


def is_held_out(image_id: str) -> bool:
    """Whether a reviewed image is held out to measure the detector; the id alone decides."""
    return int(hashlib.sha256(image_id.encode()).hexdigest(), 16) % _HELD_OUT_ONE_IN == 0


def round_cfg(cfg: Settings, number: int) -> Settings:
    """The config of a round, from that of the run."""
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
    """A network, and its detections in held-out images."""

    path: Path
    network: WeakRCNN | FasterRCNN
    config: Settings  # the one it was trained with
    found: dict[int, Detections] = field(default_factory=dict)


class Rounds:
    """The rounds of one review; results are in the file of the review and in FOLDER/round_N.pt.

    A weak detector continues its training with the reviewed boxes; a student learns these and, in other
    images, boxes that the detector found. The backbone is frozen. One in five reviewed images is held out to
    measure AP; a round that lowers it is undone. A killed process resumes after the last complete round.

    Args:
        weights: the detector that the review began with.
        folder: where the trained weights are written.
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
            past["number"] for past in self.rounds if past["kept"] and self._path(past["number"]).exists()
        ]
        self.number = kept[-1] if kept else 0  # the round whose weights are in use; 0: the original weights
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
        """Train on the reviewed boxes; returns the summary of the round for the page.

        Raises:
            UserError, OSError: as training does.
        """
        images = self.store.progress(0)["decided"]
        reviewed: dict[str, ReviewedBoxes] = {}
        if any(image.reviewed != "none" for image in review_file.read(self.store.path)):
            reviewed, _ = read_reviewed(self.store.path, self.training_set.dataset)
        held = {name: boxes for name, boxes in reviewed.items() if boxes.complete and is_held_out(name)}
        learned = {**self.training_set.reviewed, **reviewed}
        learned = {name: boxes for name, boxes in learned.items() if name not in held}
        found = {"number": len(self.rounds) + 1, "images": images, "held_out": len(held), "kept": False}
        new = self._train(found["number"], learned, held) if learned else self.now
        before, after, first = (self._ap(candidate, held) for candidate in (self.now, new, self.first))
        kept = new is not self.now
        if len(held) >= _LEAST_HELD_OUT and before is not None and after is not None:
            kept = kept and after >= before
        found |= {"kept": kept, "ap": after if kept else before, "ap_first": first}
        logger.info("round       %s", found)
        self.rounds.append(found)
        self.store.set_meta(rounds=self.rounds)  # now the round is complete
        if kept:
            self.now, self.number = new, found["number"]
        for path in self.folder.glob("round_*.pt"):
            if path != self.now.path:
                path.unlink()
        return found

    def improve(self, count: int) -> int:
        """Find new boxes in up to `count` images that nobody has opened; returns the number of images."""
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
        precision = Precision(self.cfg.precision, self.device)
        found = predict_all(
            *(self.cfg, detector.network, self.training_set.dataset, indices, precision),
            self.training_set.proposals,
        )
        return (scores.to("cpu") for scores in found)

    def _ap(self, detector: _Detector, held: Mapping[str, ReviewedBoxes]) -> float | None:
        """AP50 in percent on the held-out images, averaged over the classes that they show."""
        dataset = self.training_set.dataset
        rows = [index for index, image_id in enumerate(dataset.image_ids) if image_id in held]
        student = isinstance(detector.network, FasterRCNN)
        finish = build_student_postprocess(self.cfg.test) if student else build_postprocess(self.cfg.test)
        new = [row for row in rows if row not in detector.found]
        for row, scores in zip(new, self._scores(detector, new), strict=True):
            detector.found[row] = finish(scores)
        truth = [_annotation(dataset.image_ids[row], held[dataset.image_ids[row]]) for row in rows]
        if not any(len(annotation.labels) for annotation in truth):
            return None
        aps = voc_ap([detector.found[row] for row in rows], truth, len(dataset.class_names))
        return round(100 * float(np.nanmean(aps)), 1)

    def _train(
        self, number: int, reviewed: Mapping[str, ReviewedBoxes], held: Mapping[str, ReviewedBoxes]
    ) -> _Detector:
        """A copy of the detector, after a round of training."""
        new, folder = self._load(self.now.path), self.folder / "round"
        shutil.rmtree(folder, ignore_errors=True)  # left by a killed round
        folder.mkdir(parents=True)
        training_set = replace(self.training_set, reviewed=reviewed)
        student = isinstance(new.network, FasterRCNN)
        cfg = round_cfg(student_cfg(self.cfg) if student else self.cfg, number)
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
        )  # keep the statistics of batch norm
        make_steps(
            new.network,
            (lambda losses, batch: losses) if student else build_criterion(cfg),
            build_optimizer(cfg.solver, new.network),
            batches,
            build_train_options(cfg.solver, cfg.seed),
            folder=folder,
            precision=Precision(cfg.precision, self.device),
            config=new.config.dump(),
        )
        path = self._path(number)
        (folder / "model_final.pt").replace(path)
        shutil.rmtree(folder)
        return self._load(path)

    def _student_batches(
        self, cfg: Settings, training_set: TrainingSet, held: Mapping[str, ReviewedBoxes]
    ) -> DataLoader:
        """Batches of reviewed boxes and, from other images, of found boxes with high scores."""
        dataset, starts = training_set.dataset, self.store.starts()
        rows = {image_id: index for index, image_id in enumerate(dataset.image_ids)}
        found = {find_id(name, rows): start for name, start in starts.items()}
        boxes, drawn = [], []
        for image_id in dataset.image_ids:
            known = training_set.reviewed.get(image_id)
            drawn.append(known is not None)
            if known is None:
                known = _confident_boxes(found.get(image_id, {"boxes": []}), dataset.class_names)
                drawn[-1] = image_id not in held and len(known.boxes) > 0
            boxes.append(_annotation(image_id, known))
        factors = draw_factors(cfg.solver, training_set)
        factors = np.array(drawn) * (1.0 if factors is None else factors)
        weighs = cfg.self_train.pseudo_weight != 1
        images = BoxDataset(
            _Boxed(dataset, boxes),  # type: ignore[arg-type]  # BoxDataset reads images in parts, too
            flip=cfg.input.flip,
            reviewed=reviewed_counts(training_set.reviewed, dataset.image_ids) if weighs else (),
            copy_paste=cfg.self_train.copy_paste,
            mosaic=cfg.self_train.mosaic,
            pool=np.flatnonzero(factors),
            tiling=build_tiling(cfg.input),
        )
        return build_box_loader(cfg, images, start=0, factors=factors)


def _confident_boxes(start: Mapping[str, Any], class_names: Sequence[str]) -> ReviewedBoxes:
    """The boxes with high scores in an image that nobody has reviewed."""
    sure = [box for box in start["boxes"] if (box["score"] or 0.0) >= _LEAST_SCORE]
    labels = [class_names.index(box["label"]) for box in sure]
    boxes = torch.tensor([box["box"] for box in sure]).reshape(-1, 4)
    return ReviewedBoxes(boxes, torch.tensor(labels, dtype=torch.int64), complete=False)


def _annotation(image_id: str, known: ReviewedBoxes) -> Annotation:
    return Annotation(image_id, known.boxes, known.labels, torch.zeros(len(known.labels), dtype=torch.bool))


class _Boxed:
    """A data set whose boxes are replaced."""

    def __init__(self, dataset: AnnotatedImages, boxes: Sequence[Annotation]) -> None:
        self.class_names, self.image_ids = dataset.class_names, dataset.image_ids
        self.image_size, self.read_image = dataset.image_size, partial(read_parts, dataset)
        self.labels, self.unknown = dataset.labels, dataset.unknown
        self.annotation = boxes.__getitem__

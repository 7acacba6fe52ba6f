"""How long the stages of a training will take on this machine: some images and steps are timed first."""

import itertools
import logging
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from detector.commands.propose import build_search, num_workers, starting_seconds
from detector.config import Settings, with_values
from detector.data.build import (
    build_dataset,
    build_test_loader,
    build_tiling,
    build_train_loader,
    build_training_set,
    name_classes,
)
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.images import read_image
from detector.data.proposals import Proposals
from detector.data.proposals.search import Finder
from detector.data.training_set import TrainingSet
from detector.engine.build import build_optimizer, build_train_options
from detector.engine.loop import Step
from detector.engine.passes import predict
from detector.engine.precision import Precision, set_tf32
from detector.modeling.backbones.build import load_pretrained
from detector.modeling.build import build_criterion, build_model, build_postprocess
from detector.self_training.box_loader import BoxDataset
from detector.self_training.build import build_box_loader, build_student, build_student_postprocess
from detector.self_training.faster_rcnn import FasterRCNN
from detector.self_training.fcos import FCOS
from detector.self_training.fuse import SOURCES
from detector.self_training.join import names_objects
from detector.self_training.scoring import score_images
from detector.self_training.self_train import student_cfg
from detector.self_training.teacher import distort_images
from detector.self_training.trials import HALVES, trial_cfg
from detector.structures import Annotation
from detector.utils.command_line import usable_cores
from detector.utils.distributed import (
    LONG_WAIT,
    find_device,
    gather,
    is_main,
    process_group,
    sync_errors,
    world_size,
)
from detector.utils.errors import UserError
from detector.utils.progress import duration
from detector.utils.reproducibility import seed_everything

_SECONDS, _LEAST, _MOST = 2.0, 2, 8  # for how long steps are timed, and how many at least and at most
_IMAGES = 4  # of a split that are timed; the first one warms up


def announce(cfg: Settings, done: Mapping[str, int], *, num_weights: int = 1) -> dict[str, float]:
    """:func:`forecast`, printed: what will run, and how long each stage and all of them will take.

    {}: it could not be timed. The stage that fails for the same reason says more, such as all images that
    cannot be read.
    """
    if is_main():
        print("timing some steps, to say how long it will take", flush=True)
    try:
        seconds = forecast(cfg, done, num_weights=num_weights)
    except (UserError, OSError):
        if world_size() > 1:  # others may wait for this one
            raise
        print("  could not be timed", flush=True)  # as images that are read in parts
        return {}
    student = cfg.self_train.max_iter + cfg.self_train.teacher_steps
    kind = (FCOS if cfg.self_train.detector == "fcos" else FasterRCNN).kind
    about = {
        "propose": f"boxes to choose among, {cfg.proposals.mode}",
        "train": f"{cfg.solver.max_iter} steps of {cfg.model.method}",
        "test": f"the weak detector on {cfg.datasets.test_split}",
        **{name: "the same from another seed" for name in seconds if name.startswith("train ")},
        "self-train": f"boxes, {student} steps of the {kind}, its test",
    }
    if is_main():
        for name in about:
            if name in seconds:
                print(f"  {name:<13} {about[name]:<52}{duration(seconds[name]):>9}")
        print(f"  {'in all about':<66}{duration(sum(seconds.values())):>9}", flush=True)
    return seconds


def forecast(cfg: Settings, done: Mapping[str, int], *, num_weights: int = 1) -> dict[str, float]:
    """Seconds of the stages "propose", "train", "test", "train seed N" and "self-train".

    Nothing is written, and what is measured changes no result: each stage seeds its random numbers itself.
    Under torchrun all processes call it together.

    Args:
        cfg: of the whole training.
        done: the stages to time, with the steps that were made of each before.
        num_weights: of the weak detectors whose mean finds the pseudo boxes.

    Raises:
        UserError, OSError: what would stop a stage, such as data that cannot be read.
    """
    device = find_device(cfg.device)
    with process_group(device, LONG_WAIT), _quiet():
        with sync_errors():
            if cfg.threads:
                torch.set_num_threads(cfg.threads)
            seed_everything(cfg.seed, cfg.deterministic)
            set_tf32(cfg.precision == "tf32")
            trial = _start(cfg, device)
        seconds: dict[str, float] = {}
        trainings = [name for name in done if name.startswith("train")]
        if trainings or "test" in done or "self-train" in done:
            with sync_errors():
                build_model(trial.cfg)  # the first time imports packages, which no stage does again
                began = time.perf_counter()
                weak = build_model(trial.cfg).to(device)
                load_pretrained(trial.cfg.model, trial.cfg.input, weak)
                trial.starting += time.perf_counter() - began
            of_step = trial.weak_step(weak) if trainings else 0.0
            of_image = trial.weak_image(weak) if "test" in done or "self-train" in done else 0.0
            del weak
            share = 1 + cfg.solver.ap_share
            for name in trainings:
                seconds[name] = trial.starting + share * of_step * (cfg.solver.max_iter - done[name])
            seconds["test"] = trial.starting + of_image * trial.num_tested / world_size()
        if "self-train" in done:
            step, image = trial.student()
            pseudo = trial.starting + num_weights * of_image * len(trial.train_set.dataset) / world_size()
            steps = max(0, cfg.self_train.max_iter - done["self-train"])
            training = trial.starting + share * steps * step
            batch = cfg.self_train.images_per_batch / world_size()
            training += share * cfg.self_train.teacher_steps * (step + batch * image)
            if cfg.self_train.trial_share and names_objects(trial.train_set.teacher):
                trials = len(SOURCES) * HALVES * trial_cfg(student_cfg(cfg)).solver.max_iter
                scored = len(SOURCES) * len(trial.train_set.dataset) / world_size()
                training += trials * step + scored * image
            test = trial.starting + image * trial.num_tested / world_size()
            seconds["self-train"] = pseudo + training + test
        if "propose" in done:
            seconds["propose"] = trial.search_seconds()
    return {name: spent for name, spent in seconds.items() if name in done}


@contextmanager
def _quiet() -> Iterator[None]:
    """The stages say again what there is to say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


class _Searched(Proposals):
    """Proposals that are searched when they are asked for, each once, with the time that this took."""

    def __init__(self, find: Finder, files: Mapping[str, Path], apply_orientation: bool) -> None:
        self._find, self._files, self._apply_orientation = find, files, apply_orientation
        self._found: dict[str, Tensor] = {}
        self.seconds = 0.0

    def check(self, dataset: object) -> None:
        """Each image has proposals."""

    def __getitem__(self, image_id: str) -> Tensor:
        if image_id not in self._found:
            began = time.perf_counter()
            image = read_image(self._files[image_id], apply_orientation=self._apply_orientation)
            self._found[image_id] = torch.from_numpy(self._find(image.permute(1, 2, 0).numpy()))
            self.seconds += time.perf_counter() - began
        return self._found[image_id].clone()

    @property
    def of_image(self) -> float:
        return self.seconds / max(1, len(self._found))


class _Timed:
    """An iterator that counts the seconds of waiting for its items."""

    def __init__(self, items: Iterable) -> None:
        self._items, self.seconds = iter(items), 0.0

    def __iter__(self) -> "_Timed":
        return self

    def __next__(self) -> Any:
        began = time.perf_counter()
        try:
            return next(self._items)
        finally:
            self.seconds += time.perf_counter() - began


class _OneBox:
    """The images of a data set, each with a box of its middle: what a student learns does not matter."""

    def __init__(self, source: AnnotatedImages) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def annotation(self, index: int) -> Annotation:
        height, width = self._source.image_size(index)
        box = torch.tensor([[width / 4, height / 4, 3 * width / 4, 3 * height / 4]])
        none = torch.zeros(1, dtype=torch.bool)
        return Annotation(self.image_ids[index], box, torch.zeros(1, dtype=torch.int64), none)


@dataclass
class _Trial:
    """The data of a training, of which a few images are read, and what is timed with them."""

    cfg: Settings
    device: torch.device
    train_set: TrainingSet
    test_set: AnnotatedImages
    starting: float  # seconds in which a stage reads the data set and builds its network

    @property
    def precision(self) -> Precision:
        return Precision(self.cfg.precision, self.device)

    @property
    def num_tested(self) -> int:
        """Images of a test: those of the test split, and those to train on that have boxes, for CorLoc."""
        dataset = self.train_set.dataset
        return len(self.test_set) + sum(dataset.annotation(i) is not None for i in range(len(dataset)))

    def search_seconds(self) -> float:
        proposals, count = self.train_set.proposals, len(self.train_set.dataset) + len(self.test_set)
        assert isinstance(proposals, _Searched)
        proposals[self.train_set.dataset.image_ids[0]]  # none was searched if nothing else is to be done
        return starting_seconds() + proposals.of_image * count / (num_workers() * world_size())

    def weak_step(self, model: Any) -> float:
        """Seconds of a step of the weak detector."""
        cfg = with_values(self.cfg, {"DATASETS.WORKERS": 0})
        batches = build_train_loader(cfg, self.train_set, stride=model.backbone.stride)
        return self._step(cfg, model, build_criterion(cfg), batches)

    def weak_image(self, model: nn.Module) -> float:
        """Seconds of an image in all test passes."""
        cfg, images = with_values(self.cfg, {"DATASETS.WORKERS": 0}), self._images()
        loader = _Timed(build_test_loader(cfg, self.test_set, images, self.train_set.proposals))
        scores = predict(model, loader, device=self.device, precision=self.precision)
        results = map(build_postprocess(cfg.test), scores)
        next(results)
        waited, searched, began = loader.seconds, self._searched, time.perf_counter()
        for _ in results:
            pass
        seconds, waited = time.perf_counter() - began, loader.seconds - waited
        count = max(1, len(images) - 1)
        return self._together((seconds - waited) / count, (waited - self._searched + searched) / count)

    def student(self) -> tuple[float, float]:
        """Seconds of a step of the student, and of an image in its test."""
        cfg = student_cfg(with_values(self.cfg, {"DATASETS.WORKERS": 0}))
        model = build_student(cfg).to(self.device)
        if cfg.self_train.strong_views:
            model.register_forward_pre_hook(distort_images)
        source, tiling = _OneBox(self.train_set.dataset), build_tiling(cfg.input)
        images = BoxDataset(
            source,  # type: ignore[arg-type]
            flip=cfg.input.flip,
            reviewed=[(0, False)] * len(source.image_ids) if cfg.self_train.pseudo_weight != 1 else (),
            copy_paste=cfg.self_train.copy_paste,
            mosaic=cfg.self_train.mosaic,
            tiling=tiling,
        )
        step = self._step(
            cfg, model, lambda losses, batch: losses, build_box_loader(cfg, images, start=0, factors=None)
        )
        tested = self._images()
        size = min(cfg.solver.images_per_batch, len(tested))
        scores = score_images(
            model.eval(),
            self.test_set,
            tested * 2,
            device=self.device,
            precision=self.precision,
            images_per_batch=size,
            tiling=tiling,
        )
        results = map(build_student_postprocess(cfg.test), scores)
        for _ in range(size):
            next(results)
        began = time.perf_counter()
        count = sum(1 for _ in results)
        return step, (time.perf_counter() - began) / max(1, count)

    @property
    def _searched(self) -> float:
        """Seconds of the search for proposals until now, which is a stage of its own."""
        proposals = self.train_set.proposals
        return proposals.seconds if isinstance(proposals, _Searched) else 0.0

    def _images(self) -> list[int]:
        return list(range(0, len(self.test_set), -(-len(self.test_set) // _IMAGES)))

    def _step(
        self,
        cfg: Settings,
        model: nn.Module,
        criterion: Callable[..., Mapping[str, Tensor]],
        batches: Iterable,
    ) -> float:
        model.train()
        timed, options = _Timed(batches), build_train_options(cfg.solver, cfg.seed)
        step = Step(model, criterion, build_optimizer(cfg.solver, model), options, self.precision, 0)
        step(1, timed, check=True)
        waited, searched, began = timed.seconds, self._searched, time.perf_counter()
        for count in itertools.count(1):
            step(count + 1, timed, check=True)
            enough = time.perf_counter() - began > _SECONDS and count >= _LEAST
            if gather(enough or count >= _MOST)[0]:
                break
        seconds, waited = time.perf_counter() - began, timed.seconds - waited
        return self._together((seconds - waited) / count, (waited - self._searched + searched) / count)

    def _together(self, computing: float, reading: float) -> float:
        """Seconds of what computes while workers read: of the slower, or of all work on these cores."""
        workers = self.cfg.datasets.workers
        if not workers:
            return computing + reading
        threads = torch.get_num_threads() if self.device.type == "cpu" else 0
        return max(computing, reading / workers, (threads * computing + reading) / usable_cores())


def _start(cfg: Settings, device: torch.device) -> _Trial:
    began = time.perf_counter()
    train_set = build_training_set(cfg)
    cfg = name_classes(cfg, train_set.dataset)
    test_set = build_dataset(cfg, cfg.datasets.test_split)
    starting = time.perf_counter() - began
    if train_set.proposals is None:
        files = {
            image_id: dataset.image_path(i)
            for dataset in (train_set.dataset, test_set)
            for i, image_id in enumerate(dataset.image_ids)
        }
        find, _ = build_search(cfg)
        train_set = replace(train_set, proposals=_Searched(find, files, train_set.dataset.apply_orientation))
    return _Trial(cfg, device, train_set, test_set, starting)

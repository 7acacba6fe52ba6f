"""detector.engine.running_ap: AP while training costs little time and changes nothing."""

import time

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_training import CONFIG, tiny_words
from train_cases import batches, criterion, make, weights

import detector
from detector.commands.propose import make_proposals
from detector.engine.checkpoint import load_checkpoint
from detector.engine.loop import TrainOptions, make_steps
from detector.engine.precision import Precision
from detector.engine.running_ap import RunningAP
from detector.self_training.self_train import self_train
from detector.structures import Annotation, Detections
from detector.utils.errors import UserError

BOX = torch.tensor([[0.0, 0, 10, 10]])


class Images:
    """Forty images, of which every second one has a box of class 1 of two."""

    class_names = ("cat", "dog")
    image_ids = tuple(f"image{i}" for i in range(40))

    def __len__(self):
        return 40

    def annotation(self, index):
        if index % 2:
            return None
        return Annotation(self.image_ids[index], BOX, torch.ones(1, dtype=torch.int64), torch.zeros(1) > 0)


class Clock:
    """Time that passes by the steps made and the images looked at."""

    def __init__(self, monkeypatch, of_image):
        self.now, self.of_image, self.looked = 0.0, of_image, []
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def detect(self, model, indices):
        """Finds the box in the images 0, 8, 16, ..., and nothing in the others."""
        assert not model.training
        self.looked.append(list(indices))
        self.now += self.of_image * len(indices)
        for i in indices:
            found = slice(0, 1 if i % 8 == 0 else 0)
            yield Detections(
                Images.image_ids[i], BOX[found], torch.ones(1)[found], torch.ones(1)[found].long()
            )


def curve(running_ap, clock, steps, model=None):
    """AP by step, of steps of a second."""
    found = {}
    for step in range(1, steps + 1):
        clock.now += 1
        found[step] = running_ap.measure(model or torch.nn.Linear(1, 1), step, steps)
    return {step: ap for step, ap in found.items() if ap is not None}


@pytest.mark.parametrize(
    ("of_image", "points", "count"), [(0.01, 10, 20), (0.3, 10, 12), (0.7, 5, 10), (1.5, 2, 10), (5.0, 0, 10)]
)
def test_points_and_images_are_chosen_by_their_time(monkeypatch, of_image, points, count):
    clock = Clock(monkeypatch, of_image)
    found = curve(RunningAP(clock.detect, Images(), 0.05), clock, 1000)
    assert len(found) == points
    assert clock.now - 1000 <= 0.05 * 1000
    if points:
        images = clock.looked[-1]
        assert len(images) == count
        assert all(each == images for each in clock.looked[2:])
        assert max(found) == 1000
        hits = sum(i % 8 == 0 for i in images)
        assert list(found.values()) == pytest.approx([100 * hits / len(images)] * points)


def test_a_slower_machine_drops_points_rather_than_exceed_the_share(monkeypatch):
    clock = Clock(monkeypatch, 0.3)
    running_ap = RunningAP(clock.detect, Images(), 0.05)
    for step in range(1, 1001):
        clock.now += 1
        if step == 500:
            clock.of_image = 1.5
        running_ap.measure(torch.nn.Linear(1, 1), step, 1000)
    assert 4 < len(clock.looked) < 10
    assert clock.now - 1000 <= 0.05 * 1000 + 12 * 1.5


def test_few_steps_and_images_without_boxes_give_no_curve(monkeypatch):
    clock, images = Clock(monkeypatch, 0.01), Images()
    assert curve(RunningAP(clock.detect, images, 0.05), clock, 5) == {}
    monkeypatch.setattr(Images, "annotation", lambda self, index: None)
    assert curve(RunningAP(clock.detect, images, 0.05), clock, 100) == {}
    assert clock.looked == []


def test_scores_that_are_not_finite_are_left_to_the_next_step(monkeypatch):
    clock, model = Clock(monkeypatch, 0.01), torch.nn.Linear(1, 1)

    def fails(model, indices):
        raise UserError("not finite")

    assert curve(RunningAP(fails, Images(), 0.05), clock, 100, model) == {}
    assert model.training


def test_the_weights_are_the_same_with_and_without_it(tmp_path, monkeypatch):
    clock = Clock(monkeypatch, 0.0001)
    found = []
    for running_ap in (None, RunningAP(clock.detect, Images(), 0.5)):
        net, optimizer = make()
        options = TrainOptions(5, 40, lambda iteration: 1 / (1 + iteration))
        precision = Precision("float32", torch.device("cpu"))

        def steps():
            for batch in batches():
                clock.now += 1
                yield batch

        make_steps(
            net,
            criterion,
            optimizer,
            steps(),
            options,
            folder=tmp_path / str(len(found)),
            precision=precision,
            running_ap=running_ap,
        )
        found.append(weights(net))
    assert len(clock.looked) > 5
    assert found[0].equal(found[1])


def run_with_share(tmp_path, words, share):
    """The folder of a run of both trainings, of ten steps each."""
    folder = tmp_path / str(share)
    words = [*words, "OUTPUT_DIR", str(folder), "SOLVER.AP_SHARE", str(share)]
    detector.train(CONFIG, dict(zip(words[::2], words[1::2], strict=True)))
    self_train(CONFIG, words, [], resume=False)
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("process_as_before")
def test_both_trainings_have_a_curve_and_the_same_weights_without_it(tmp_path, monkeypatch):
    monkeypatch.setattr(
        RunningAP, "_share", property(lambda _: 1e6, lambda *_: None), raising=False
    )  # time enough
    words = [*tiny_words(tmp_path), "SOLVER.MAX_ITER", "10", "SELF_TRAIN.MAX_ITER", "10"]
    words += ["SOLVER.IMAGES_PER_BATCH", "2", "SELF_TRAIN.TEACHER_STEPS", "8"]
    make_proposals(config_file=CONFIG, overrides=words, workers=1)
    with_it, without = (run_with_share(tmp_path, words, share) for share in (1.0, 0.0))
    for part in (".", "self_train", "self_train/round_1"):
        models = [load_checkpoint(folder / part / "model_final.pt")["model"] for folder in (with_it, without)]
        assert all(models[0][name].equal(models[1][name]) for name in models[1])
        curves = []
        for folder in (with_it, without):
            events = EventAccumulator(str(folder / part))
            events.Reload()
            curves.append("train/AP50" in events.Tags()["scalars"])
        assert curves == [True, False], part

"""How what a weak detector found in all images is joined with what a teacher did."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from detector.config import Settings
from detector.data.datasets.voc import VOCDataset
from detector.data.toybox import CLASSES, draw_toybox
from detector.data.training_set import TrainingSet
from detector.self_training import join as module
from detector.self_training.fuse import Opinion, support
from detector.self_training.student import StudentRun
from detector.structures import Detections, Scores, TeacherBoxes

OURS, THEIRS = [6.0, 4.0, 30.0, 20.0], [2.0, 2.0, 34.0, 30.0]


@pytest.fixture
def joined(tmp_path) -> Callable[[int], dict[int, Detections]]:
    """The boxes to learn from our box of each tag and a teacher's box with a label in each image."""

    draw_toybox(tmp_path / "toybox", train=6, test=1)

    def call(label: int) -> dict[int, Detections]:
        dataset = VOCDataset(tmp_path / "toybox", "trainval", CLASSES)
        boxes = TeacherBoxes(torch.tensor([THEIRS]), torch.ones(1), torch.tensor([label]))
        teacher = {image_id: boxes for image_id in dataset.image_ids}
        opinions = {}
        for index, image_id in enumerate(dataset.image_ids):
            labels = dataset.labels(index).nonzero()[:, 0]
            box = torch.tensor([OURS])
            scores = Scores(
                image_id, box.repeat(1, len(CLASSES)).reshape(1, -1, 4), torch.ones(1, len(CLASSES))
            )
            ours = Detections(image_id, box.repeat(len(labels), 1), torch.ones(len(labels)), labels)
            opinions[index] = Opinion(ours, support(boxes, scores, dataset.labels(index) > 0))
        training_set = TrainingSet(dataset, {}, {}, proposals=None, teacher=teacher)
        run = StudentRun(Settings(), tmp_path, torch.device("cpu"))
        return module.join(run, training_set, opinions, tmp_path / "weak.pt", {})

    return call


def test_masks_without_names_are_nothing_to_try(joined, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "try_sources", None)
    boxes = joined(-1)
    assert all((image.boxes == torch.tensor(OURS)).all() for image in boxes.values())
    assert "image_AP" not in (tmp_path / "teacher.json").read_text()


def test_a_class_learns_from_the_source_that_its_trials_name(joined, monkeypatch, tmp_path: Path) -> None:
    def try_sources(trials):
        assert {path.name for path in trials.run.folder.iterdir() if path.is_dir()} == set(module.SOURCES)
        same = np.full(len(CLASSES), 0.5)
        return {"tags": same, "both": same, "teacher": np.where(np.arange(len(CLASSES)) == 1, 0.9, 0.5)}

    monkeypatch.setattr(module, "try_sources", try_sources)
    boxes = joined(1)
    of_class = torch.cat([image.boxes[image.labels == 1] for image in boxes.values()])
    assert len(of_class)
    assert (of_class == torch.tensor(THEIRS)).all()
    others = torch.cat([image.boxes[image.labels != 1] for image in boxes.values()])
    assert (others == torch.tensor(OURS)).all()
    assert '"advice": "alone"' in (tmp_path / "teacher.json").read_text()
    assert not (tmp_path / "trials").exists()

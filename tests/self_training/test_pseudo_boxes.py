"""Which training images a weak detector scores for pseudo boxes."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from PIL import Image

from detector.config import Settings, with_values
from detector.data.datasets.image_labels import ImageLabels
from detector.data.training_set import TrainingSet
from detector.self_training import pseudo_boxes as module
from detector.structures import ReviewedBoxes, Scores, TeacherBoxes

BOX = torch.tensor([[1.0, 2.0, 9.0, 12.0]])
ROWS = ("cat", "", "cat;dog", "dog")  # the second image shows no class, the third is reviewed


@pytest.fixture
def dataset(tmp_path: Path) -> ImageLabels:
    for index in range(len(ROWS)):
        Image.new("RGB", (16, 16)).save(tmp_path / f"{index}.png")
    lines = [f"{index}.png,{labels}" for index, labels in enumerate(ROWS)]
    (tmp_path / "train.csv").write_text("\n".join(lines) + "\n")
    return ImageLabels(tmp_path, "train")


@pytest.fixture
def scored(monkeypatch) -> list[int]:
    """The images that detectors have scored, each with a box of each class."""
    rows: list[int] = []

    def predict_all(cfg, model, dataset, indices: Sequence[int], *others):
        for index in indices:
            rows.append(index)
            yield Scores(dataset.image_ids[index], BOX.repeat(1, 2).view(1, 2, 4), torch.full((1, 2), 0.9))

    monkeypatch.setattr(module, "predict_all", predict_all)
    return rows


def look(dataset: ImageLabels, *, teacher: bool = False, noise: float = 0.0, complete: bool = True):
    cfg = with_values(Settings(), {"DATASETS.MISSING_TAGS": noise})
    reviewed = {dataset.image_ids[2]: ReviewedBoxes(BOX + 1, torch.tensor([1]), complete)}
    found = TeacherBoxes(BOX, torch.ones(1), torch.tensor([0]))
    seen = dict.fromkeys(dataset.image_ids, found) if teacher else {}
    training_set = TrainingSet(dataset, reviewed, {}, proposals=None, teacher=seen)
    return module.look(cfg, [torch.nn.Identity()], training_set, range(4), torch.device("cpu"))


def test_no_image_is_scored_of_which_no_box_is_taken(dataset, scored) -> None:
    opinions = look(dataset)
    assert scored == [0, 3]
    assert [opinions[index].boxes.labels.tolist() for index in range(4)] == [[0], [], [1], [1]]
    assert torch.equal(opinions[2].boxes.boxes, BOX + 1)
    assert [opinions[index].boxes.image_id for index in range(4)] == list(dataset.image_ids)


def test_an_incomplete_review_or_a_teacher_still_asks_for_scores(dataset, scored) -> None:
    look(dataset, complete=False)
    assert scored == [0, 2, 3]
    scored.clear()
    opinions = look(dataset, teacher=True)
    assert scored == [0, 2, 3]
    assert all(opinion.said is not None for opinion in opinions.values())


def test_tags_that_may_be_missing_are_asked_for(dataset, scored) -> None:
    look(dataset, noise=0.3)
    assert scored == [0, 1, 2, 3]

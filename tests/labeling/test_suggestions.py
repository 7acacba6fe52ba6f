"""Which images to box next: the rules, and the choice among what they value."""

import math

import pytest
import torch

from detector.labeling.suggestions import choose, entropy, information_density, typicality
from detector.structures import Scores

BOXES = torch.tensor([[0.0, 0, 20, 20], [0, 0, 10, 10], [12, 0, 22, 10], [50, 50, 60, 60]])


def test_entropy_of_the_tagged_classes() -> None:
    scores = Scores("a", BOXES[:2, None].expand(2, 3, 4), torch.tensor([[0.5, 0.9, 0.1], [0.2, 0.3, 0.5]]))
    both = entropy(scores, torch.tensor([True, True, False]))
    assert both == pytest.approx(math.log(2) - 0.9 * math.log(0.9) - 0.1 * math.log(0.1), abs=1e-5)
    assert entropy(scores, torch.zeros(3, dtype=torch.bool)) == 0
    nothing = Scores("a", torch.zeros(0, 3, 4), torch.zeros(0, 3))
    assert entropy(nothing, torch.ones(3, dtype=torch.bool)) == 0


def test_an_image_among_others_like_it_is_typical() -> None:
    angles = torch.tensor([0.0, 0.1, 0.2, 1.5])  # three directions close together, and one
    features = torch.stack([angles.cos(), angles.sin()], dim=1) * torch.tensor([[1.0], [2], [3], [4]])
    chords = 2 * (torch.tensor([0.1, 0.1]) / 2).sin()  # from the middle one to its two neighbors
    values = typicality(features, neighbors=2)
    assert values.argmax() == 1
    assert values.argmin() == 3
    assert float(values[1]) == pytest.approx(-float(chords.sum()) / 3, abs=1e-6)
    many = torch.rand(1500, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(typicality(many)[:2], typicality(many.roll(1200, 0))[1200:1202])
    assert typicality(features[:1]).tolist() == [0]


def test_an_uncertain_image_like_no_other_is_worth_little() -> None:
    values = information_density(torch.tensor([2.0, 1.0, 0.0]), torch.tensor([-0.9, -0.4, -0.4]))
    torch.testing.assert_close(values, torch.tensor([0.01, 0.505, 0.01], dtype=torch.float64))
    assert information_density(torch.ones(1), torch.ones(1)).isfinite().all()


NONE = {
    "known_features": torch.zeros(0, 2),
    "known_labels": torch.zeros(0, 3, dtype=torch.bool),
}  # none has boxes


def shown(*classes: int) -> torch.Tensor:
    """Labels (N, 3) of images that show one class; -1: none."""
    return torch.tensor(classes)[:, None] == torch.arange(3)


def test_valuable_images_that_look_different() -> None:
    features, labels = torch.tensor([[1.0, 0], [1, 0.01], [0, 3], [-1, 1]]), shown(1, 1, 1, 1)
    values = torch.tensor([5.0, 4.9, 3.0, 0.0])
    assert choose(values, features, labels, 2, **NONE) == [0, 2]
    assert sorted(choose(values, features, labels, 9, **NONE)) == [0, 1, 2, 3]
    assert choose(torch.ones(4), features, labels, 1, **NONE) == [0]
    like_the_first = {"known_features": torch.tensor([[2.0, 0]]), "known_labels": shown(1)}
    assert choose(values, features, labels, 4, **like_the_first)[0] == 2


def test_a_rule_that_values_one_class_chooses_all_in_their_shares() -> None:
    """Half of the images show class 0, which is all that the rule cares for, a quarter each of the others."""
    labels = shown(*[0] * 20, *[1] * 10, *[2] * 10)
    values = torch.arange(40).flip(0).double()
    features = torch.nn.functional.normalize(torch.rand(40, 2, generator=torch.Generator().manual_seed(0)))
    rows = choose(values, features, labels, 12, **NONE)
    for count in (4, 8, 12):  # of any number, the first are as good
        assert labels[rows[:count]].sum(dim=0).tolist() == [count // 2, count // 4, count // 4]
    assert rows[0] == 0
    boxed = shown(0, 0, 0, 1)
    rows = choose(values, features, labels, 4, known_features=features[:4], known_labels=boxed)
    assert torch.cat([labels[rows], boxed]).sum(dim=0).tolist() == [4, 2, 2]


def test_images_without_a_class_and_classes_without_an_image_left() -> None:
    features, labels = torch.eye(3), shown(-1, 1, 1)
    boxed = {"known_features": torch.ones(2, 3), "known_labels": shown(0, 0)}
    assert choose(torch.tensor([9.0, 1.0, 2.0]), features, labels, 3, **boxed) == [2, 1, 0]

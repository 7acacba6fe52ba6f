"""Losses and pseudo labels where tags may be missing or false."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import binary_cross_entropy

from detector.modeling.criterion import Criterion, mil_loss
from detector.modeling.head import HeadOutputs
from detector.modeling.refinement import Refinement
from detector.modeling.tag_noise import TagNoise, with_likely_tags
from detector.structures import Batch, ReviewedBoxes

NOISE = TagNoise(missing=0.3, false=0.1)


def make_batch(labels: list[list[float]], unknown: list[list[bool]] | None = None) -> Batch:
    count = len(labels)
    return Batch(
        images=torch.zeros(count, 3, 8, 8, dtype=torch.uint8),
        rois=torch.zeros(count, 5),
        labels=torch.tensor(labels),
        counts=torch.ones(count, dtype=torch.int64),
        image_ids=tuple(map(str, range(count))),
        unknown=None if unknown is None else torch.tensor(unknown),
    )


def test_probabilities_by_counting():
    """Of 1,000 images 400 show a class: 280 of these have the tag, and 60 of the others."""
    shown = torch.tensor(0.4)
    assert NOISE.tagged(shown).item() == pytest.approx(0.28 + 0.06)
    assert NOISE.shown(torch.tensor(1.0), shown).item() == pytest.approx(280 / 340)
    assert NOISE.shown(torch.tensor(0.0), shown).item() == pytest.approx(120 / 660)


def test_the_loss_is_least_at_the_truth_and_bounded():
    """With such tags of images of which 40 % show the class; without correction it would be at 0.34."""
    shown = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    tagged = NOISE.tagged(shown)
    expected = 0.34 * binary_cross_entropy(tagged, torch.ones_like(tagged), reduction="none")
    expected += 0.66 * binary_cross_entropy(tagged, torch.zeros_like(tagged), reduction="none")
    assert shown[expected.argmin()].item() == pytest.approx(0.4)
    for label, rate in ((0.0, NOISE.missing), (1.0, NOISE.false)):
        worst = mil_loss(torch.tensor([[1 - label]]), torch.tensor([[label]]), torch.tensor([1]), noise=NOISE)
        assert worst.item() == pytest.approx(-torch.tensor(rate).log().item(), rel=1e-4)


def test_right_tags_change_nothing():
    mil, labels, counts = torch.rand(6, 3) / 3, torch.tensor([[1.0, 0.0, 1.0]] * 2), torch.tensor([3, 3])
    assert torch.equal(mil_loss(mil, labels, counts), mil_loss(mil, labels, counts, noise=TagNoise()))


def test_likely_tags():
    batch = make_batch(
        [[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]], [[False, False, False, True], [False] * 4]
    )
    prior = torch.tensor([[0.9, 0.9, 0.5, 0.99], [0.001, 0.0, 0.0, 0.0]])
    likely = with_likely_tags(batch, NOISE, prior)
    assert likely.labels.tolist() == [[1, 1, 0, 0], [1, 0, 0, 0]]  # the only tag of an image stays
    assert likely.labels.dtype == batch.labels.dtype
    assert likely.unknown is batch.unknown


def test_images_that_a_person_has_reviewed_have_right_tags():
    done = ReviewedBoxes(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), complete=True)
    batch = replace(make_batch([[1.0, 0.0]] * 3), reviewed=(None, done, replace(done, complete=False)))
    likely = with_likely_tags(batch, NOISE, torch.full((3, 2), 0.99))
    assert likely.labels.tolist() == [[1, 1], [1, 0], [1, 1]]
    assert NOISE.of(batch).tagged(torch.zeros(3, 2))[:, 0].tolist() == pytest.approx([0.1, 0.0, 0.1])


def test_an_image_without_tags_may_get_none():
    assert NOISE.likely(torch.zeros(1, 2), torch.zeros(1, 2)).tolist() == [[0, 0]]


def test_streams_learn_a_class_whose_tag_is_probably_missing():
    """Without noise the class has no pseudo labels, and its column no gradient that raises it."""
    batch = make_batch([[1.0, 0.0]])
    batch = replace(batch, rois=torch.tensor([[0.0, 0, 0, 4, 8], [0, 4, 0, 8, 8]]), counts=torch.tensor([2]))
    mil = torch.tensor([[0.5, 0.1], [0.1, 0.5]])
    image = torch.tensor([[3.0, 3.0]])
    rises = []
    for noise in (None, TagNoise(missing=0.3)):
        logits = torch.zeros(1, 2, 3, requires_grad=True)
        losses = Criterion(Refinement("oicr"), stream_weights=(1,), noise=noise)(
            HeadOutputs(mil, logits.softmax(dim=2), image), batch
        )
        assert [*losses] == ["mil", "refine_1", "image"]
        losses["refine_1"].backward()
        rises.append(bool((logits.grad[0, :, 2] < 0).any()))
    assert rises == [False, True]


def test_the_loss_of_the_image_head_is_that_of_the_tag():
    batch, logits = make_batch([[1.0, 0.0, 0.0]]), torch.tensor([[0.0, 0.0, float("nan")]])
    loss = Criterion(None, noise=NOISE)._image_loss
    tagged = NOISE.tagged(torch.tensor(0.5))
    assert loss(logits[:, :2], replace(batch, labels=batch.labels[:, :2])).item() == pytest.approx(
        float(-(tagged.log() + (1 - tagged).log()) / 2)
    )
    assert loss(logits, batch).isnan()

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from detector.evaluation.image_level import image_ap, image_scores
from detector.structures import Scores


def test_an_image_scores_as_its_best_proposal():
    scores = Scores("a", torch.zeros(3, 4), torch.tensor([[0.1, 0.9], [0.5, 0.2], [0.3, 0.3]]))
    assert image_scores(scores).tolist() == pytest.approx([0.5, 0.9])
    assert image_scores(Scores("b", torch.zeros(0, 4), torch.zeros(0, 2))).tolist() == [0, 0]


@given(st.integers(1, 12), st.integers(0, 99))
def test_it_equals_scikit_learn_where_no_scores_are_equal(images, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(images, 3, generator=generator)
    labels = torch.randint(0, 2, (images, 3), generator=generator).float()
    labels[0] = 1
    expected = [average_precision_score(labels[:, c], scores[:, c]) for c in range(3)]
    np.testing.assert_allclose(image_ap(scores.unbind(), labels.unbind()), expected)


def test_a_class_that_no_image_shows_and_equal_scores():
    scores = [torch.tensor([0.5, 0.5])] * 2
    labels = [torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0])]
    np.testing.assert_array_equal(image_ap(scores, labels), [0.5, np.nan])


def test_every_image_needs_labels():
    with pytest.raises(ValueError, match="2 images have scores and 1 labels"):
        image_ap([torch.zeros(1)] * 2, [torch.zeros(1)])

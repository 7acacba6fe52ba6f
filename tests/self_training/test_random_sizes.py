"""Random sizes of training images."""

import pytest
import torch

from detector.self_training.random_sizes import RandomSizes

SIZES = 40, 80, 60


def sizes_of(transform, count):
    """The shorter sides after the transform."""
    return [min(transform([torch.zeros(3, 20, 30)])[0].image_sizes[0]) for _ in range(count)]


def test_each_size_is_scaled_in_training_alone_and_boxes_follow():
    transform = RandomSizes(SIZES, 200, (0.5,) * 3, (0.5,) * 3, (0.5, 1.25))
    torch.manual_seed(0)
    found = sizes_of(transform, 300)
    assert 20 <= min(found) < 22
    assert 98 < max(found) <= 100
    assert len(set(found)) > 50
    torch.manual_seed(0)
    assert sizes_of(transform, 5) == found[:5]
    batch, (target,) = transform([torch.zeros(3, 20, 30)], [{"boxes": torch.tensor([[3.0, 4, 15, 10]])}])
    height, width = batch.image_sizes[0]
    expected = torch.tensor([[0.1 * width, 0.2 * height, 0.5 * width, 0.5 * height]])
    torch.testing.assert_close(target["boxes"], expected)
    assert set(sizes_of(transform.eval(), 20)) == {60}


@pytest.mark.parametrize("factors", [(1.0, 1.0), [1.0, 1.0]])
def test_without_jitter_it_is_one_of_the_sizes(factors):
    transform = RandomSizes(SIZES, 200, (0.5,) * 3, (0.5,) * 3, factors)
    torch.manual_seed(0)
    assert set(sizes_of(transform, 30)) == set(SIZES)


def test_all_images_of_a_batch_have_the_same_size():
    transform = RandomSizes(SIZES, 200, (0.5,) * 3, (0.5,) * 3, (0.5, 1.25))
    torch.manual_seed(0)
    found = set()
    for _ in range(10):
        batch, _ = transform([torch.zeros(3, 20, 30), torch.zeros(3, 60, 40)])
        sizes = {min(size) for size in batch.image_sizes}
        assert len(sizes) == 1
        found |= sizes
    assert len(found) > 5


def test_no_size_is_zero():
    assert min(sizes_of(RandomSizes((1,), 20, (0.5,) * 3, (0.5,) * 3, (0.1, 0.2)), 3)) == 1


@pytest.mark.parametrize(("size", "resized"), [((2, 3000), (1, 200)), ((9000, 7), (200, 1))])
def test_a_pixel_is_left_of_a_very_thin_image_and_its_boxes_follow(size, resized):
    transform = RandomSizes(SIZES, 200, (0.5,) * 3, (0.5,) * 3)
    box = torch.tensor([[0.0, 0, size[1], size[0] / 2]])
    batch, (target,) = transform([torch.zeros(3, *size)], [{"boxes": box}])
    assert batch.image_sizes == [resized]
    torch.testing.assert_close(target["boxes"], torch.tensor([[0.0, 0, resized[1], resized[0] / 2]]))

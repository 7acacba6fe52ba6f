import torch

from detector.modeling.per_image import mean_per_image, softmax_per_image, sum_per_image


def test_each_image_is_on_its_own():
    values = torch.randn(9, 3)
    counts = torch.tensor([4, 0, 5])
    probs = softmax_per_image(values, counts)
    torch.testing.assert_close(probs[:4], values[:4].softmax(dim=0))
    torch.testing.assert_close(probs[4:], values[4:].softmax(dim=0))
    sums = sum_per_image(probs, counts)
    torch.testing.assert_close(sums, torch.tensor([[1.0] * 3, [0.0] * 3, [1.0] * 3]))


def test_mean_of_means():
    values = torch.tensor([[1.0, 3.0, 5.0], [0.0, 2.0, 4.0]])
    means = mean_per_image(values, torch.tensor([2, 0, 1]))
    torch.testing.assert_close(means, torch.tensor([(2 + 0 + 5) / 3, (1 + 0 + 4) / 3]))


def test_a_weight_is_as_many_equal_proposals():
    values, counts = torch.randn(3, 2), torch.tensor([3])
    probs = softmax_per_image(values, counts, torch.tensor([1.0, 2.0, 1.0]))
    repeated = softmax_per_image(values[[0, 1, 1, 2]], torch.tensor([4]))
    torch.testing.assert_close(probs, repeated[[0, 1, 3]])

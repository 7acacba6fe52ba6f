"""Losses of Faster R-CNN with weights of boxes, beside torchvision's without."""

import pytest
import torch
from torch import nn
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.models.detection.rpn import RegionProposalNetwork

from detector.self_training.box_weights import WeightedRoIHeads, anchor_weights, sample_weights
from detector.self_training.faster_rcnn import ProposalNetwork, faster_rcnn
from detector.self_training.pyramids import torchvision_pyramid
from detector.self_training.random_sizes import RandomSizes

TRANSFORM = RandomSizes((64,), 96, (0.5,) * 3, (0.5,) * 3)
BOXES = torch.tensor([[5.0, 5, 40, 45], [30, 20, 70, 55]])


def review(count: int, complete: bool = False) -> dict[str, torch.Tensor]:
    return {"reviewed": torch.tensor(count), "complete": torch.tensor(complete)}


def losses_of(*reviews: dict[str, torch.Tensor], **options: float) -> dict[str, torch.Tensor]:
    """The losses of two images of two boxes and one, with the same weights and samples in each call."""
    torch.manual_seed(0)
    backbone = torchvision_pyramid("mobilenet_v3", pretrained=False)
    model = faster_rcnn(backbone, 3, TRANSFORM, **options).train()
    images = [torch.rand(3, 60, 80), torch.rand(3, 70, 50)]
    targets = [
        {"boxes": BOXES, "labels": torch.tensor([3, 1])},
        {"boxes": BOXES[:1], "labels": torch.tensor([2])},
    ]
    known = zip(targets, reviews or ({}, {}), strict=True)
    return model(images, [target | more for target, more in known])


def test_weights_by_hand() -> None:
    foreground = torch.tensor([True, True, False, True])
    matched = torch.tensor([0, 1, 0, 2])
    some = sample_weights(foreground, matched, review(2), 0.25)
    assert some.tolist() == [1, 1, 0.25, 0.25]
    assert sample_weights(foreground, matched, review(3, True), 0.25).tolist() == [1, 1, 1, 1]
    assert sample_weights(foreground, matched, review(0), 0.25).tolist() == [0.25] * 4


def test_boxes_may_have_weights_of_their_own() -> None:
    foreground, matched = torch.tensor([True, True, False]), torch.tensor([0, 1, 0])
    target = {**review(1), "weights": torch.tensor([1.0, 0.5])}
    assert sample_weights(foreground, matched, target, 0.5).tolist() == [1, 0.25, 0.5]
    plain, ones = losses_of(), [{**review(0), "weights": torch.ones(count)} for count in (2, 1)]
    for name, loss in losses_of(*ones).items():
        torch.testing.assert_close(loss, plain[name])
    none = [{**review(0), "weights": torch.zeros(count)} for count in (2, 1)]
    assert float(losses_of(*none)["loss_box_reg"].detach()) == 0


def test_an_anchor_has_the_weight_of_the_box_that_it_matches() -> None:
    anchors = torch.tensor([[6.0, 6, 41, 46], [31, 20, 70, 55], [0, 0, 9, 9]])
    targets = [{"boxes": BOXES, **review(1)}, {"boxes": BOXES[:0], **review(0, True)}]
    labels = torch.tensor([1.0, 1, 0]), torch.zeros(3)
    weights = anchor_weights([anchors, anchors], labels, targets, 0.25)
    assert weights.tolist() == [1, 0.25, 0.25, 1, 1, 1]


def test_without_weights_the_losses_are_torchvisions(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = losses_of()
    assert losses_of(review(1), review(0)) == ours
    monkeypatch.setattr(WeightedRoIHeads, "forward", RoIHeads.forward)
    monkeypatch.setattr(ProposalNetwork, "forward", RegionProposalNetwork.forward)
    assert losses_of() == ours


def test_images_whose_objects_are_all_boxed_have_torchvisions_losses() -> None:
    losses = losses_of(review(2, True), review(1, True), pseudo_weight=0.25)
    torch.testing.assert_close(losses, losses_of())


def test_what_is_all_a_guess_counts_as_much_as_its_weight() -> None:
    expected = {name: 0.25 * loss for name, loss in losses_of().items()}
    torch.testing.assert_close(losses_of(review(0), review(0), pseudo_weight=0.25), expected)


def test_reviewed_boxes_of_one_image() -> None:
    """Without weight for the guesses, the other image contributes nothing, and the first its boxes alone."""
    nothing, all_boxes = (losses_of(review(n), review(0), pseudo_weight=0.0) for n in (0, 2))
    one = losses_of(review(1), review(0), pseudo_weight=0.0)
    whole = losses_of(review(2, True), review(0), pseudo_weight=0.0)
    for name, loss in nothing.items():
        assert loss == 0
        assert 0 < one[name] < all_boxes[name] <= whole[name]
    assert all_boxes["loss_box_reg"] == whole["loss_box_reg"]  # background has no boxes


class Columns(nn.Module):
    """Class logits and box deltas that are the features themselves."""

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return features[:, :2], features[:, 2:]


def test_each_roi_has_the_weight_of_its_image(monkeypatch) -> None:
    """Rows 0, 1 and 2 are foreground of a pseudo image, 3 is background, 4 of another, 5 of a boxed one."""
    logits = torch.tensor([[0.0, 2], [3, 0], [0, 4], [0, 5], [1, 0], [7, 0]])
    features = torch.cat([logits, torch.ones(6, 8)], dim=1).requires_grad_()
    heads = WeightedRoIHeads(
        lambda features, *_: features,
        nn.Identity(),
        Columns(),
        *(0.5, 0.5, 512, 0.25, None),  # of torchvision; the rest is for testing
        *(0.05, 0.5, 100),
    )
    heads.pseudo_weight = 0.5
    labels = [torch.tensor([1, 1, 1, 0]), torch.tensor([1]), torch.tensor([1])]
    matched = [torch.zeros_like(each) for each in labels]
    samples = [None] * 3, matched, labels, [torch.zeros(len(each), 4) for each in labels]
    monkeypatch.setattr(heads, "select_training_samples", lambda *_: samples)
    targets = [review(0), review(0), review(1)]
    _, losses = heads(features, [], [], targets)
    sum(losses.values()).backward()
    assert (features.grad[3, 2:] == 0).all()  # no box
    one = features.grad[5, 6:]  # of class 1, |difference| 1 of each coordinate, over 6 RoIs
    torch.testing.assert_close(one, torch.full((4,), 1 / 6))
    torch.testing.assert_close(features.grad[2, 6:], torch.full((4,), 0.5 / 6))

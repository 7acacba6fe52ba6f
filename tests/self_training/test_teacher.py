"""A student that learns from the moving average of itself."""

from dataclasses import replace

import pytest
import torch

from detector.self_training.faster_rcnn import faster_rcnn
from detector.self_training.pyramids import torchvision_pyramid
from detector.self_training.random_sizes import RandomSizes
from detector.self_training.teacher import STRONG_VIEW, VIEW, TeacherStudent, distort_images, teacher_decay
from detector.structures import Detections, flip_boxes

TRANSFORM = RandomSizes((64,), 96, (0.5,) * 3, (0.5,) * 3)
BOX = torch.tensor([[5.0, 5, 40, 45]])


def make(flip: bool = False, asked: list | None = None) -> TeacherStudent:
    """A student of three classes whose rule finds BOX, of class 2, in every image."""
    torch.manual_seed(0)
    student = faster_rcnn(torchvision_pyramid("mobilenet_v3", pretrained=False), 3, TRANSFORM)

    def choose(index, scores, tile):
        if asked is not None:
            asked.append((index, scores, tile))
        return Detections("", BOX, torch.ones(1), torch.tensor([2]))

    return TeacherStudent(student, decay=0.75, choose=choose, flip=flip).train()


def test_the_average_follows_each_step_of_the_optimizer():
    model = make()
    optimizer = torch.optim.SGD(model.student.parameters(), lr=0.01)
    optimizer.register_step_post_hook(model.update)
    expected = {name: value.clone() for name, value in model.student.named_parameters()}
    for _ in range(2):
        losses = model([torch.rand(3, 60, 80)], [{"index": torch.tensor(0)}])
        sum(losses.values()).backward()
        optimizer.step()
        optimizer.zero_grad()
        for name, value in model.student.named_parameters():
            expected[name] = 0.75 * expected[name] + 0.25 * value.detach()
    torch.testing.assert_close(dict(model.teacher.named_parameters()), expected)
    assert not model.teacher.training
    assert any(not value.equal(expected[name]) for name, value in model.student.named_parameters())


def test_the_teacher_sees_the_image_and_the_student_a_distorted_one_with_the_boxes(monkeypatch):
    asked, seen = [], []
    model = make(flip=True, asked=asked)
    monkeypatch.setattr(
        model.student, "forward", lambda images, targets: seen.append((images, targets)) or {}
    )
    images = [torch.rand(3, 60, 80), torch.rand(3, 70, 50)]
    scores = [each for each, _ in model.teacher.scores(images)]
    indices = [{"index": torch.tensor(7), "reviewed": torch.tensor(1)}, {"index": torch.tensor(3)}]
    for seed in range(8):
        torch.manual_seed(seed)
        model(images, indices)
    assert [index for index, _, _ in asked] == [7, 3] * 8
    assert all(each.boxes.equal(scores[i % 2]) for i, (_, each, _) in enumerate(asked))
    flipped = 0
    for views, targets in seen:
        for image, view, target in zip(images, views, targets, strict=True):
            assert view.shape == image.shape
            assert not view.equal(image)
            flipped_box = flip_boxes(BOX, image.shape[2])
            flipped += target["boxes"].equal(flipped_box)
            assert target["boxes"].equal(flipped_box) or target["boxes"].equal(BOX)
            assert target["labels"].tolist() == [3]
        assert targets[0]["reviewed"] == 1
    assert 0 < flipped < 16


def test_in_a_tile_boxes_are_chosen_in_the_picture_and_learned_in_the_tile(monkeypatch):
    asked, seen = [], []
    model = make(asked=asked)
    monkeypatch.setattr(model.student, "forward", lambda images, targets: seen.extend(targets) or {})
    tile = torch.tensor([100, 200, 260, 320])  # twice as wide and high as the view
    monkeypatch.setattr(model, "choose", shifted(model.choose, torch.tensor([100.0, 200, 100, 200])))
    image = torch.rand(3, 60, 80)
    expected, _ = next(model.teacher.scores([image]))
    model([image], [{"index": torch.tensor(0), "tile": tile, "reviewed": torch.tensor(3)}])
    ((_, scores, of_tile),) = asked
    assert of_tile.equal(tile)
    corner = torch.tensor([100.0, 200, 100, 200])
    torch.testing.assert_close(scores.boxes, expected * 2 + corner)
    torch.testing.assert_close(seen[0]["boxes"], BOX / 2)
    assert seen[0]["reviewed"] == 1  # of the three in the picture


def shifted(choose, corner):
    def choose_there(*arguments):
        found = choose(*arguments)
        return replace(found, boxes=found.boxes + corner)

    return choose_there


@pytest.mark.parametrize(("steps", "decay"), [(300, 0.99), (3000, 0.999), (90000, 0.999), (1, 0.0)])
def test_the_average_forgets_in_a_third_of_the_steps(steps, decay):
    assert teacher_decay(steps) == pytest.approx(decay)


def test_a_detector_gets_views_in_training_alone():
    model = torch.nn.Identity()
    model.register_forward_pre_hook(distort_images)
    image = torch.rand(3, 20, 30)
    torch.manual_seed(0)
    (view,) = model([image])
    assert view.shape == image.shape
    assert not view.equal(image)
    torch.manual_seed(0)
    assert model([image])[0].equal(view)
    assert model.eval()([image])[0].equal(image)


def test_a_view_keeps_the_details_that_a_strong_one_may_lose():
    right = (torch.arange(24) >= 12).float().expand(24, 24)  # a blurred edge has many shades
    image = torch.stack([0.2 + 0.6 * right, 0.5 - 0.2 * right, 0.1 + 0.3 * right])

    def most_colors(view):
        torch.manual_seed(0)
        return max(len(view(image).flatten(1).unique(dim=1).T) for _ in range(40))

    assert most_colors(VIEW) == 3  # two, and that of the erased part
    assert most_colors(STRONG_VIEW) > 3

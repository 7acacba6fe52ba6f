"""torchvision's FCOS with our pyramids: losses, their weights, and scores."""

import pytest
import torch
from torch.nn import functional as F
from torchvision.models.detection.fcos import FCOS as TorchvisionFCOS
from torchvision.models.detection.fcos import FCOSHead

from detector.config import load_cfg
from detector.self_training.build import build_student
from detector.self_training.fcos import FCOS, WeightedHead, fcos, paired_iou
from detector.self_training.networks import is_student
from detector.self_training.pyramids import SmallPyramid, torchvision_pyramid
from detector.self_training.random_sizes import RandomSizes
from detector.self_training.teacher import TeacherStudent
from detector.structures import Detections, box_iou
from detector.utils.errors import ConfigError

TRANSFORM = RandomSizes((64,), 96, (0.5,) * 3, (0.5,) * 3)
BOXES = torch.tensor([[5.0, 5, 40, 45], [30, 10, 55, 35]])


def small_fcos(**options) -> FCOS:
    torch.manual_seed(0)
    return fcos(SmallPyramid(channels=32), 3, TRANSFORM, **options)


def images_and_targets(**more) -> tuple[list, list]:
    images = [torch.rand(3, 60, 80), torch.rand(3, 70, 50)]
    target = {"boxes": BOXES.clone(), "labels": torch.tensor([3, 1]), **more}
    nothing = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64), **more}
    return images, [target, nothing]


def losses_of(model: FCOS, **more) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return model.train()(*images_and_targets(**more))


def test_losses_of_classes_and_boxes_equal_torchvisions():
    model = small_fcos()
    losses = losses_of(model)
    quality = losses.pop("bbox_ctrness")
    sum(losses.values()).backward()
    gradients = {name: each.grad for name, each in model.named_parameters()}
    theirs = FCOSHead(32, 1, 4, 4)
    theirs.load_state_dict(model.head.state_dict())
    model.head = theirs
    model.zero_grad()
    expected = losses_of(model)
    assert expected["bbox_regression"] > 0
    assert quality != expected.pop("bbox_ctrness")
    torch.testing.assert_close(losses, expected)
    sum(expected.values()).backward()
    for name, each in model.named_parameters():
        torch.testing.assert_close(gradients[name], each.grad, msg=name)


def test_a_branch_learns_the_iou_of_each_box_with_its_object():
    """And not the boxes from it: its loss is the cross entropy of known IoUs."""
    head = WeightedHead(64, 2, 1)
    anchors = torch.tensor([[-4.0, -4, 4, 4], [4, -4, 12, 4], [60, 60, 68, 68]])
    target = {"boxes": torch.tensor([[-8.0, -8, 8, 8]]), "labels": torch.tensor([1])}
    sides = torch.tensor([[[1.0, 1, 1, 1], [2, 1, 0, 1], [9, 9, 9, 9]]], requires_grad=True)
    quality = torch.tensor([[[0.5], [-0.5], [3.0]]])
    outputs = {"cls_logits": torch.zeros(1, 3, 2), "bbox_regression": sides, "bbox_ctrness": quality}
    loss = head.compute_loss([target], outputs, [anchors], [torch.tensor([0, 0, -1])])["bbox_ctrness"]
    # The boxes are (-8, -8, 8, 8) and (-8, -8, 8, 8): from the place (8, 0), 2 strides of 8 to the left.
    ious = paired_iou(torch.tensor([[-8.0, -8, 8, 8]] * 2), target["boxes"].expand(2, 4))
    assert ious.tolist() == [1, 1]
    expected = F.binary_cross_entropy_with_logits(torch.tensor([0.5, -0.5]), ious)
    torch.testing.assert_close(loss, expected)
    assert not loss.requires_grad


def test_the_iou_of_pairs_is_that_of_all_pairs():
    corners = torch.rand(20, 2, 2) * 20
    boxes = torch.cat([corners[:, 0], corners[:, 0] + corners[:, 1] + 0.1], dim=1)
    others = boxes.flip(0)
    torch.testing.assert_close(paired_iou(boxes, others), box_iou(boxes, others).diagonal())
    assert paired_iou(torch.zeros(1, 4), others[:1]) == 0  # a box that is empty


def test_boxes_are_not_empty_before_training():
    model = small_fcos().eval()
    with torch.no_grad():
        ((boxes, _),) = model.scores([torch.rand(3, 64, 64)])
    sides = boxes[:, 0, 2:] - boxes[:, 0, :2]
    assert (sides > 0).all()
    assert sides.median() > 10  # 6 strides of 4 pixels, but for those that the image cuts


def test_images_without_boxes_give_no_loss_of_boxes():
    model = small_fcos().train()
    images, (_, nothing) = images_and_targets()
    losses = model(images[1:], [nothing])
    assert losses["bbox_regression"] == losses["bbox_ctrness"] == 0
    assert losses["classification"] > 0
    sum(losses.values()).backward()


def test_half_the_weight_is_half_the_loss():
    guessed = {"reviewed": torch.tensor(0), "complete": torch.tensor(False)}
    whole, half = losses_of(small_fcos()), losses_of(small_fcos(pseudo_weight=0.5), **guessed)
    torch.testing.assert_close(half, {name: loss / 2 for name, loss in whole.items()})
    complete = losses_of(small_fcos(pseudo_weight=0.5), reviewed=torch.tensor(2), complete=torch.tensor(True))
    torch.testing.assert_close(complete, whole)
    first = losses_of(small_fcos(pseudo_weight=0.0), reviewed=torch.tensor(1), complete=torch.tensor(False))
    assert 0 < first["bbox_regression"] < whole["bbox_regression"]


def test_a_box_without_weight_is_ignored():
    images, targets = images_and_targets()
    model = small_fcos().train()
    for target in targets:
        target["weights"] = torch.zeros(len(target["boxes"]))
        target |= {"reviewed": torch.tensor(0), "complete": torch.tensor(False)}
    torch.manual_seed(1)
    losses = model(images, targets)
    assert losses["bbox_regression"] == losses["bbox_ctrness"] == 0
    assert losses["classification"] > 0  # of the background


def test_scores_lead_to_torchvisions_detections():
    model = small_fcos(score_threshold=0.0, max_detections=10**6).eval()
    model.nms_thresh = 1.0
    torch.nn.init.normal_(model.head.classification_head.cls_logits.weight, std=0.5)
    image = torch.rand(3, 64, 96)  # without padding, which torchvision's places see, too
    with torch.no_grad():
        (theirs,) = TorchvisionFCOS.forward(model, [image])
        ((boxes, scores),) = model.scores([image])
    foreground = theirs["labels"] > 0
    expected = theirs["scores"][foreground].sort(descending=True).values
    torch.testing.assert_close(scores.flatten().sort(descending=True).values[:50], expected[:50])
    rows, labels = (
        scores.flatten().topk(20).indices.div(3, rounding_mode="floor"),
        scores.flatten().topk(20).indices % 3,
    )
    best = theirs["scores"].where(foreground, torch.zeros(())).topk(20).indices
    torch.testing.assert_close(boxes[rows, labels], theirs["boxes"][best])
    assert (labels + 1).equal(theirs["labels"][best])


def test_scores_do_not_depend_on_the_padding():
    model = small_fcos().eval()
    torch.nn.init.normal_(model.head.classification_head.cls_logits.weight, std=0.5)
    images = [torch.rand(3, 40, 60), torch.rand(3, 70, 50)]
    with torch.no_grad():
        found = list(model.scores(images))
    for image, (boxes, scores) in zip(images, found, strict=True):
        height, width = image.shape[1:]
        assert boxes.shape == (*scores.shape, 4)
        assert ((boxes >= 0) & (boxes <= torch.tensor([width, height, width, height]))).all()
        kept = scores.amax(dim=1) > 0
        assert 0 < kept.sum() < len(kept)  # places in the padding score 0
    assert len(next(small_fcos(test_places=7).eval().scores(images))[0]) == 7


def test_the_config_chooses_the_detector():
    cfg = load_cfg("toybox_pcl", ["SELF_TRAIN.DETECTOR", "fcos"])
    model = build_student(cfg)
    assert model.kind == "FCOS"
    assert is_student({"model": model.state_dict()})
    assert model.topk_candidates == cfg.self_train.test_proposals
    words = ["SELF_TRAIN.DETECTOR", "fcos", "SELF_TRAIN.CHANNELS", 48]
    with pytest.raises(ConfigError, match=r"SELF_TRAIN\.CHANNELS is 48, expected 64, 96, 128"):
        load_cfg("toybox_pcl", words)
    with pytest.raises(ConfigError, match=r"SELF_TRAIN\.DETECTOR is 'fcos', expected 'faster_rcnn'"):
        load_cfg(
            "toybox_pcl", [*words[:2], "SELF_TRAIN.BACKBONE", "mobilenet_v3", "SELF_TRAIN.CHANNELS", 256]
        )


def test_strides_are_those_of_the_maps():
    pytest.importorskip("timm")
    lite0 = load_cfg("photos_pcl_lite0", ["SELF_TRAIN.DETECTOR", "fcos"])
    pyramids = [
        SmallPyramid(32),
        build_student(lite0, pretrained=False).backbone,
        torchvision_pyramid("resnet50", pretrained=False, least_stride=8),
        torchvision_pyramid("mobilenet_v3", pretrained=False),
    ]
    with torch.no_grad():
        for pyramid in pyramids:
            maps = pyramid.eval()(torch.zeros(1, 3, 128, 128)).values()
            assert tuple(128 // each.shape[-1] for each in maps) == pyramid.strides


def test_a_teacher_finds_the_boxes_of_its_student():
    model = small_fcos()

    def choose(index, scores, tile):
        assert scores.boxes.shape == (*scores.scores.shape, 4)
        return Detections("", BOXES, torch.ones(2), torch.tensor([0, 2]))

    both = TeacherStudent(model, decay=0.5, choose=choose, flip=True).train()
    losses = both([torch.rand(3, 60, 80)], [{"index": torch.tensor(0)}])
    assert set(losses) == {"classification", "bbox_regression", "bbox_ctrness"}

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.models.detection._utils import BoxCoder

from detector.structures import (
    box_area,
    box_intersection,
    box_iou,
    boxes_to_rois,
    clip_boxes,
    decode_boxes,
    encode_boxes,
    flip_boxes,
    scale_boxes,
)


def random_boxes(count, seed):
    corners = torch.randint(0, 12, (count, 2, 2), generator=torch.Generator().manual_seed(seed)).float()
    return torch.cat([corners.amin(dim=1), corners.amax(dim=1)], dim=1)  # some are empty


@given(count=st.integers(0, 6), others=st.integers(0, 6), seed=st.integers(0, 1000))
def test_overlaps_count_pixels(count, others, seed):
    first, second = random_boxes(count, seed), random_boxes(others, seed + 1)

    def mask(box):
        pixels = torch.zeros(12, 12, dtype=torch.bool)
        x1, y1, x2, y2 = box.int().tolist()
        pixels[y1:y2, x1:x2] = True
        return pixels

    intersection, iou = box_intersection(first, second), box_iou(first, second)
    assert intersection.shape == iou.shape == (count, others)
    assert box_area(first).tolist() == [mask(box).sum() for box in first]
    for i, a in enumerate(map(mask, first)):
        for j, b in enumerate(map(mask, second)):
            both, either = int((a & b).sum()), int((a | b).sum())
            assert intersection[i, j] == both
            assert iou[i, j] == pytest.approx(both / either if either else 0, abs=1e-6)


def test_iou_equals_the_inclusive_iou_of_the_development_kit():
    boxes, others = random_boxes(50, 0).double(), random_boxes(50, 1).double()
    boxes[:, 2:] += 1  # at least one pixel
    others[:, 2:] += 1
    # In 1-based inclusive indices (x1 + 1, y1 + 1, x2, y2), where a width is xmax - xmin + 1.
    a = boxes + torch.tensor([1, 1, 0, 0])
    b = others + torch.tensor([1, 1, 0, 0])
    width = torch.minimum(a[:, None, 2], b[None, :, 2]) - torch.maximum(a[:, None, 0], b[None, :, 0]) + 1
    height = torch.minimum(a[:, None, 3], b[None, :, 3]) - torch.maximum(a[:, None, 1], b[None, :, 1]) + 1
    both = width.clamp(min=0) * height.clamp(min=0)
    areas = [(c[:, 2] - c[:, 0] + 1) * (c[:, 3] - c[:, 1] + 1) for c in (a, b)]
    assert torch.equal(box_iou(boxes, others), both / (areas[0][:, None] + areas[1][None, :] - both))


def test_scale():
    assert scale_boxes(torch.tensor([[1.0, 2, 3, 4]]), 2, 0.5).tolist() == [[2, 1, 6, 2]]


def test_flip_twice_is_nothing():
    boxes = random_boxes(5, 0)
    assert flip_boxes(torch.tensor([[1.0, 2, 3, 4]]), 10).tolist() == [[7, 2, 9, 4]]
    assert torch.equal(flip_boxes(flip_boxes(boxes, 12), 12), boxes)
    assert flip_boxes(boxes[:0], 12).shape == (0, 4)


def test_rois_name_their_image():
    first, none, last = random_boxes(2, 0), torch.zeros(0, 4), random_boxes(1, 1)
    rois = boxes_to_rois([first, none, last])
    assert rois[:, 0].tolist() == [0, 0, 2]
    assert torch.equal(rois[:, 1:], torch.cat([first, last]))
    assert boxes_to_rois([none]).shape == (0, 5)


# ---- Deltas


@given(count=st.integers(0, 6), seed=st.integers(0, 1000))
def test_deltas_are_those_of_fast_rcnn_and_lead_back(count, seed):
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(2, count, 2, generator=generator) * 50
    boxes, others = torch.cat([corners, corners + 1 + corners.flip(1)], dim=2)
    deltas = encode_boxes(boxes, others)
    coder = BoxCoder((10.0, 10.0, 5.0, 5.0))  # torchvision's, of its Faster R-CNN
    torch.testing.assert_close(deltas, coder.encode_single(others, boxes), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(decode_boxes(boxes, deltas), others, rtol=1e-4, atol=1e-3)


def test_deltas_of_several_classes_share_the_proposals():
    boxes = torch.tensor([[0.0, 0, 10, 10], [5, 5, 25, 15]])[:, None]  # (2, 1, 4)
    deltas = torch.zeros(2, 3, 4)
    deltas[1, 2] = torch.tensor([1.0, -2, 5, 0])
    moved = decode_boxes(boxes, deltas)
    assert torch.equal(moved[:, :2], boxes.expand(2, 2, 4))
    half = 10 * torch.e
    torch.testing.assert_close(moved[1, 2], torch.tensor([17 - half, 3, 17 + half, 13]))


def test_a_delta_out_of_bounds_gives_a_finite_box():
    assert torch.isfinite(decode_boxes(torch.tensor([[0.0, 0, 9, 9]]), torch.full((1, 4), 1e4))).all()
    assert torch.isfinite(encode_boxes(torch.zeros(1, 4), torch.tensor([[0.0, 0, 9, 9]]))).all()


def test_clipping():
    boxes = torch.tensor([[[-3.0, 2, 5, 60], [1, -1, 90, 3]]])
    assert clip_boxes(boxes, 40, 50).tolist() == [[[0, 2, 5, 40], [1, 0, 50, 3]]]

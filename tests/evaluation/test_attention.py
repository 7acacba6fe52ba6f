from dataclasses import replace

import numpy as np
import pytest
import torch

from detector.evaluation.attention import Attention, draw_attention, heat_map, load_attention, save_attention
from detector.utils.errors import DataError


def attention(streams=2):
    boxes = torch.tensor([[0.0, 0, 20, 20], [10, 10, 40, 30]])
    scores = torch.tensor([[0.5, 0.1], [0.25, 0.9]]).expand(streams, 2, 2)
    clusters = torch.tensor([[0, 1]] + [[-1, 0]] * (streams - 1))
    centers = torch.tensor([[2, 5]] + [[-1, 5]] * (streams - 1))
    return Attention("a/1", torch.tensor([2, 5]), boxes, scores, clusters, centers)


def test_heat_is_the_sum_of_the_scores_over_each_pixel():
    heat = heat_map(attention().boxes, torch.tensor([[0.5], [0.25]]), (30, 40))
    assert heat.shape == (30, 40)
    assert heat[:10, :10] == pytest.approx(np.full((10, 10), 0.5 / 0.75))
    assert heat[15, 15] == pytest.approx(1)
    assert heat[25, 35] == pytest.approx(0.25 / 0.75)
    assert heat[5, 30] == pytest.approx(0, abs=1e-12)


def test_each_class_has_its_own_measure_of_heat():
    heat = heat_map(attention().boxes, torch.tensor([[1.0, 0], [0, 1e-4]]), (30, 40))
    assert heat[5, 5] == heat[25, 35] == pytest.approx(1)


def test_heat_of_a_smaller_picture_and_of_no_boxes():
    assert heat_map(attention().boxes, torch.ones(2, 1), (30, 40), scale=0.5).shape == (15, 20)
    assert heat_map(torch.zeros(0, 4), torch.zeros(0, 2), (30, 40)).max() == 0


def test_a_file_gives_back_what_was_saved(tmp_path):
    path = tmp_path / "snapshots" / "000001.npz"
    save_attention(path, [attention(), attention(streams=1)])
    one, other = load_attention(path)
    assert one.image_id == "a/1"
    assert all(
        getattr(one, name).equal(getattr(attention(), name)) for name in ("scores", "centers", "labels")
    )
    assert other.scores.shape == (1, 2, 2)
    for content in (path.read_bytes()[:100], b""):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"snapshot .*000001\.npz is damaged"):
            load_attention(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"clusters": torch.zeros(2, 2)},
        {"labels": torch.zeros(2, dtype=torch.complex64)},
        {"scores": torch.zeros(2)},
    ],
)
def test_a_forged_snapshot_is_named(tmp_path, changes):
    save_attention(tmp_path / "a.npz", [replace(attention(), **changes)])
    with pytest.raises(DataError, match=r"snapshot .*a\.npz"):
        load_attention(tmp_path / "a.npz")


def test_any_harm_to_a_snapshot_is_named_or_does_none(tmp_path):
    path = tmp_path / "a.npz"
    save_attention(path, [attention()])
    data, unnamed = path.read_bytes(), 0
    for place in range(0, len(data), 11):
        path.write_bytes(data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
        try:
            (loaded,) = load_attention(path)
        except DataError as error:
            unnamed += "a.npz" not in str(error)
        else:
            assert loaded.scores.equal(attention().scores)
    assert unnamed == 0


def test_a_panel_for_each_stream():
    image = torch.full((3, 30, 40), 90, dtype=torch.uint8)
    one, four = (draw_attention(image, attention(n), "abcdef") for n in (1, 4))
    assert four.height == one.height
    assert 4 * one.width <= four.width <= 4 * one.width + 20

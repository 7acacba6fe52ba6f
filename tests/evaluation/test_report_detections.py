import numpy as np
import pytest
import torch

from detector.evaluation.summary import encode_detections, load_detections
from detector.structures import Detections
from detector.utils.errors import DataError

IMAGES = [
    Detections("2007/a", torch.tensor([[0.0, 1, 2, 3]]), torch.tensor([0.5]), torch.tensor([3])),
    Detections("b", torch.zeros(0, 4), torch.zeros(0), torch.zeros(0, dtype=torch.int64)),
    Detections("c", torch.rand(2, 4), torch.tensor([0.25, 0.125]), torch.tensor([0, 1])),
]


@pytest.mark.parametrize("images", [IMAGES, IMAGES[1:2], []])
def test_a_file_gives_back_what_was_saved(tmp_path, images):
    (tmp_path / "d.npz").write_bytes(encode_detections(images))
    back = load_detections(tmp_path / "d.npz")
    assert [image.image_id for image in back] == [image.image_id for image in images]
    for one, other in zip(back, images, strict=True):
        for name in ("boxes", "scores", "labels"):
            assert getattr(one, name).equal(getattr(other, name))
            assert getattr(one, name).dtype == getattr(other, name).dtype


def test_a_file_that_is_missing_or_another(tmp_path):
    path = tmp_path / "d.npz"
    with pytest.raises(FileNotFoundError, match=r"run `detector test` first"):
        load_detections(path)
    for content in (b"", b"PK\3\4", b"text"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"file of detections .*d\.npz is damaged or of another format"):
            load_detections(path)


@pytest.mark.parametrize(
    "changed",
    [
        {"counts": np.array([1, 0, 1])},
        {"counts": np.array([4, 0, -1])},
        {"counts": np.array(["a", "b", "c"])},
        {"boxes": np.zeros((3, 5), np.float32)},
        {"image_ids": np.array("a")},
    ],
)
def test_arrays_that_no_test_writes_are_named(tmp_path, changed):
    path = tmp_path / "d.npz"
    path.write_bytes(encode_detections(IMAGES))
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, **changed})
    with pytest.raises(DataError, match=r"d\.npz"):
        load_detections(path)

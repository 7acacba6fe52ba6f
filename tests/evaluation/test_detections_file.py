import numpy as np
import pytest
import torch

from detector.evaluation.detections_file import load_detections, save_detections
from detector.structures import Detections
from detector.utils.errors import DataError

IMAGES = [
    Detections("2007/a", torch.tensor([[0.0, 1, 2, 3]]), torch.tensor([0.5]), torch.tensor([3])),
    Detections("b", torch.zeros(0, 4), torch.zeros(0), torch.zeros(0, dtype=torch.int64)),
    Detections("c", torch.rand(2, 4), torch.tensor([0.25, 0.125]), torch.tensor([0, 1])),
]


@pytest.mark.parametrize("images", [IMAGES, IMAGES[1:2], []])
def test_a_file_gives_back_what_was_saved(tmp_path, images):
    save_detections(tmp_path / "d.npz", images)
    back = load_detections(tmp_path / "d.npz")
    assert [image.image_id for image in back] == [image.image_id for image in images]
    for one, other in zip(back, images, strict=True):
        for name in ("boxes", "scores", "labels"):
            assert getattr(one, name).equal(getattr(other, name))
            assert getattr(one, name).dtype == getattr(other, name).dtype


def test_a_file_that_is_missing_or_another(tmp_path):
    path = tmp_path / "d.npz"
    with pytest.raises(FileNotFoundError, match=r"run tools/test_net\.py first"):
        load_detections(path)
    for content in (b"", b"PK\3\4", b"text"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"file of detections .*d\.npz is damaged or of another format"):
            load_detections(path)


def test_a_file_whose_arrays_contradict_each_other(tmp_path):
    path = tmp_path / "d.npz"
    save_detections(path, IMAGES)
    with np.load(path) as file:
        arrays = dict(file)
    changes = (
        {"counts": np.array([1, 0, 3])},
        {"counts": np.array([4, -1, 0])},
        {"scores": arrays["scores"][:2]},
        {"boxes": arrays["boxes"][:, :3]},
        {"labels": arrays["labels"].astype(np.float32)},
    )
    for changed in changes:
        np.savez(path, **{**arrays, **changed})
        with pytest.raises(DataError, match=r"d\.npz"):
            load_detections(path)

import pytest
import torch

from detector.evaluation.detections_file import load_detections, save_detections
from detector.structures import Detections

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
        with pytest.raises(ValueError, match=r"d\.npz does not hold detections"):
            load_detections(path)

"""Detections as VOC's XML, which the reader takes."""

import pytest
import torch

from detector.data.datasets.voc import VOCDataset
from detector.data.datasets.voc_writer import detected_objects, encode_annotation, new_voc_folder
from detector.structures import Detections
from detector.utils.files import temporary_beside


def test_boxes_of_whole_pixels_stay_in_the_image(folder) -> None:
    """Slivers at each side of an image, 60 wide and 40 high, become one pixel at that side."""
    boxes = torch.tensor(
        [[59.6, 10.2, 60, 20.4], [3, 39.7, 9, 40], [-0.4, 5, 0.2, 8], [7, 0, 9, 0.3], [5.2, 5.2, 5.4, 5.4]]
    )
    found = Detections("a", boxes, torch.ones(5), torch.zeros(5, dtype=torch.int64), ("cat",) * 5)
    folder.image("a", height=40, width=60)
    folder.split("train", ["a"])
    content = encode_annotation("a.jpg", (40, 60), detected_objects(found, (40, 60)), folder="pictures")
    folder.raw_xml("a", content.decode())
    read = VOCDataset(folder.root, "train", ("cat",)).annotation(0)
    expected = [[59, 10, 60, 20], [3, 39, 9, 40], [0, 5, 1, 8], [7, 0, 9, 1], [5, 5, 6, 6]]
    assert read.boxes.tolist() == expected


def test_a_folder_of_the_user_beside_it_is_kept(tmp_path):
    mine, left = tmp_path / "toy.partial" / "picture.jpg", temporary_beside(tmp_path / "toy")
    mine.parent.mkdir()
    mine.touch()
    left.mkdir()  # of a process that was killed
    with pytest.raises(KeyError), new_voc_folder(tmp_path / "toy"):
        raise KeyError
    with new_voc_folder(tmp_path / "toy"):
        pass
    assert mine.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy", "toy.partial"]

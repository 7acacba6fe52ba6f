"""The page of doubted tags."""

import torch
from PIL import Image

from detector.data.datasets.image_labels import ImageLabels
from detector.data.doubted_tags import DoubtedTag
from detector.reporting.tags_page import tags_page

NAME = '<b>"car" & co'


def test_names_are_text_and_a_picture_that_is_read_in_parts_is_shown_reduced(tmp_path, monkeypatch):
    Image.new("RGB", (160, 80)).save(tmp_path / "a&b.png")
    (tmp_path / "train.jsonl").write_text('{"file": "a&b.png", "labels": ["bird"]}\n')
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5000)
    monkeypatch.setattr("detector.data.large_images._SHOWN", 20)
    dataset = ImageLabels(tmp_path, "train", ("bird", NAME))
    assert torch.equal(dataset.labels(0), torch.tensor([1.0, 0.0]))
    missing = DoubtedTag(
        dataset.image_ids[0], NAME, "not shown", "shown", 0.4, 0.5, 1, 2, 30, 40, near_duplicates="<i>c"
    )
    false = missing._replace(label="bird", said="shown", likely="not shown")
    page = tags_page(dataset, [(0, missing), (0, false)], "<u>run", "2 tags").decode()
    for raw in (NAME, "<i>c", "<u>run", "a&b"):
        assert raw not in page
    assert "&lt;b&gt;" in page
    assert page.count('viewBox="0 0 160 80"') == 2

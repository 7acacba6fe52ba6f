import numpy as np
import torch
from PIL import Image

from detector.evaluation import pictures
from detector.evaluation.pictures import choose_samples, draw_sample, encode_samples
from detector.structures import Annotation

CLASSES = ("cat", "dog")
GRAY = torch.full((3, 100, 200), 128, dtype=torch.uint8)
TRUTH = Annotation("a", torch.tensor([[40.0, 30, 120, 80]]), torch.tensor([0]), torch.tensor([False]))


def test_samples_show_every_class():
    labels = [torch.tensor(each) for each in ([0, 0], [1, 0], [1, 0], [1, 1], [0, 0])]
    assert choose_samples(labels, 9) == [1, 3, 2, 0, 4]
    assert choose_samples(labels, 2) == [1, 3]
    assert choose_samples([], 3) == []


def test_true_boxes_proposals_and_labels_are_drawn():
    proposals = torch.tensor([[100.0, 10, 180, 90], [30, 30, 120, 80]])
    picture = draw_sample(GRAY, torch.tensor([1, 0]), TRUTH, proposals, CLASSES)
    assert picture.size == (600, 336)  # three times as large, and a strip for the labels
    pixels = np.asarray(picture).astype(int)
    colored = pixels.max(axis=2) - pixels.min(axis=2) > 30
    assert colored[92:238, 120].all()  # the ground-truth box is solid
    assert (pixels[40:260, 539] == 255).all()  # a proposal, white
    assert {0, 255} == set(pixels[100:200, 90, 0])  # the nearest one, dashed
    assert (pixels[300:] < 128).any()  # the name of the label


def test_images_without_boxes_proposals_or_labels_are_drawn():
    none = torch.zeros(0, 4)
    for annotation in (None, TRUTH):
        for proposals in (None, none):
            draw_sample(GRAY, torch.tensor([0, 0]), annotation, proposals, CLASSES)


def test_the_sheet(tmp_path, monkeypatch):
    class Source:
        class_names, image_ids = CLASSES, ("a", "b")

        def read_image(self, index):
            return GRAY

        def labels(self, index):
            return torch.tensor([1, 1])

        def unknown(self, index):
            return None

        def annotation(self, index):
            return None

    legends, sheet = [], pictures.contact_sheet
    monkeypatch.setattr(pictures, "contact_sheet", lambda *each: legends.append(each[1]) or sheet(*each))
    (tmp_path / "sheet.png").write_bytes(encode_samples(Source(), [1, 0], [None, torch.zeros(0, 4)]))
    assert legends == ["thin: other proposals   below: labels"]  # there is no ground truth to explain
    assert Image.open(tmp_path / "sheet.png").size == (640, 284)
    assert [path.name for path in tmp_path.iterdir()] == ["sheet.png"]

import numpy as np
import pytest
import torch
from PIL import Image

from detector.evaluation.pictures import choose_images, contact_sheet, draw_detections, write_pictures
from detector.structures import Annotation, Detections
from detector.utils.errors import UserError
from detector.utils.outputs import OutputFolder

CLASSES = ("cat", "dog")


def found(image_id, boxes=(), scores=(), labels=()):
    return Detections(
        image_id,
        torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
        torch.tensor(scores, dtype=torch.float32),
        torch.tensor(labels, dtype=torch.int64),
    )


class GraySource:
    """Gray images with one ground-truth box each."""

    class_names = CLASSES

    def __init__(self, count):
        self.image_ids = tuple(f"image{i}" for i in range(count))

    def read_image(self, index):
        return torch.full((3, 40, 60), 128, dtype=torch.uint8)

    def annotation(self, index):
        box = torch.tensor([[10.0, 10, 30, 30]])
        return Annotation(self.image_ids[index], box, torch.tensor([0]), torch.tensor([False]))


def drawing(detections, size=(100, 200), true_boxes=(), threshold=0.5):
    image = torch.full((3, *size), 128, dtype=torch.uint8)
    boxes = torch.tensor(true_boxes, dtype=torch.float32).reshape(-1, 4)
    truth = Annotation("a", boxes, torch.zeros(len(boxes)).long(), torch.zeros(len(boxes)).bool())
    return draw_detections(image, detections, truth, CLASSES, score_threshold=threshold)


def colored(picture):
    """Where a picture of gray images has a color: the drawn detections. (H, W) bool."""
    pixels = np.asarray(picture).astype(int)
    return pixels.max(axis=2) - pixels.min(axis=2) > 30


def test_small_images_are_enlarged():
    assert drawing(found("a"), size=(100, 200)).size == (600, 300)
    assert drawing(found("a"), size=(375, 500)).size == (500, 375)
    assert drawing(found("a"), size=(900, 1200)).size == (1200, 900)


def test_nothing_is_drawn_on_an_image_without_boxes():
    assert (np.asarray(drawing(found("a"))) == 128).all()


def test_a_detection_is_drawn_at_its_box():
    mask = colored(drawing(found("a", [(40, 30, 120, 80)], [0.9], [0])))
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    assert (columns[0], columns[-1], rows[-1]) == (120, 359, 239)  # three times as large; half-open
    assert 60 < rows[0] < 90  # the label stands above the box
    assert mask[90:240, 120].all()  # the left side is one solid line


def test_detections_below_the_threshold_are_left_out():
    detections = found("a", [(40, 30, 120, 80), (130, 30, 190, 80)], [0.9, 0.49], [0, 1])
    assert not colored(drawing(detections))[:, 380:].any()
    assert colored(drawing(detections, threshold=0.49))[:, 380:].any()
    assert colored(drawing(detections, threshold=torch.tensor([0.95, 0.4])))[:, 380:].any()
    assert not colored(drawing(detections, threshold=torch.tensor([0.95, 0.4])))[:, :370].any()


def test_classes_have_their_own_colors():
    one, other = (
        np.asarray(drawing(found("a", [(40, 30, 120, 80)], [0.9], [label])))[200, 121] for label in (0, 1)
    )
    assert (one != other).any()


def test_an_image_whose_truth_nobody_drew():
    image = torch.full((3, 100, 200), 128, dtype=torch.uint8)
    detections = found("a", [(40, 30, 120, 80)], [0.9], [0])
    picture = draw_detections(image, detections, None, CLASSES, score_threshold=0.5)
    assert colored(picture).any()


def test_the_truth_is_dashed():
    picture = drawing(found("a"), true_boxes=[(40, 30, 120, 80)])
    assert not colored(picture).any()
    side = np.asarray(picture)[90:240, 120, 0].tolist()
    assert set(side) == {0, 255}
    assert np.count_nonzero(np.diff(side)) > 10


@pytest.mark.parametrize("box", [(0, 0, 200, 100), (195, 0, 200, 4), (0, 96, 3, 100), (20, 20, 20, 20)])
def test_boxes_at_the_border_and_empty_ones_are_drawn(box):
    detections = found("a", [box], [0.9], [1])
    assert colored(drawing(detections, true_boxes=[box])).sum() > 500  # the label is there


def test_images_are_chosen_class_by_class():
    detections = [
        found("a", [(0, 0, 1, 1)] * 2, [0.9, 0.2], [0, 1]),
        found("b"),
        found("c", [(0, 0, 1, 1)] * 2, [0.95, 0.8], [0, 0]),
        found("d", [(0, 0, 1, 1)], [0.3], [1]),
        found("e", [(0, 0, 1, 1)], [0.1], [0]),
    ]
    assert choose_images(detections, 2, 10) == [2, 3, 0, 4, 1]
    assert choose_images(detections, 2, 2) == [2, 3]
    assert choose_images([], 2, 3) == []


def test_pictures_are_written_and_old_ones_removed(tmp_path):
    folder = tmp_path / "pictures"
    source = GraySource(7)
    detections = [
        found(image_id, [(5, 5, 30, 30)], [i / 10], [0]) for i, image_id in enumerate(source.image_ids)
    ]

    def write(count):
        return write_pictures(
            OutputFolder(tmp_path, "key"), source, detections, count=count, score_threshold=0.3
        )

    paths = write(5)
    assert [path.name for path in paths[:2]] == ["01_image6.png", "02_image5.png"]
    assert paths[-1] == folder / "overview.png"
    assert sorted(folder.iterdir()) == sorted(paths)
    assert Image.open(paths[0]).size == (600, 400)
    (folder / "03_mine.png").write_text("mine")
    assert write(1) == [folder / "01_image6.png", folder / "overview.png"]
    left = ["01_image6.png", "03_mine.png", "overview.png"]
    assert sorted(path.name for path in folder.iterdir()) == left
    assert write(0) == []
    assert [path.name for path in folder.iterdir()] == ["03_mine.png"]
    (folder / "overview.png").write_text("mine")
    with pytest.raises(UserError, match=r"overview\.png exists"):
        write(1)
    assert (folder / "overview.png").read_text() == "mine"


def test_ids_with_folders_make_plain_file_names(tmp_path):
    source = GraySource(1)
    source.image_ids = ("2007/000001",)
    outputs = OutputFolder(tmp_path, "key")
    paths = write_pictures(outputs, source, [found("2007/000001")], count=1, score_threshold=0.3)
    assert paths[0] == tmp_path / "pictures" / "01_000001.png"


def test_the_contact_sheet_shows_every_picture():
    pictures = [Image.new("RGB", (600, 400), (250, 20 * i, 0)) for i in range(6)]
    sheet = contact_sheet(pictures, "legend")
    colors = {color for _, color in sheet.getcolors(maxcolors=100000)}
    assert all((250, 20 * i, 0) in colors for i in range(6))
    assert contact_sheet(pictures[:2], "legend").width < sheet.width

"""Detections written as a data set."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image

from detector.commands.check import warn_of_turned
from detector.data.datasets.coco import COCODataset
from detector.data.datasets.voc import VOCDataset
from detector.data.formats import review_import, turn_images
from detector.data.images import read_image, read_image_size
from detector.data.orientation import turn_box
from detector.data.sources.tagged_pictures import find_tags
from detector.self_training.pseudo_set import read_reviewed_counts, write_pseudo_set
from detector.structures import Detections

CLASSES = ("cat", "potted plant")
SIZE = (60, 80)  # height, width


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "picture.png"
    Image.new("RGB", SIZE[::-1], "red").save(path)
    return path


def found(image_id, boxes, labels):
    boxes = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    return Detections(
        image_id, boxes, torch.full((len(boxes),), 0.5), torch.tensor(labels, dtype=torch.int64)
    )


class Images:
    """A data set that applies the orientation, of files and their sizes."""

    class_names, apply_orientation = CLASSES, True

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def image_path(self, index):
        return self.images[index][0]

    def image_size(self, index):
        return self.images[index][1]

    def read_image(self, index):
        return read_image(self.images[index][0], apply_orientation=True)


sides = st.tuples(*[st.floats(0, 1, width=32)] * 4)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(sides, st.integers(0, 1)), max_size=5))
def test_the_voc_reader_gives_the_boxes_back(image, tmp_path_factory, drawn):
    boxes = [[a * 60, b * 50, a * 60 + 1 + c * 19, b * 50 + 1 + d * 9] for (a, b, c, d), _ in drawn]
    given = found("a", boxes, [label for _, label in drawn])
    root = tmp_path_factory.mktemp("sets") / "pseudo"
    write_pseudo_set(root, "train", Images([(image, SIZE)]), [given])
    dataset = VOCDataset(root, "train", CLASSES)
    annotation = dataset.annotation(0)
    torch.testing.assert_close(annotation.boxes, given.boxes, rtol=0, atol=2e-5)  # minus 1, plus 1
    assert annotation.labels.equal(given.labels)
    assert dataset.image_size(0) == SIZE
    assert dataset.read_image(0)[:, 0, 0].tolist() == [255, 0, 0]


def test_whole_pixels_become_inclusive_and_1_based(image, tmp_path):
    write_pseudo_set(tmp_path / "p", "train", Images([(image, SIZE)]), [found("a", [[0, 2, 10, 12]], [1])])
    text = (tmp_path / "p" / "Annotations" / "a.xml").read_text()
    for tag, value in (("xmin", 1), ("ymin", 3), ("xmax", 10), ("ymax", 12), ("name", "potted plant")):
        assert f"<{tag}>{value}</{tag}>" in text


def test_pycocotools_reads_the_json(image, tmp_path):
    coco = pytest.importorskip("pycocotools.coco")
    images = [(image, SIZE)] * 2
    given = [found("a", [[0, 2, 10, 12], [5, 5, 6, 9]], [1, 0]), found("x/b", [], [])]
    write_pseudo_set(tmp_path / "p", "train", Images(images), given)
    read = coco.COCO(str(tmp_path / "p" / "train.json"))
    assert [row["file_name"] for row in read.loadImgs([1, 2])] == ["a.png", "x/b.png"]
    rows = read.loadAnns(read.getAnnIds(imgIds=[1]))
    assert [row["bbox"] for row in rows] == [[0, 2, 10, 10], [5, 5, 1, 4]]
    assert [read.cats[row["category_id"]]["name"] for row in rows] == ["potted plant", "cat"]
    assert len(VOCDataset(tmp_path / "p", "train", CLASSES).annotation(1).boxes) == 0


def test_both_files_say_which_boxes_are_reviewed(image, tmp_path):
    boxes = [[0, 2, 10, 12], [5, 5, 6, 9]]
    given, counts = [found(name, boxes, [1, 0]) for name in "abc"], [(1, False), (0, False), (2, True)]
    write_pseudo_set(tmp_path / "p", "train", Images([(image, SIZE)] * 3), given, reviewed=counts)
    assert read_reviewed_counts(tmp_path / "p", "train") == counts
    for file in (tmp_path / "p" / "Annotations", tmp_path / "p" / "train.json"):
        images = review_import(file)
        assert [each.reviewed for each in images] == ["some", "none", "all"]
        assert [each.label for each in images[0].true_boxes] == ["potted plant"]
    write_pseudo_set(tmp_path / "q", "train", Images([(image, SIZE)] * 3), given)
    assert read_reviewed_counts(tmp_path / "q", "train") == [(0, False)] * 3


def test_nothing_half_written_stays_and_nothing_is_overwritten(image, tmp_path):
    with pytest.raises(ValueError, match="shorter"):
        write_pseudo_set(tmp_path / "p", "train", Images([(image, SIZE)] * 2), [found("a", [], [])])
    assert not (tmp_path / "p").exists()
    write_pseudo_set(tmp_path / "p", "train", Images([(image, SIZE)]), [found("a", [], [])])
    with pytest.raises(FileExistsError, match="delete it"):
        write_pseudo_set(tmp_path / "p", "train", Images([(image, SIZE)]), [found("a", [], [])])
    assert json.loads((tmp_path / "p" / "train.json").read_text())["annotations"] == []


def test_what_is_written_is_what_was_there(image, tmp_path):
    write_pseudo_set(tmp_path / "p", "train", Images([(image, SIZE)]), [found("a", [], [])])
    assert (tmp_path / "p" / "JPEGImages" / "a.png").resolve() == image.resolve()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pixels_as_stored_are_known_as_such(tmp_path, orientation, recwarn):
    class Stored(Images):
        apply_orientation = False

    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    Image.new("RGB", (9, 6)).save(tmp_path / "a.png", exif=exif)
    images = Stored([(tmp_path / "a.png", (6, 9))])
    write_pseudo_set(tmp_path / "p", "train", images, [found("a", [[0, 2, 5, 6]], [1])])
    dataset = VOCDataset(tmp_path / "p", "train", CLASSES)
    assert dataset.annotation(0).boxes.tolist() == [[0, 2, 5, 6]]
    assert not recwarn.list


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".bmp", ".JPE", ".tiff", ""])
def test_any_format_and_orientation_is_read_back_as_the_detector_saw_it(tmp_path, suffix, orientation):
    """VOC's layout knows three suffixes and no orientation."""
    path, exif = tmp_path / f"a.b{suffix or '.x'}", Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    form = {".jpg": "jpeg", ".JPE": "jpeg", "": "png"}.get(suffix, suffix[1:])
    options = {} if suffix == ".bmp" else {"exif": exif}
    pixels = np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, form, **options)
    size = read_image_size(path, apply_orientation=True)
    write_pseudo_set(tmp_path / "p", "train", Images([(path, size)]), [found("a.b", [[0, 2, 5, 6]], [1])])
    dataset = VOCDataset(tmp_path / "p", "train", CLASSES)
    assert dataset.image_size(0) == size
    assert dataset.read_image(0).equal(read_image(path, apply_orientation=True))
    assert dataset.annotation(0).boxes.tolist() == [[0, 2, 5, 6]]


@pytest.mark.parametrize(
    ("image_id", "name"),
    [
        ("../../a", "%2E%2E/%2E%2E/a"),
        ("/etc/a", "%2Fetc/a"),
        ("x/..", "x/%2E%2E"),
        (" a", "%20a"),
        ("a\n", "a%0A"),
        ("a\u2028b", "a%E2%80%A8b"),
        ("a\\b", "a%5Cb"),
        ("a..b/c d.e/ü", "a..b/c d.e/ü"),
    ],
)
def test_names_that_no_list_or_folder_can_hold_are_changed(image, tmp_path, image_id, name):
    write_pseudo_set(
        tmp_path / "p", "train", Images([(image, SIZE)]), [found(image_id, [[0, 2, 10, 12]], [1])]
    )
    assert VOCDataset(tmp_path / "p", "train", CLASSES).image_ids == (name,)
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


@pytest.mark.parametrize("orientation", [2, 3, 4, 6])
@pytest.mark.parametrize("labels", [None, "train.json"])
def test_the_set_says_that_its_boxes_are_of_the_pixels_as_stored(tmp_path, orientation, labels, recwarn):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    path = tmp_path / "a.jpg"
    Image.new("RGB", (80, 80)).save(path, exif=exif)
    dataset = Images([(path, (80, 80))])
    dataset.apply_orientation = False
    write_pseudo_set(tmp_path / "p", "train", dataset, [found("a", [[1, 2, 11, 42]], [0])])
    (tagged,), _ = find_tags(tmp_path / "p", labels and tmp_path / "p" / labels)
    assert tagged.boxes[0].box == turn_box((1, 2, 11, 42), orientation, (80, 80))
    (image,) = review_import(tmp_path / "p" / (labels or "Annotations"), reviewed="all")
    (stored,) = turn_images("p", [image], [path], upright=False)
    assert stored.boxes[0].box == (1, 2, 11, 42)
    dataset = COCODataset(tmp_path / "p", "train", annotations="train.json", images="JPEGImages")
    warn_of_turned(dataset, {0: dataset.annotation(0)}, {})
    assert all("score" in str(warning.message) for warning in recwarn)  # nothing about turned pictures


def test_a_tiff_that_is_read_in_parts_is_linked(tmp_path, monkeypatch):
    Image.new("RGB", SIZE[::-1], "red").save(tmp_path / "a.tif")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    write_pseudo_set(tmp_path / "set", "train", Images([(tmp_path / "a.tif", SIZE)]), [found("a", [], [])])
    assert (tmp_path / "set" / "JPEGImages" / "a.tif").resolve() == tmp_path / "a.tif"
    assert VOCDataset(tmp_path / "set", "train", CLASSES).image_size(0) == SIZE

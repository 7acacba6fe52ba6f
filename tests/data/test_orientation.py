"""Boxes of pictures that a viewer turns, and files with odd EXIF tags."""

import json
import struct

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps

from detector.commands.check import warn_of_turned
from detector.commands.propose import read_known_boxes
from detector.data.datasets.coco import COCODataset
from detector.data.datasets.voc import VOCDataset
from detector.data.formats import review_import
from detector.data.formats.review import turn_images
from detector.data.hints import read_hints
from detector.data.images import read_image, read_image_size
from detector.data.orientation import turn_box
from detector.data.sources.tagged_pictures import find_tags
from detector.inference.results import annotations
from detector.utils.errors import DataError

BOX = (2, 3, 7, 5)  # of a picture 12 wide and 9 high


def write_picture(path, orientation, size=(9, 12), **tags):
    pixels = np.zeros((*size, 3), np.uint8)
    pixels[BOX[1] : BOX[3], BOX[0] : BOX[2]] = 255
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    Image.fromarray(pixels).save(path, exif=exif)


def write_coco(folder, box, size, more=None, **annotation):
    x1, y1, x2, y2 = box or (0, 0, 0, 0)
    found = {"id": 0, "image_id": 0, "category_id": 0, "bbox": [x1, y1, x2 - x1, y2 - y1], **annotation}
    content = {
        "images": [{"id": 0, "file_name": "a.png", "height": size[0], "width": size[1]}],
        "annotations": [found] if box else [],
        "categories": [{"id": 0, "name": "cat"}],
    }
    (folder / "coco.json").write_text(json.dumps(content | (more or {})))


def white(pixels):
    rows, columns = np.nonzero(np.asarray(pixels)[..., 0])
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(9, 12), (12, 12)])
def test_boxes_of_the_stored_pixels_are_turned_as_pillow_turns_the_picture(tmp_path, orientation, size):
    path = tmp_path / "a.png"
    write_picture(path, orientation, size)
    expected = white(ImageOps.exif_transpose(Image.open(path)))
    assert turn_box(BOX, orientation, size) == expected
    write_coco(tmp_path, BOX, size)
    images = review_import(tmp_path / "coco.json", reviewed="all")
    (upright,) = turn_images("coco.json", images, [path], upright=True)
    assert upright.boxes[0].box == expected
    (stored,) = turn_images("coco.json", [upright], [path], upright=False)
    assert (stored.boxes[0].box, stored.size) == (BOX, size)
    (tagged,), _ = find_tags(tmp_path, tmp_path / "coco.json")
    assert tagged.boxes[0].box == expected


def test_a_size_tells_that_boxes_are_upright(tmp_path):
    write_picture(tmp_path / "a.png", 6)
    write_coco(tmp_path, (1, 2, 4, 6), (12, 9))
    (tagged,), _ = find_tags(tmp_path, tmp_path / "coco.json")
    assert (tagged.size, tagged.boxes[0].box) == ((12, 9), (1, 2, 4, 6))


BLANK = [{"name": "", "id": 0, "url": ""}]


@pytest.mark.parametrize("orientation", [3, 6])
@pytest.mark.parametrize(
    ("more", "size"),
    [
        ({"info": {"contributor": "Label Studio"}}, (9, 12)),  # of the pixels as stored, whatever the boxes
        ({"info": {"contributor": "", "description": ""}, "licenses": BLANK}, None),
    ],
)
def test_boxes_drawn_in_label_studio_and_cvat_are_upright(tmp_path, orientation, more, size, recwarn):
    write_picture(tmp_path / "a.png", orientation)
    size = size or read_image_size(tmp_path / "a.png", apply_orientation=True)
    write_coco(tmp_path, (1, 2, 4, 6), size, more)
    (tagged,), _ = find_tags(tmp_path, tmp_path / "coco.json")
    assert (tagged.boxes[0].box, not recwarn.list) == ((1, 2, 4, 6), True)


@pytest.mark.parametrize(
    "writer", ["<owner><name>Label Studio</name></owner>", "<source><image>Unknown</image></source>"]
)
def test_voc_of_label_studio_and_cvat_is_upright_and_counts_pixels_from_0(tmp_path, writer):
    write_picture(tmp_path / "a.png", 3)
    (tmp_path / "Annotations").mkdir()
    corners = "<xmin>1</xmin><ymin>2</ymin><xmax>4</xmax><ymax>6</ymax>"  # from 0, as these tools count
    (tmp_path / "Annotations" / "a.xml").write_text(
        f"<annotation><filename>a.png</filename>{writer}<size><width>12</width><height>9</height></size>"
        f"<object><name>cat</name><bndbox>{corners}</bndbox></object></annotation>"
    )
    (tagged,), _ = find_tags(tmp_path, tmp_path)
    assert tagged.boxes[0].box == (1, 2, 4, 6)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_points_and_known_boxes_of_tools_are_turned_to_the_pixels_as_stored(tmp_path, orientation):
    path = tmp_path / "a.png"
    write_picture(path, orientation)
    height, width = read_image_size(path, apply_orientation=True)
    x1, y1, x2, y2 = turn_box(BOX, orientation, (9, 12))
    image = f'<image id="0" name="a.png" width="{width}" height="{height}">'
    points = f'<annotations>{image}<points label="cat" points="{x1},{y1};{x2},{y2}"/></image></annotations>'
    (tmp_path / "points.xml").write_text(points)
    box = f'<box label="cat" source="manual" xtl="{x1}" ytl="{y1}" xbr="{x2}" ybr="{y2}"/>'
    (tmp_path / "boxes.xml").write_text(f"<annotations>{image}{box}</image></annotations>")
    write_coco(tmp_path, None, (9, 12))
    with pytest.warns(UserWarning, match="show no class"):
        stored = COCODataset(tmp_path, "", annotations="coco.json", images=".")
    (first, second) = read_hints(tmp_path / "points.xml", stored)["a"].points.tolist()
    assert [min(first[0], second[0]), min(first[1], second[1])] == [*BOX[:2]]
    assert [max(first[0], second[0]), max(first[1], second[1])] == [*BOX[2:]]
    for upright, expected in ((False, BOX), (True, (x1, y1, x2, y2))):
        known = read_known_boxes(tmp_path / "boxes.xml", {"a": path}, 50, apply_orientation=upright)
        assert known["a"].tolist() == [[*expected]]


def test_an_odd_tag_does_not_damage_a_picture(tmp_path):
    path = tmp_path / "a.jpg"
    entries = struct.pack("<HHIHH", 0x112, 3, 1, 6, 0) + struct.pack("<HHII", 0x11A, 5, 1, 38)
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 2) + entries + bytes(4) + bytes(8)  # XResolution 0/0
    Image.new("RGB", (12, 9)).save(path, exif=exif)
    assert read_image_size(path, apply_orientation=True) == (12, 9)
    assert read_image(path, apply_orientation=True).shape == (3, 12, 9)


LABEL_STUDIO = {"info": {"contributor": "Label Studio"}}


def stored_boxes(dataset):
    return dataset.annotation(0).boxes.tolist(), dataset.read_image(0).shape[1:]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("more", [LABEL_STUDIO, {"licenses": BLANK}, {"info": {"orientation": "upright"}}])
def test_format_coco_turns_boxes_that_were_drawn_on_the_upright_picture(tmp_path, orientation, more, recwarn):
    write_picture(tmp_path / "a.png", orientation)
    upright = read_image_size(tmp_path / "a.png", apply_orientation=True)
    size = (9, 12) if more is LABEL_STUDIO else upright
    write_coco(tmp_path, turn_box(BOX, orientation, (9, 12)), size, more)
    dataset = COCODataset(tmp_path, "", annotations="coco.json", images=".")
    assert (*stored_boxes(dataset), not recwarn.list) == ([[*BOX]], (9, 12), True)


@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_polygons_of_label_studio_are_stretched_to_the_upright_picture(tmp_path, orientation):
    write_picture(tmp_path / "a.png", orientation)
    height, width = read_image_size(tmp_path / "a.png", apply_orientation=True)
    x1, y1, x2, y2 = turn_box(BOX, orientation, (9, 12))
    wide, high = 12 / width, 9 / height  # its points are percentages of the size as stored
    box = (x1 * wide, y1 * high, x2 * wide, y2 * high)
    corners = [[box[0], box[1], box[2], box[1], box[2], box[3], box[0], box[3]]]
    write_coco(tmp_path, box, (9, 12), LABEL_STUDIO, segmentation=corners)
    (tagged,), _ = find_tags(tmp_path, tmp_path / "coco.json")
    assert tagged.boxes[0].box == pytest.approx((x1, y1, x2, y2))
    ((found,), _) = stored_boxes(COCODataset(tmp_path, "", annotations="coco.json", images="."))
    assert found == pytest.approx([*BOX])


def write_voc(folder, box, size, more=""):
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "ImageSets/Main/train.txt").write_text("a\n")
    corners = zip(("xmin", "ymin", "xmax", "ymax"), box, (1, 1, 0, 0), strict=True)
    sides = "".join(f"<{side}>{value + shift}</{side}>" for side, value, shift in corners)
    stated = f"<size><width>{size[1]}</width><height>{size[0]}</height></size>" if size else ""
    (folder / "Annotations/a.xml").write_text(
        f"<annotation>{more}{stated}<object><name>cat</name><bndbox>{sides}</bndbox></object></annotation>"
    )


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
    "more", ["<owner><name>Label Studio</name></owner>", "<source><image>Unknown</image></source>", ""]
)
def test_format_voc_turns_boxes_that_were_drawn_on_the_upright_picture(tmp_path, orientation, more, recwarn):
    if not more and orientation < 5:
        pytest.skip("the size does not tell")
    x1, y1, x2, y2 = turn_box(BOX, orientation, (9, 12))
    first = 1 if more else 0  # write_voc counts from 1, these tools from 0
    write_voc(tmp_path, (x1 - first, y1 - first, x2, y2), (12, 9) if orientation >= 5 else (9, 12), more)
    write_picture(tmp_path / "JPEGImages/a.png", orientation)
    dataset = VOCDataset(tmp_path, "train")
    assert (*stored_boxes(dataset), not recwarn.list) == ([[*BOX]], (9, 12), True)


@pytest.mark.parametrize(
    ("orientation", "size"), [(3, (9, 12)), (2, None), (6, None), (6, (1, 1)), (6, ("?", 1))]
)
def test_format_voc_warns_where_nothing_tells_whether_boxes_are_upright(tmp_path, orientation, size):
    write_voc(tmp_path, BOX, size)
    write_picture(tmp_path / "JPEGImages/a.png", orientation)
    with pytest.warns(
        UserWarning, match=r"1 picture is turned .* such as a.png; .* as stored.* turn the pixels"
    ):
        dataset = VOCDataset(tmp_path, "train")
    assert stored_boxes(dataset)[0] == [[*BOX]]


def test_format_coco_says_why_a_size_is_that_of_the_upright_picture(tmp_path):
    write_picture(tmp_path / "a.png", 6)
    write_coco(tmp_path, BOX, (12, 9))
    dataset = COCODataset(tmp_path, "", annotations="coco.json", images=".")
    with pytest.raises(DataError, match=r"as a viewer shows it: turn the pixels .* or let detector init"):
        dataset.read_image(0)


@pytest.mark.parametrize(("contributor", "warned"), [("me", True), ("Label Studio", False)])
def test_check_warns_of_coco_boxes_that_may_be_of_the_upright_picture(tmp_path, contributor, warned, recwarn):
    write_picture(tmp_path / "a.png", 3)
    write_coco(tmp_path, BOX, (9, 12), {"info": {"contributor": contributor}})
    dataset = COCODataset(tmp_path, "", annotations="coco.json", images=".")
    warn_of_turned(dataset, annotations(dataset), {})
    assert any("1 picture is turned" in str(each.message) for each in recwarn.list) == warned

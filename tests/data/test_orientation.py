"""Boxes of pictures that a viewer turns, and files with odd EXIF tags."""

import json
import struct

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps

from detector.commands.propose import read_known_boxes
from detector.data.datasets.coco import COCODataset
from detector.data.formats import review_import
from detector.data.formats.review import turn_images
from detector.data.hints import read_hints
from detector.data.images import read_image, read_image_size
from detector.data.orientation import turn_box
from detector.data.sources.tagged_pictures import find_tags

BOX = (2, 3, 7, 5)  # of a picture 12 wide and 9 high


def write_picture(path, orientation, size=(9, 12), **tags):
    pixels = np.zeros((*size, 3), np.uint8)
    pixels[BOX[1] : BOX[3], BOX[0] : BOX[2]] = 255
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    Image.fromarray(pixels).save(path, exif=exif)


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
    x1, y1, x2, y2 = BOX
    content = {
        "images": [{"id": 1, "file_name": "a.png", "height": size[0], "width": size[1]}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [x1, y1, x2 - x1, y2 - y1]}],
        "categories": [{"id": 1, "name": "cat"}],
    }
    (tmp_path / "coco.json").write_text(json.dumps(content))
    images = review_import(tmp_path / "coco.json", reviewed="all")
    (upright,) = turn_images("coco.json", images, [path], upright=True)
    assert upright.boxes[0].box == expected
    (stored,) = turn_images("coco.json", [upright], [path], upright=False)
    assert (stored.boxes[0].box, stored.size) == (BOX, size)
    (tagged,), _ = find_tags(tmp_path, tmp_path / "coco.json")
    assert tagged.boxes[0].box == expected


def test_a_size_tells_that_boxes_are_upright(tmp_path):
    write_picture(tmp_path / "a.png", 6)
    image = {"id": 1, "file_name": "a.png", "height": 12, "width": 9}
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}
    content = {"images": [image], "annotations": [box], "categories": [{"id": 1, "name": "cat"}]}
    (tmp_path / "coco.json").write_text(json.dumps(content))
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
    height, width = size or read_image_size(tmp_path / "a.png", apply_orientation=True)
    content = {
        "images": [{"id": 0, "file_name": "a.png", "height": height, "width": width}],
        "annotations": [{"id": 0, "image_id": 0, "category_id": 0, "bbox": [1, 2, 3, 4]}],
        "categories": [{"id": 0, "name": "cat"}],
    }
    (tmp_path / "coco.json").write_text(json.dumps(content | more))
    (tagged,), _ = find_tags(tmp_path, tmp_path / "coco.json")
    assert (tagged.boxes[0].box, not recwarn.list) == ((1, 2, 4, 6), True)


@pytest.mark.parametrize(
    "writer", ["<owner><name>Label Studio</name></owner>", "<source><image>Unknown</image></source>"]
)
def test_voc_of_label_studio_and_cvat_is_upright(tmp_path, writer):
    write_picture(tmp_path / "a.png", 3)
    (tmp_path / "Annotations").mkdir()
    corners = "<xmin>2</xmin><ymin>3</ymin><xmax>4</xmax><ymax>6</ymax>"
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
    content = {
        "images": [{"id": 1, "file_name": "a.png", "height": 9, "width": 12}],
        "annotations": [],
        "categories": [{"id": 1, "name": "cat"}],
    }
    (tmp_path / "coco.json").write_text(json.dumps(content))
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

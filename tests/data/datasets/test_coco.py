"""The COCO reader: what it reads, and what it says of files that are not as they should be."""

import gc
import json
import pickle
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from detector.data.datasets.coco import COCODataset
from detector.utils.errors import DataError


class COCOFolder:
    """Two images, two objects and a crowd; `content` can be changed before `write`."""

    def __init__(self, root):
        self.root = root
        self.content = {
            "images": [self.image(20, "b.jpg", 40, 60), self.image(7, "below/a.png", 30, 50)],
            "annotations": [
                self.annotation(1, 20, 90, [1, 2, 10.5, 20], area=99.5),
                self.annotation(3, 7, 5, [0, 0, 50, 30]),
                self.annotation(2, 20, 5, [10, 10, 30, 20], iscrowd=1),
            ],
            "categories": [{"id": 90, "name": "teddy bear"}, {"id": 5, "name": "Dog"}],
        }

    def image(self, image_id, file_name, height, width):
        path = self.root / "train" / file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (width, height)).save(path)
        return {"id": image_id, "file_name": file_name, "height": height, "width": width}

    @staticmethod
    def annotation(annotation_id, image_id, category_id, bbox, **more):
        return {"id": annotation_id, "image_id": image_id, "category_id": category_id, "bbox": bbox, **more}

    def write(self, name="annotations/instances_train.json"):
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(self.content))

    def read(self, *arguments, **options):
        self.write()
        return COCODataset(self.root, "train", *arguments, **options)

    def refused(self, error=ValueError):
        with pytest.raises(error) as caught:
            self.read()
        assert str(self.root / "annotations" / "instances_train.json") in str(caught.value)
        return str(caught.value)


@pytest.fixture
def folder(tmp_path):
    return COCOFolder(tmp_path / "set")


def test_reads_a_split_in_the_order_of_the_ids(folder):
    dataset = folder.read()
    assert dataset.name == "set_train"
    assert dataset.class_names == ("Dog", "teddy bear")  # by their ids, 5 and 90
    assert dataset.image_ids == ("below/a", "b")
    assert dataset.coco_ids == (7, 20)
    assert len(dataset) == 2
    assert dataset.image_path(0) == folder.root / "train" / "below" / "a.png"
    assert dataset.image_size(1) == (40, 60)
    assert dataset.read_image(1).shape == (3, 40, 60)
    assert [dataset.labels(i).tolist() for i in range(2)] == [[1, 0], [1, 1]]


def test_boxes_areas_and_crowds(folder):
    annotation = folder.read().annotation(1)
    assert annotation.image_id == "b"
    assert annotation.boxes.tolist() == [[1, 2, 11.5, 22], [10, 10, 40, 30]]
    assert annotation.labels.tolist() == [1, 0]
    assert annotation.crowd.tolist() == [False, True]
    assert annotation.difficult.tolist() == [False, False]
    assert annotation.areas.tolist() == [99.5, 600]  # where the file has none, the box's
    dtypes = (annotation.boxes.dtype, annotation.labels.dtype, annotation.crowd.dtype, annotation.areas.dtype)
    assert dtypes == (torch.float32, torch.int64, torch.bool, torch.float64)


def test_classes_are_matched_by_name_in_the_order_given(folder):
    dataset = folder.read(["teddy bear", "Dog"])
    assert dataset.labels(1).tolist() == [1, 1]
    assert dataset.annotation(1).labels.tolist() == [0, 1]


def test_categories_that_are_no_class_are_left_out_with_a_warning(folder):
    with pytest.warns(UserWarning, match="2 of 3 objects") as caught:
        dataset = folder.read(["teddy bear"])
    assert len(caught) == 1
    assert dataset.annotation(1).boxes.tolist() == [[1, 2, 11.5, 22]]
    assert len(dataset.annotation(0).boxes) == 0


def test_crowds_need_not_give_labels(folder):
    assert folder.read(crowd_labels=False).labels(1).tolist() == [0, 1]


def test_images_with_a_crowd_only_or_without_annotations(folder):
    folder.content["annotations"] = folder.content["annotations"][2:]
    dataset = folder.read()
    assert dataset.labels(1).tolist() == [1, 0]
    assert dataset.annotation(1).crowd.tolist() == [True]
    assert dataset.annotation(0).boxes.shape == (0, 4)
    assert dataset.annotation(0).crowd.shape == dataset.annotation(0).areas.shape == (0,)


def test_a_file_without_any_annotation(folder):
    folder.content["annotations"] = []
    with pytest.warns(UserWarning, match="2 of 2 images"):
        assert folder.read().labels(0).tolist() == [0, 0]


def test_other_layouts(folder):
    folder.write("train/_annotations.coco.json")
    dataset = COCODataset(folder.root, "train", annotations="{split}/_annotations.coco.json")
    assert len(dataset) == 2
    (folder.root / "train").rename(folder.root / "pictures")
    paths = {"annotations": "pictures/_annotations.coco.json", "images": "pictures"}
    assert len(COCODataset(folder.root, "whole", **paths)) == 2


def test_survives_pickling(folder):
    dataset = folder.read()
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.image_ids == dataset.image_ids
    assert torch.equal(copy.annotation(1).boxes, dataset.annotation(1).boxes)


@pytest.mark.parametrize(
    "outline",
    [
        [[1, 2.5, 3e2, 4]],
        [[1, 2], [3, 4]],
        [],
        {"counts": [1, 2, 3], "size": [2, 3]},
        {"size": [2, 3], "counts": 'a]"[,'},
    ],
)
@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_outlines_are_skipped(folder, outline, place, separators):
    for row in folder.content["annotations"]:
        others = dict(row)
        row.clear()
        row |= (
            {"segmentation": outline, **others} if place == "first" else {**others, "segmentation": outline}
        )
    folder.content["info"] = 'says "segmentation": [1, and "no" more]'
    folder.content["categories"][0]["name"] = '"segmentation":[1]'
    folder.write()
    path = folder.root / "annotations" / "instances_train.json"
    path.write_text(json.dumps(folder.content, separators=separators))
    dataset = COCODataset(folder.root, "train")
    assert dataset.class_names == ("Dog", '"segmentation":[1]')
    assert dataset.annotation(1).boxes.tolist() == [[1, 2, 11.5, 22], [10, 10, 40, 30]]


def test_a_byte_order_mark(folder):
    folder.write()
    path = folder.root / "annotations" / "instances_train.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(COCODataset(folder.root, "train")) == 2


def test_the_collector_is_back_afterwards(folder):
    folder.read()
    assert gc.isenabled()
    folder.content["images"] = []
    folder.refused()
    assert gc.isenabled()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_reads_what_pycocotools_reads(seed, tmp_path_factory):
    coco = pytest.importorskip("pycocotools.coco")
    rng = np.random.default_rng(seed)
    folder = COCOFolder(tmp_path_factory.mktemp("random"))
    ids = rng.permutation(1000)[: rng.integers(1, 6)].tolist()
    folder.content["images"] = [folder.image(i, f"{i}.png", 40, 60) for i in ids]
    categories = rng.permutation(99)[:3].tolist()
    folder.content["categories"] = [{"id": i, "name": f"class {i}"} for i in categories]
    folder.content["annotations"] = [
        folder.annotation(
            number,
            int(rng.choice(ids)),
            int(rng.choice(categories)),
            [*rng.integers(0, 30, 2).tolist(), *rng.integers(1, 10, 2).tolist()],
            iscrowd=int(rng.random() < 0.2),
            area=float(rng.integers(1, 100)),
        )
        for number in rng.permutation(rng.integers(0, 12)).tolist()
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of images without objects
        dataset = folder.read()
    theirs = coco.COCO(str(folder.root / "annotations" / "instances_train.json"))
    assert list(dataset.coco_ids) == sorted(theirs.getImgIds())
    for index, image_id in enumerate(dataset.coco_ids):
        ours, rows = dataset.annotation(index), theirs.imgToAnns[image_id]
        x, y, width, height = np.array([row["bbox"] for row in rows]).reshape(-1, 4).T
        assert ours.boxes.tolist() == np.stack([x, y, x + width, y + height], axis=1).tolist()
        names = [dataset.class_names[label] for label in ours.labels]
        assert names == [theirs.cats[row["category_id"]]["name"] for row in rows]
        assert ours.crowd.tolist() == [bool(row["iscrowd"]) for row in rows]
        assert ours.areas.tolist() == [row["area"] for row in rows]


def changed(entry, **values):
    """The first entry of each kind in the file, with other values; ... is none."""
    return lambda content: (
        content[entry][0].update(values)
        or [content[entry][0].pop(key) for key, value in values.items() if value is ...]
    )


def unnumbered(content):
    for row in content["annotations"]:
        del row["id"]


OUTLINE = [[1, 2, 11.5, 2], [11.5, 22, 1, 22]]
NO_BOX = "annotation 1 has no bbox, and no polygon to take it from: add the boxes"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (changed("images", id="20"), None),
        (changed("images", id=20.0), None),
        (changed("images", id=None), "one of the images has no integer id, nor one that is text"),
        (changed("images", id=True), "one of the images has no integer id"),
        (changed("images", id=20.5), "one of the images has no integer id"),
        (changed("images", id="b.jpg"), "annotation 1 has the image_id 20, which is the id of no image"),
        (changed("annotations", image_id="20", category_id="90"), None),
        (changed("annotations", image_id=20.0, category_id=90.0), None),
        (changed("annotations", category_id=None), "the category_id None, which is the id of no category"),
        (changed("categories", id="90"), None),
        (unnumbered, None),
        (changed("annotations", id=...), "one of the annotations has no integer id"),
        (changed("images", height=..., width=...), None),
        (changed("images", height=None, width=None), None),
        (changed("images", height="40", width=60.0), None),
        (changed("images", width=...), "image 20 has the height 40 and the width None"),
        (changed("annotations", bbox="[1, 2, 10.5, 20]"), None),
        (changed("annotations", bbox=["1", "2", "10.5", "20"]), None),
        (changed("annotations", bbox="1,2,10.5,20"), "the bbox '1,2,10.5,20', expected 4 numbers"),
        *((changed("annotations", bbox=no_box), NO_BOX) for no_box in (None, [], "", ...)),
        (changed("annotations", bbox=None, segmentation=OUTLINE), None),
        (changed("annotations", bbox=..., segmentation=[[*OUTLINE[0], *OUTLINE[1]]]), None),
        (changed("annotations", bbox=[], segmentation={"counts": [9, 2], "size": [40, 60]}), NO_BOX),
        (changed("annotations", iscrowd=None, area=None, score=None, segmentation=None), None),
        (changed("annotations", iscrowd="0", area="12"), None),
        (changed("annotations", iscrowd="no"), "annotation 1 has the iscrowd 'no', expected a number"),
        (changed("images", file_name=".\\b.jpg"), None),
        (changed("images", file_name="./b.jpg"), None),
        (
            changed("images", file_name="C:\\photos\\b.jpg"),
            "image 20 has an invalid file_name: 'C:/photos/b.jpg'",
        ),
        (lambda content: content.pop("categories"), "has no list of categories"),
        (lambda content: content["categories"].append({"id": 7, "name": "teddy bear"}), None),
        (lambda content: content.update(licenses=None, info=None), None),
    ],
)
def test_what_tools_write_beside_the_plain_case(folder, change, told):
    change(folder.content)
    if told is not None:
        assert told in folder.refused()
        return
    dataset = folder.read()
    assert dataset.class_names == ("Dog", "teddy bear")
    index = dataset.image_ids.index("b")
    assert dataset.image_size(index) == (40, 60)
    assert [1, 2, 11.5, 22] in dataset.annotation(index).boxes.tolist()


# ---- Bad input


def test_odd_boxes_are_clipped_or_dropped_with_one_warning(folder):
    folder.content["annotations"] += [
        folder.annotation(10, 7, 90, [5, 5, 0, 4]),
        folder.annotation(11, 7, 90, [60, 5, 10, 10]),
        folder.annotation(12, 7, 5, [-4, 5, 10, 100]),
        folder.annotation(13, 7, 5, [-0.5, 5, 10, 25.5]),  # to a pixel's breadth: clipped without a word
    ]
    message = r"^set_train: of 7 boxes 1 .* were clipped, 2 .* dropped; the first: "
    message += r".*instances_train\.json: image below/a has the box \[5\.0, 5\.0, 5\.0, 9\.0\] "
    with pytest.warns(UserWarning, match=message) as caught:
        dataset = folder.read()
    assert len(caught) == 1
    assert dataset.annotation(0).boxes.tolist() == [[0, 0, 50, 30], [0, 5, 6, 30], [0, 5, 9.5, 30]]
    assert dataset.labels(0).tolist() == [1, 1]  # of the dropped ones, too


def test_annotations_with_the_id_of_another_are_read(folder):
    before = folder.read()
    for row in folder.content["annotations"]:
        row["id"] = 1
    with pytest.warns(
        UserWarning, match=r"train\.json: \d annotations have the id of another one; all are read"
    ):
        after = folder.read()
    for i in range(len(before)):
        assert after.annotation(i).boxes.tolist() == before.annotation(i).boxes.tolist()


def named(name):
    return changed("categories", name=name)


NOT_FINITE = [[9, 9, -3, 4], [9, 9, 3, -4], [1, 2, float("nan"), 4], [float("inf"), 1, 2, 2]]
NO_BOXES = [[1, 2, 3], [1, 2, 3, 4, 5], "box", [1, 2, 3, "x"], {"x": 1}]
UNKNOWN = [4, "007", None, [7]]
HEIGHTS = [0, -5, None, 30.5, float("nan"), float("inf"), 10**400, 2_000_000, "tall"]
OUTSIDE = ["../train/b.jpg", "/b.jpg", "..\\b.jpg", "", "b\n.jpg"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        *((changed("annotations", bbox=box), "image b has the box [") for box in NOT_FINITE),
        *((changed("annotations", bbox=box), f"1 has the bbox {box!r}, expected 4") for box in NO_BOXES),
        *(
            (changed("annotations", **{f"{kind}_id": value}), f"_id {value!r}, which is the id of no {kind}")
            for kind in ("image", "category")
            for value in UNKNOWN
        ),
        *((changed("images", height=height), f"image 20 has the height {height!r}") for height in HEIGHTS),
        *((changed("images", file_name=name), "image 20 has an invalid file_name") for name in OUTSIDE),
        (changed("images", file_name=...), "image 20 has the file_name None, expected a string"),
        (changed("images", file_name="below/a.jpg"), "'below/a' occurs 2 times among the images"),
        (named(3), "category 90 has the name 3, expected a string"),
        (named(" "), "category 90 has the name ' '"),
        (changed("annotations", area=float("inf")), "annotation 1 has the area inf"),
        *((changed(kind, id=2**63), f"one of the {kind} has no integer id")
          for kind in ("images", "annotations", "categories")),
    ],
)  # fmt: skip
def test_one_wrong_value_is_named(folder, change, told):
    change(folder.content)
    assert told in folder.refused()


@pytest.mark.parametrize("kind", ["images", "annotations", "categories"])
def test_ids_must_be_whole_and_unique(folder, kind):
    rows = folder.content[kind]
    if kind != "annotations":
        rows[0]["id"] = rows[1]["id"]
        assert f"the id {rows[1]['id']} occurs 2 times among the {kind}" in folder.refused()
    rows[0]["id"] = [1]
    assert f"one of the {kind} has no integer id, nor one that is text: {{'id': [1]" in folder.refused()
    del rows[0]["id"]
    assert f"one of the {kind} has no integer id" in folder.refused()
    del folder.content[kind]
    assert f"has no list of {kind}, expected an instances file in COCO's format" in folder.refused()


def test_two_categories_of_one_name(folder):
    folder.content["categories"].append({"id": 6, "name": "Dog"})
    assert folder.read().class_names == ("Dog", "teddy bear")  # Roboflow adds such a category without objects
    folder.content["annotations"][0]["category_id"] = 6
    assert "the name 'Dog' occurs 2 times among the categories" in folder.refused()


def test_deep_json_names_the_file(folder):
    folder.write()
    (folder.root / "annotations" / "instances_train.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"instances_train\.json .*recursion"):
        COCODataset(folder.root, "train")


def test_missing_images_are_counted(folder):
    (folder.root / "train" / "below" / "a.png").unlink()
    (folder.root / "train" / "below").rmdir()
    message = folder.refused(FileNotFoundError)
    assert message.startswith("1 of the 2 images of")
    assert str(folder.root / "train" / "below" / "a.png") in message


def test_an_image_of_another_size_than_the_file_says(folder):
    folder.content["images"][0] |= {"height": 60, "width": 40}
    folder.content["annotations"][0]["bbox"] = folder.content["annotations"][2]["bbox"] = [1, 1, 5, 5]
    dataset = folder.read()
    with pytest.raises(ValueError, match=r"b\.jpg .* \(40, 60\) .* \(60, 40\)"):
        dataset.read_image(1)


@pytest.mark.parametrize(
    "text", ["", "{", "\xff", '{"images": [1', "[]", '{"images": [3], "annotations": []}']
)
def test_files_that_are_something_else(folder, text):
    folder.write()
    path = folder.root / "annotations" / "instances_train.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"instances_train\.json (is damaged|has no list of images)"):
        COCODataset(folder.root, "train")


def test_a_missing_file_names_those_there_are(folder):
    folder.write("annotations/instances_val.json")
    with pytest.raises(
        FileNotFoundError, match=r"instances_train.json does not exist.*: instances_val\.json"
    ):
        COCODataset(folder.root, "train")


def test_unknown_classes_name_the_nearest(folder):
    with pytest.raises(ValueError, match=r"'dog' \(did you mean Dog\?\)"):
        folder.read(["dog"])

"""Reviewed boxes as data: what training sees of them, and that it sees no others."""

import json
import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from detector.config import load_cfg
from detector.data.batch_order import SeededBatches, repeat_factors
from detector.data.build import build_reviewed, draw_factors
from detector.data.datasets.image_labels import ImageLabels
from detector.data.datasets.voc import VOCDataset
from detector.data.loader import WeakDataset, collate
from detector.data.reviewed import (
    annotations_as_reviewed,
    contradictions,
    draw_images,
    label_counts,
    read_reviewed,
    reviewed_counts,
    reviewed_sampling_weights,
    training_labels,
    unused_images,
)
from detector.data.training_set import TrainingSet
from detector.data.transforms import TrainTransform
from detector.structures import Hints, ReviewedBoxes
from detector.utils.errors import ConfigError, DataError

CLASSES = ("bird", "cat", "dog")


@pytest.fixture
def source(small_voc):
    return VOCDataset(small_voc.root, "trainval", CLASSES)


def cfg_of(*overrides):
    return load_cfg(Path(__file__).parents[2] / "configs/toybox_pcl.yaml", overrides)


def coco_file(path, source, boxes, reviewed=True, size=None):
    """A COCO file with a box (image id, class, xyxy) each."""
    names = list(source.image_ids)
    sizes = [size or source.image_size(i) for i in range(len(names))]
    images = [
        {"id": i, "file_name": f"{name}.jpg", "height": height, "width": width}
        for i, (name, (height, width)) in enumerate(zip(names, sizes, strict=True))
    ]
    categories = [{"id": i, "name": name} for i, name in enumerate((*CLASSES, "fish"))]
    annotations = [
        {
            "id": i,
            "image_id": names.index(image_id),
            "category_id": (*CLASSES, "fish").index(name),
            "bbox": [x1, y1, x2 - x1, y2 - y1],
            "reviewed": reviewed,
        }
        for i, (image_id, name, (x1, y1, x2, y2)) in enumerate(boxes)
    ]
    path.write_text(json.dumps({"images": images, "categories": categories, "annotations": annotations}))
    return path


def weak(source, reviewed, flip=True, size=80):
    proposals = dict.fromkeys(source.image_ids, torch.tensor([[1.0, 1, 9, 9]]))
    transform = TrainTransform(sizes=(size,), side="shortest", max_size=500, flip=flip)
    return WeakDataset(source, proposals, transform, min_size=2, stride=1, max_count=9, reviewed=reviewed)


def test_reviewed_boxes_of_a_file(tmp_path, source) -> None:
    boxes = [("a", "dog", (2, 3, 12, 13)), ("c", "cat", (1, 1, 8, 8)), ("a", "bird", (5, 5, 9, 9))]
    found, _ = read_reviewed(coco_file(tmp_path / "boxes.json", source, boxes), source)
    assert set(found) == {"a", "c"}
    expected = ReviewedBoxes(
        torch.tensor([[2.0, 3, 12, 13], [5, 5, 9, 9]]), torch.tensor([2, 0]), complete=False
    )
    assert found["a"] == expected


def test_an_image_with_a_difficult_object_is_not_complete(tmp_path, source) -> None:
    """As of annotations: such an object is neither learned nor background."""
    boxes = [(image_id, "dog", (2, 3, 12, 13)) for image_id in ("a", "a", "c")]
    path = coco_file(tmp_path / "boxes.json", source, boxes)
    content = json.loads(path.read_text())
    content["images"] = [image | {"reviewed": True} for image in content["images"]]
    content["annotations"][1]["iscrowd"] = 1
    path.write_text(json.dumps(content))
    found, _ = read_reviewed(path, source)
    assert {name: (len(found[name].boxes), found[name].complete) for name in "ac"} == {
        "a": (1, False),
        "c": (1, True),
    }


def test_a_sample_has_the_boxes_of_its_own_review_alone(source) -> None:
    known = ReviewedBoxes(torch.tensor([[2.0, 3, 12, 13]]), torch.tensor([2]), complete=True)
    dataset = weak(source, {"a": known})
    samples = [dataset[i, draw] for i in range(len(dataset)) for draw in range(3)]
    for sample in samples:
        if sample.image_id != "a":
            assert sample.reviewed is None
            continue
        height, width = source.image_size(0)
        scale = sample.image.shape[2] / width, sample.image.shape[1] / height
        x1, y1, x2, y2 = 2 * scale[0], 3 * scale[1], 12 * scale[0], 13 * scale[1]
        if sample.flipped:
            x1, x2 = sample.image.shape[2] - x2, sample.image.shape[2] - x1
        torch.testing.assert_close(sample.reviewed.boxes, torch.tensor([[x1, y1, x2, y2]]))
        torch.testing.assert_close(sample.proposals[0], sample.reviewed.boxes[0])
        assert sample.labels[2] == 1
    assert {sample.flipped for sample in samples if sample.image_id == "a"} == {False, True}


class WithUnknown:
    """A data set of whose images a does, and b may or may not, show a bird, that is, class 0."""

    def __init__(self, source):
        self.source = source
        self.image_ids, self.read_image, self.labels = source.image_ids, source.read_image, source.labels

    def unknown(self, index):
        return torch.tensor([self.image_ids[index] != "b", False, False])


def boxes_of(*labels: int, complete: bool) -> ReviewedBoxes:
    boxes = torch.tensor([[2.0 + i, 3, 12, 13] for i in range(len(labels))]).reshape(-1, 4)
    return ReviewedBoxes(boxes, torch.tensor(labels, dtype=torch.int64), complete)


@pytest.mark.parametrize(
    ("boxes", "labels", "unknown"),
    [
        (boxes_of(0, complete=True), [1, 0, 0], [False] * 3),
        (boxes_of(2, complete=True), [0, 0, 1], [False] * 3),
        (boxes_of(complete=True), [0, 0, 0], [False] * 3),
        (boxes_of(0, complete=False), [1, 1, 1], [False] * 3),
        (boxes_of(2, complete=False), [0, 1, 1], [True, False, False]),
    ],
)
def test_the_boxes_of_a_complete_image_decide_its_labels(source, boxes, labels, unknown) -> None:
    """Image a is tagged cat and dog, and nobody knows whether it shows a bird."""
    hints = {"a": Hints(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), torch.tensor([0, 1, 0]))}
    for given in ({}, hints):
        dataset = weak(WithUnknown(source), {"a": boxes})
        dataset.hints = given
        sample = dataset[0, 0]
        assert (sample.labels.tolist(), sample.unknown.tolist()) == (labels, unknown)
        assert sample.labels.dtype == torch.float32
        assert dataset[1, 0].labels.tolist() == [1, 0, 0]
    assert weak(source, {"a": boxes})[0, 0].unknown is None
    assert training_labels(source, {"a": boxes}).tolist()[:2] == [labels, [1, 0, 0]]
    assert source.all_labels()[0].tolist() == [False, True, True]


@pytest.mark.parametrize("complete", [False, True])
def test_labels_are_counted_as_training_has_them(source, monkeypatch, complete) -> None:
    """Image a, where bird is unknown, has a box or a hint of it; c, where it is unknown, too, has a dog."""
    monkeypatch.setattr(source, "unknown", WithUnknown(source).unknown)
    reviewed = {"a": boxes_of(0, complete=complete), "c": boxes_of(2, complete=complete)}
    point = Hints(torch.tensor([[3.0, 4]]), torch.tensor([0]), torch.tensor([0, 0, 4]))
    for boxes, hints in (
        (reviewed, {}),
        ({}, {"a": point}),
        ({"c": reviewed["c"]}, {"a": point, "c": point}),
    ):
        dataset = weak(source, boxes)
        dataset.hints = hints
        samples = [dataset[i, 0] for i in range(len(dataset))]
        labels, unknown = (torch.stack([getattr(s, name) for s in samples]) for name in ("labels", "unknown"))
        assert (training_labels(source, boxes, hints) == labels.numpy()).all()
        expected = torch.stack([labels, (1 - labels) * ~unknown]).sum(dim=1).T.tolist()
        assert [list(pair) for pair in label_counts(source, boxes, hints).values()] == expected


@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        (
            {"a": boxes_of(0, complete=True), "c": boxes_of(complete=True)},
            "2 images .* a, which is tagged cat, but all",
        ),
        ({"a": boxes_of(1, 2, 0, complete=True)}, "1 image .* a, which has a box of bird, but no such tag"),
        ({"a": boxes_of(0, complete=False)}, "1 image .* a, which has a box of bird"),
        ({"a": boxes_of(1, complete=False), "c": boxes_of(1, 1, complete=True)}, None),
    ],
)
def test_boxes_that_contradict_tags(source, boxes, message) -> None:
    found = contradictions(source, boxes)
    assert len(found) == (message is not None)
    assert all(re.search(message, line) for line in found)


def test_a_box_of_an_unknown_class_contradicts_nothing(source, monkeypatch) -> None:
    monkeypatch.setattr(source, "unknown", WithUnknown(source).unknown)
    assert contradictions(source, {"a": boxes_of(0, 1, 2, complete=True)}) == []
    assert len(contradictions(source, {"b": boxes_of(1, complete=False)})) == 1


def test_a_warning_names_boxes_that_contradict_tags(tmp_path, source) -> None:
    path = coco_file(tmp_path / "boxes.json", source, [("a", "bird", (2, 3, 12, 13))])
    with pytest.warns(UserWarning, match="box of bird"):
        build_reviewed(cfg_of("DATASETS.BOXED", str(path)), source)


def test_images_are_drawn_by_the_labels_that_they_train(source) -> None:
    """Only image b is tagged bird, but the boxes say that image a shows one, and no cat or dog."""
    cfg = cfg_of("SOLVER.BOXED_SHARE", 0.8)
    reviewed = {"a": boxes_of(0, complete=True)}
    factors = draw_factors(cfg.solver, TrainingSet(source, reviewed, {}, proposals=None))
    labels = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]], dtype=bool)
    assert factors.tolist() == reviewed_sampling_weights(np.arange(5) == 0, labels, 0.8).tolist()
    assert factors.tolist() != reviewed_sampling_weights(np.arange(5) == 0, source.all_labels(), 0.8).tolist()


def test_a_class_that_only_hints_show_is_drawn_as_often_as_others(source) -> None:
    """Image d, which no tag or box tells of, has a point in a bird."""
    hints = {"d": Hints(torch.tensor([[3.0, 3]]), torch.tensor([0]), torch.zeros(3, dtype=torch.int64))}
    labels = source.all_labels().copy()
    labels[3, 0] = True
    cfg = cfg_of("SOLVER.REPEAT_THRESHOLD", 0.9, "SOLVER.BOXED_SHARE", 0.8)
    assert (
        draw_factors(cfg.solver, TrainingSet(source, {}, hints, proposals=None)).tolist()
        == repeat_factors(labels, 0.9).tolist()
    )
    reviewed = {"a": boxes_of(2, complete=False)}
    factors = draw_factors(cfg.solver, TrainingSet(source, reviewed, hints, proposals=None))
    labels[0, 2] = True
    expected = repeat_factors(labels, 0.9) * reviewed_sampling_weights(np.arange(5) == 0, labels, 0.8)
    assert factors.tolist() == expected.tolist()
    assert (
        factors.tolist()
        != draw_factors(cfg.solver, TrainingSet(source, reviewed, {}, proposals=None)).tolist()
    )


def test_without_reviews_nothing_of_the_annotations_reaches_a_batch(source, monkeypatch) -> None:
    """Training with other ground-truth boxes, or with none, is the same."""
    plain = collate([weak(source, {})[i, 0] for i in range(len(source))])
    monkeypatch.setattr(VOCDataset, "annotation", lambda self, index: pytest.fail("training reads boxes"))
    assert collate([weak(source, {})[i, 0] for i in range(len(source))]) == plain
    assert plain.reviewed == ()


def test_a_batch_has_a_place_for_each_image(source) -> None:
    known = ReviewedBoxes(torch.tensor([[2.0, 3, 12, 13]]), torch.tensor([2]), complete=False)
    dataset = weak(source, {"c": known}, flip=False)
    batch = collate([dataset[i, 0] for i in range(len(dataset))])
    assert [each is not None for each in batch.reviewed] == [name == "c" for name in batch.image_ids]


def test_annotations_as_reviewed(source) -> None:
    found = annotations_as_reviewed(source, source.image_ids)
    for i, image_id in enumerate(source.image_ids):
        annotation = source.annotation(i)
        clear = ~annotation.difficult
        assert torch.equal(found[image_id].boxes, annotation.boxes[clear])
        assert found[image_id].complete == bool(clear.all())
    with pytest.raises(DataError, match="has no image 'z'"):
        annotations_as_reviewed(source, ["z"])


def test_counts_of_reviewed_boxes() -> None:
    boxes = ReviewedBoxes(torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64), complete=True)
    assert reviewed_counts({"b": boxes}, "abc") == [(0, False), (2, True), (0, False)]


def test_a_larger_share_has_the_images_of_a_smaller() -> None:
    names = [str(i) for i in range(40)]
    few, many = draw_images(names, 0.1, 0), draw_images(names, 0.5, 0)
    assert (len(few), len(many)) == (4, 20)
    assert set(few) < set(many)
    assert set(draw_images(names, 0.1, 1)) != set(few)
    assert len(draw_images(names, 1e-6, 0)) == 1


def one_class_each(*classes: int, of: int) -> np.ndarray:
    """Labels (N, C) of images that show one class; -1: none."""
    return np.array(classes)[:, None] == np.arange(of)


@pytest.mark.parametrize(
    ("count", "share", "boxed_often", "others_often"),
    [(10, 0.5, 5, 5 / 9), (10, 0.05, 1, 1), (10, 0, 1, 1), (0, 0.5, 0, 1), (100, 0.5, 1, 0)],
)
def test_reviewed_images_get_their_share_of_the_draws(count, share, boxed_often, others_often) -> None:
    boxed = np.arange(100) < count
    factors = reviewed_sampling_weights(boxed, np.ones((100, 1), dtype=bool), share)
    assert factors[boxed].tolist() == pytest.approx([boxed_often] * count)
    assert factors[~boxed].tolist() == pytest.approx([others_often] * (100 - count))


def test_each_class_is_drawn_as_often_as_without_reviewed_boxes() -> None:
    """Of class 0 one image of 20 has boxes, of class 1 none, of class 2 most, of no class one of 5."""
    labels = one_class_each(*[0] * 20, *[1] * 30, *[2] * 10, *[-1] * 5, of=3)
    boxed = np.zeros(65, dtype=bool)
    boxed[[0, *range(51, 60), 64]] = True
    factors = reviewed_sampling_weights(boxed, labels, 0.5)
    assert (labels * factors[:, None]).sum(axis=0).tolist() == pytest.approx([20, 30, 10])
    assert factors.sum() == pytest.approx(65)
    assert factors[[0, 1, 20, 50, 51, 60, 64]].tolist() == pytest.approx([10, 10 / 19, 1, 1, 1, 0.625, 2.5])


def test_images_of_several_classes() -> None:
    """The boxed image shows classes 0 and 1; nobody has boxed class 2."""
    labels = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 0, 1]], dtype=bool)
    factors = reviewed_sampling_weights(np.arange(6) == 0, labels, 0.5)
    assert factors.tolist() == pytest.approx([(2 + 1) / 2, 2 / 3, 2 / 3, 1, 1, 1])


def test_with_the_share_1_no_other_image_is_drawn() -> None:
    boxed = np.arange(7) % 3 == 1
    factors = reviewed_sampling_weights(boxed, one_class_each(0, 0, 0, 0, 1, 1, 2, of=3), 1.0)
    batches = islice(SeededBatches(7, 2, 0, repeats=factors), 20)
    drawn = [index for batch in batches for index, _ in batch]
    assert sorted(set(drawn)) == [1, 4]


def test_the_config_names_reviewed_images(tmp_path, source) -> None:
    listed = tmp_path / "boxed.txt"
    listed.write_text("a\n\nd\n")
    assert set(build_reviewed(cfg_of("DATASETS.BOXED", str(listed)), source)) == {"a", "d"}
    often = cfg_of("DATASETS.BOXED_SHARE", 0.4, "SOLVER.BOXED_SHARE", 0.9)
    reviewed = build_reviewed(often, source)
    assert len(reviewed) == 2
    factors = draw_factors(often.solver, TrainingSet(source, reviewed, {}, proposals=None))
    assert np.array_equal(
        factors, reviewed_sampling_weights(np.isin(source.image_ids, [*reviewed]), source.all_labels(), 0.9)
    )
    assert len(set(factors.tolist())) > 1
    assert build_reviewed(cfg_of(), source) == {}
    assert draw_factors(cfg_of().solver, TrainingSet(source, {}, {}, proposals=None)) is None


def test_a_list_of_images_is_utf_8(tmp_path, source) -> None:
    listed = tmp_path / "boxed.txt"
    listed.write_bytes(b"\xef\xbb\xbfa\r\nd\r\n")  # with the byte order mark of Windows
    assert set(build_reviewed(cfg_of("DATASETS.BOXED", str(listed)), source)) == {"a", "d"}
    listed.write_bytes("a\n\xfc\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"boxed\.txt is not UTF-8 text \(line 2"):
        build_reviewed(cfg_of("DATASETS.BOXED", str(listed)), source)


@pytest.mark.parametrize(
    ("boxes", "options", "message"),
    [
        ([("a", "fish", (2, 3, 12, 13))], {}, "class 'fish'"),
        ([("a", "dog", (2, 3, 9, 9))], {"size": (10, 10)}, "expected"),
        ([("a", "dog", (2, 3, 9, 9))], {"reviewed": False}, "reviewed box"),
    ],
)
def test_bad_files(tmp_path, source, boxes, options, message) -> None:
    path = coco_file(tmp_path / "boxes.json", source, boxes, **options)
    with pytest.raises(DataError, match=message):
        read_reviewed(path, source)


def test_images_of_another_split(tmp_path, source) -> None:
    path = coco_file(tmp_path / "boxes.json", source, [("a", "dog", (2, 3, 9, 9))])
    path.write_text(path.read_text().replace('"a.jpg"', '"z.jpg"'))
    with pytest.raises(DataError, match="none of its 5 images"):
        read_reviewed(path, source)


def test_reviewed_images_that_training_does_not_use_are_counted(tmp_path, small_voc, source) -> None:
    """Of the split b one image has boxes there, of no split two; image d has none that were reviewed."""
    boxes = [(image_id, "cat", (2, 3, 9, 9)) for image_id in "abce"]
    path = coco_file(tmp_path / "boxes.json", source, boxes)
    path.write_text(path.read_text().replace('"c.jpg"', '"x/c.jpg"').replace('"e.jpg"', '"e.png.jpg"'))
    small_voc.split("train", ["a"])
    small_voc.split("val", ["b", "d"])
    train_set = VOCDataset(small_voc.root, "train", CLASSES)
    keys = {"DATASETS.BOXED": path, "DATASETS.ROOT": small_voc.root, "DATASETS.CLASSES": list(CLASSES)}
    keys["DATASETS.TEST_SPLIT"] = "val"
    words = [str(word) for pair in keys.items() for word in pair]
    message = r"boxes.json: 1 reviewed image is in VOC_val .*; 2 .* in no split .* the first is 'x/c.jpg'"
    with pytest.warns(UserWarning, match=message):
        assert set(build_reviewed(cfg_of(*words), train_set)) == {"a"}
    with pytest.warns(UserWarning, match=r"boxes.json: 3 reviewed images are in no split"):
        build_reviewed(cfg_of(*words, "DATASETS.TEST_SPLIT", "gone"), train_set)


def test_the_way_of_boxes_into_the_table_of_the_test_split_is_named(tmp_path) -> None:
    for name in "ab":
        Image.new("RGB", (30, 20)).save(tmp_path / f"{name}.png")
    (tmp_path / "train.csv").write_text("a.png,cat\n")
    (tmp_path / "val.csv").write_text("b.png,cat\n")
    train_set, test_set = (ImageLabels(tmp_path, split) for split in ("train", "val"))
    (line,) = unused_images("my boxes.json", ["b.png"], train_set, test_set)
    command = f"detector review-import 'my boxes.json' --table {tmp_path}/val.csv"
    assert line.endswith(f"and not used to train; to measure AP with their boxes: {command}")
    assert unused_images("my boxes.json", [], train_set, test_set) == []


def test_keys_that_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="BOXED_SHARE"):
        cfg_of("DATASETS.BOXED", "boxes.json", "DATASETS.BOXED_SHARE", 0.1)
    with pytest.raises(ConfigError, match=r"SOLVER\.BOXED_SHARE is 1\.0, expected less than 1"):
        cfg_of("SOLVER.BOXED_SHARE", 1)
    with pytest.raises(ConfigError, match="METHOD"):
        cfg_of("DATASETS.BOXED_SHARE", 0.1, "MODEL.METHOD", "wsddn")

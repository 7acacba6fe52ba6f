"""Foreign files, written as the projects write them, come out as our boxes."""

import json
import pickle

import numpy as np
import pytest

from detector.data.proposals import save_proposals
from detector.data.proposals.foreign import READERS

# Of two images, half-open; and the same as Matlab counts them, rows ymin, xmin, ymax, xmax.
OURS = [np.array([[0, 0, 60, 40], [4, 9, 20, 30]], np.float32), np.array([[1, 2, 3, 4]], np.float32)]
MATLAB = [np.array([[1, 1, 40, 60], [10, 5, 30, 20]]), np.array([[3, 2, 4, 3]])]
INCLUSIVE = [boxes - np.array([0, 0, 1, 1], np.float32) for boxes in OURS]


def cells(arrays, shape):
    column = np.empty(len(arrays), object)
    column[:] = arrays
    return column.reshape(shape)


def pickled(path, content, protocol=2):
    path.write_bytes(pickle.dumps(content, protocol))
    return path


def check(form, path, image_ids, boxes=OURS):
    found = READERS[form](path)
    assert found.image_ids == image_ids
    for one, other in zip(found.boxes, boxes, strict=True):
        assert one.dtype == np.float32
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", [np.uint16, np.float64])
def test_selective_search(tmp_path, kind):
    io = pytest.importorskip("scipy.io")
    path = tmp_path / "voc_2007_test.mat"
    boxes = cells([each.astype(kind) for each in MATLAB] + [np.zeros((0, 0))], (1, 3))
    names = cells(["000001", "000003", "000004"], (3, 1))
    io.savemat(path, {"boxes": boxes, "images": names})
    check("selective_search", path, ["000001", "000003", "000004"], [*OURS, np.zeros((0, 4))])
    io.savemat(path, {"boxes": boxes})
    check("selective_search", path, None, [*OURS, np.zeros((0, 4))])


def test_mcg(tmp_path):
    io = pytest.importorskip("scipy.io")
    (tmp_path / "COCO_train2014_0").mkdir()
    names = ("COCO_train2014_000000000009", "COCO_train2014_0/COCO_train2014_000000000030")
    scores = np.array([[0.25], [0.75]], np.float32)
    io.savemat(tmp_path / f"{names[0]}.mat", {"boxes": MATLAB[0][::-1].astype(np.uint16), "scores": scores})
    io.savemat(tmp_path / f"{names[1]}.mat", {"bboxes": MATLAB[1].astype(float), "bboxes_scores": scores[:1]})
    (tmp_path / f"._{names[0]}.mat").write_bytes(b"of macOS")
    check("mcg", tmp_path, ["COCO_train2014_000000000030", "COCO_train2014_000000000009"], OURS[::-1])


@pytest.mark.parametrize("ids", ["indexes", "ids"])
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_detectron(tmp_path, ids, protocol):
    content = {
        "boxes": INCLUSIVE,
        ids: [1, np.int64(2008000003)],
        "scores": [np.ones(2), np.ones(1)],
        "cfg": "A: 1",
    }
    check("detectron", pickled(tmp_path / "a.pkl", content, protocol), ["1", "2008000003"])


def test_scores_order_the_boxes_and_may_be_missing(tmp_path):
    content = {"boxes": [INCLUSIVE[0][::-1]], "ids": [7], "scores": [np.array([[0.1], [0.2]])]}
    check("detectron", pickled(tmp_path / "a.pkl", content), ["7"], OURS[:1])
    del content["scores"]
    check("detectron", pickled(tmp_path / "a.pkl", content), ["7"], [OURS[0][::-1]])


def test_detectron2(tmp_path):
    logits = [np.array([-1.0, 2.0], np.float32), np.zeros(1, np.float32)]
    content = {
        "boxes": [OURS[0][::-1], OURS[1]],
        "objectness_logits": logits,
        "ids": ["a", "b"],
        "bbox_mode": 0,
    }
    check("detectron2", pickled(tmp_path / "a.pkl", content), ["a", "b"])
    content["boxes"] = [
        np.concatenate([each[:, :2], each[:, 2:] - each[:, :2]], axis=1) for each in content["boxes"]
    ]
    content["bbox_mode"] = 1
    check("detectron2", pickled(tmp_path / "a.pkl", content), ["a", "b"])
    content["bbox_mode"] = 4
    with pytest.raises(ValueError, match="bbox_mode is 4"):
        READERS["detectron2"](pickled(tmp_path / "a.pkl", content))


def test_npz(tmp_path):
    path = tmp_path / "boxes.npz"
    np.savez(path, **{"a": OURS[0], "below/b": OURS[1].astype(int), "none": np.zeros((0, 4))})
    check("npz", path, ["a", "below/b", "none"], [*OURS, np.zeros((0, 4))])
    save_proposals(path, ["a", "b"], OURS, [(40, 60), (40, 60)])
    check("npz", path, ["a", "b"])
    np.savez(path, a=OURS[0], b=OURS[0][:, :3])
    with pytest.raises(ValueError, match=r"array b of .*boxes\.npz: it has boxes of the shape \(2, 3\)"):
        READERS["npz"](path)


def test_json_lines(tmp_path):
    lines = [
        {"image": "below/a.jpg", "boxes": OURS[0][::-1].tolist(), "scores": [0.5, 0.75], "model": "any"},
        {"image": 5, "boxes": OURS[1].tolist()},
        {"image": "none", "boxes": []},
    ]
    path = tmp_path / "boxes.jsonl"
    path.write_text("\ufeff" + "\n\n".join(map(json.dumps, lines)), encoding="utf-8")
    check("jsonl", path, ["below/a.jpg", "5", "none"], [*OURS, np.zeros((0, 4))])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], "holds a list, expected a dict"),
        ({"boxes": []}, "has no indexes or ids; it has boxes"),
        ({"boxes": [np.zeros((1, 4))], "ids": []}, "1 boxes, 0 ids, 1 scores"),
        ({"boxes": [np.zeros((2, 5))], "ids": [1]}, r"boxes of the shape \(2, 5\)"),
        ({"boxes": [np.zeros(4)], "ids": [1]}, r"boxes of the shape \(4,\)"),
        ({"boxes": [["four"]], "ids": [1]}, "boxes or scores that are not numbers"),
        ({"boxes": ["four"], "ids": [1]}, "boxes or scores that are not numbers"),
        ({"boxes": [[]], "ids": [[1]]}, "has a list as the id of an image"),
        ({"boxes": [np.zeros((2, 4))], "ids": [1], "scores": [[1]]}, "2 boxes of an image and 1 scores"),
    ],
)
def test_bad_pickles(tmp_path, content, message):
    with pytest.raises(ValueError, match=rf"a\.pkl:? .*{message}"):
        READERS["detectron"](pickled(tmp_path / "a.pkl", content))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "a list, expected an object"),
        ("{", "not JSON"),
        ('{"boxes": []}', "has no image; it has boxes"),
        ('{"image": "b", "boxes": [[1, 2, 3]]}', r"boxes of the shape \(1, 3\)"),
        ('{"image": "b", "boxes": [[1, 2, 3, 4], [1]]}', "boxes or scores that are not numbers"),
        ('{"image": "b", "boxes": [[1, 2, 3, 4]], "scores": []}', "1 boxes of an image and 0 scores"),
    ],
)
def test_bad_json_lines_are_named_by_number(tmp_path, line, message):
    path = tmp_path / "boxes.jsonl"
    path.write_text('{"image": "a", "boxes": []}\n' + line)
    with pytest.raises(ValueError, match=rf"boxes\.jsonl, line 2:? .*{message}"):
        READERS["jsonl"](path)


def test_files_of_another_kind(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"neither one nor the other" * 20)
    with pytest.raises(ValueError, match=r"file is damaged or of another format"):
        READERS["npz"](path)
    with pytest.raises(ValueError, match=r"file is not a folder of \.mat files"):
        READERS["mcg"](path)
    with pytest.raises(ValueError, match=r"file: .*is not a \.mat file"):
        READERS["selective_search"](path)
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(400))
    with pytest.raises(ValueError, match=r"file: .*-v7\.3.* save it with -v7"):
        READERS["selective_search"](path)

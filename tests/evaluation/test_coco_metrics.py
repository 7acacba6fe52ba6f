"""COCO's AP: by hand, and against pycocotools on files."""

import contextlib
import io
import json
import sys
import warnings

import numpy as np
import pytest
import torch

from detector.data.datasets.coco import COCODataset
from detector.evaluation.coco import coco_ap
from detector.structures import Annotation, Detections
from detector.utils.errors import MissingPackage

pytest.importorskip("pycocotools")
NAMES = ["AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large"]
BOX, FAR = (0.0, 0.0, 40.0, 40.0), (100.0, 100.0, 300.0, 300.0)


def annotation(boxes, labels, **more):
    flags = {name: torch.tensor(values) for name, values in more.items()}
    flags.setdefault("difficult", torch.zeros(len(labels), dtype=torch.bool))
    return Annotation("a", torch.tensor(boxes).reshape(-1, 4), torch.tensor(labels), **flags)


def found(boxes, scores, labels):
    boxes = torch.tensor(boxes).reshape(-1, 4)
    return Detections("a", boxes, torch.tensor(scores), torch.tensor(labels, dtype=torch.int64))


def test_by_hand():
    truth = [annotation([BOX, FAR, BOX], [0, 0, 1])]
    # Class 0: one exact and one of IoU 0.7; class 1 wrong; class 2 has no object.
    detections = [found([BOX, (100, 100, 300, 240), FAR, FAR], [0.9, 0.8, 0.7, 0.6], [0, 0, 1, 2])]
    result = coco_ap(detections, truth, 3)
    assert list(result) == NAMES
    # With one of two found, precision is 1 at the 51 recalls 0, 0.01, ..., 0.5, and 0 at the 50 above.
    half = 51 / 101
    assert result["AP50"][:2] == pytest.approx([1, 0], abs=1e-9)
    assert result["AP75"][:2] == pytest.approx([half, 0], abs=1e-9)
    assert result["AP"][:2] == pytest.approx([(5 + 5 * half) / 10, 0], abs=1e-9)  # right at 0.5 to 0.7
    assert result["AP_medium"][:2] == pytest.approx([1, 0], abs=1e-9)  # 40 x 40
    assert result["AP_large"][0] == pytest.approx(0.5, abs=1e-9)
    assert np.isnan(result["AP_small"]).all()
    assert np.isnan([result[name][2] for name in NAMES]).all()


def test_areas_are_those_of_the_outlines():
    truth = [annotation([BOX], [0], areas=[500.0])]
    result = coco_ap([found([BOX], [0.9], [0])], truth, 1)
    assert result["AP_small"][0] == pytest.approx(1)
    assert np.isnan(result["AP_medium"][0])


@pytest.mark.parametrize(("flag", "second"), [("difficult", 0.5), ("crowd", 1.0)])
def test_difficult_objects_and_crowds_do_not_count(flag, second):
    truth = [annotation([BOX, FAR], [0, 0], **{flag: [True, False]})]
    once = found([BOX, FAR], [0.9, 0.8], [0, 0])
    twice = found([BOX, BOX, FAR], [0.9, 0.85, 0.8], [0, 0, 0])
    missed = found([FAR], [0.8], [0])
    assert coco_ap([once], truth, 1)["AP"][0] == pytest.approx(1)
    assert coco_ap([missed], truth, 1)["AP"][0] == pytest.approx(1)
    assert coco_ap([twice], truth, 1)["AP"][0] == pytest.approx(second)  # crowds are many


def test_nothing_found_and_nothing_to_find():
    nothing = found([], [], [])
    result = coco_ap([nothing], [annotation([BOX], [1])], 2)
    assert np.isnan(result["AP"][0])
    assert result["AP"][1] == 0
    empty = annotation(torch.zeros(0, 4).tolist(), torch.zeros(0).long().tolist())
    assert np.isnan(coco_ap([found([BOX], [0.9], [0])], [empty], 1)["AP"]).all()
    assert np.isnan(coco_ap([], [], 2)["AP"]).all()


def test_nobody_else_hears_of_its_progress(capsys):
    coco_ap([found([BOX], [0.9], [0])], [annotation([BOX], [0])], 1)
    assert capsys.readouterr() == ("", "")


def test_images_must_agree():
    with pytest.raises(ValueError, match="image a has an annotation but no results"):
        coco_ap([], [annotation([BOX], [0])], 1)


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocotools.cocoeval", None)
    with pytest.raises(MissingPackage, match="pip install pycocotools"):
        coco_ap([], [], 1)


# ---- Against pycocotools, which reads the same files by itself


def random_set(root, seed):
    """Writes a set: ids in any order and with holes, crowds. Returns results, some of them tied."""
    rng = np.random.default_rng(seed)
    image_ids = rng.permutation(500)[: rng.integers(1, 13)].tolist()
    categories = rng.permutation(91)[:4].tolist()
    (root / "val").mkdir(parents=True)
    (root / "annotations").mkdir()
    annotations, results = [], []
    for image_id in image_ids:
        (root / "val" / f"{image_id}.jpg").touch()  # nobody looks into it
        count = int(rng.integers(0, 7))
        corners = rng.integers(0, 200, (count, 2)) + rng.integers(0, 4, (count, 2)) / 4
        boxes = np.concatenate([corners, rng.integers(4, 200, (count, 2))], axis=1)  # x, y, width, height
        for box in boxes:
            annotation = {
                "id": len(annotations) + 1,
                "image_id": image_id,
                "category_id": int(rng.choice(categories[:3])),
                "bbox": box.tolist(),
                "area": float(box[2] * box[3] * rng.uniform(0.3, 1)),
                "iscrowd": int(rng.random() < 0.2),
            }
            annotations.append(annotation)
            for _ in range(rng.integers(0, 4)):
                near = box + rng.integers(-12, 13, 4) * (rng.random(4) < 0.6)
                category = annotation["category_id"] if rng.random() < 0.8 else int(rng.choice(categories))
                results.append(
                    {
                        "image_id": image_id,
                        "category_id": category,
                        "bbox": near.clip(1).tolist(),
                        "score": int(rng.integers(1, 8 if seed % 2 else 2**20)) / 2**20,
                    }
                )
    content = {
        "images": [{"id": i, "file_name": f"{i}.jpg", "height": 600, "width": 600} for i in image_ids],
        "annotations": annotations,
        "categories": [{"id": i, "name": f"class {i}"} for i in categories],
    }
    (root / "annotations" / "instances_val.json").write_text(json.dumps(content))
    return results


def as_detections(dataset, results):
    """The results in our form; of equal scores the first given stays first, as in pycocotools."""
    columns = {name: column for column, name in enumerate(dataset.class_names)}
    for image_id, coco_id in zip(dataset.image_ids, dataset.coco_ids, strict=True):
        rows = sorted((row for row in results if row["image_id"] == coco_id), key=lambda row: -row["score"])
        boxes = torch.tensor([row["bbox"] for row in rows], dtype=torch.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        labels = torch.tensor([columns[f"class {row['category_id']}"] for row in rows], dtype=torch.int64)
        yield Detections(image_id, boxes, torch.tensor([row["score"] for row in rows]), labels)


def test_agrees_with_pycocotools_on_50_random_sets(tmp_path):
    coco = pytest.importorskip("pycocotools.coco")
    cocoeval = pytest.importorskip("pycocotools.cocoeval")
    informative = 0
    for seed in range(50):
        root = tmp_path / f"{seed}"
        results = random_set(root, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of images without objects
            dataset = COCODataset(root, "val")
        truth = [dataset.annotation(i) for i in range(len(dataset))]
        ours = coco_ap(list(as_detections(dataset, results)), truth, 4)
        if not results:  # which pycocotools cannot load
            assert np.nanmax([0, *ours["AP"]]) == 0
            continue
        with contextlib.redirect_stdout(io.StringIO()):
            file = coco.COCO(str(root / "annotations" / "instances_val.json"))
            evaluation = cocoeval.COCOeval(file, file.loadRes(results), "bbox")
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
        for name, theirs in zip(NAMES, evaluation.stats[:6], strict=True):
            known = ours[name][~np.isnan(ours[name])]
            assert (known.mean() if len(known) else -1) == pytest.approx(theirs, abs=1e-12), (seed, name)
            informative += 0 < theirs < 1
    assert informative > 200

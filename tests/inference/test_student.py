"""The Faster R-CNN of self-training, wherever a weak detector is taken."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx_cases import run_example
from PIL import Image
from random_run import CLASSES, make_pictures, make_run, make_student
from torch import Tensor

import detector
from detector.commands import export as exporting
from detector.commands.export import export, make_network
from detector.commands.main import main
from detector.commands.predict import predict_files as predict
from detector.config import load_cfg
from detector.data.toybox import CLASSES as TOYBOX
from detector.data.toybox import draw_toybox
from detector.inference.export import Network, detection_differences, load_program, typical_difference
from detector.inference.exported_student import export_student, pad_images
from detector.inference.predictor import Predictor
from detector.modeling.weak_rcnn import WeakRCNN
from detector.reporting.build import write_report as report
from detector.self_training.build import build_student
from detector.self_training.faster_rcnn import FasterRCNN
from detector.self_training.scoring import score_batch
from detector.structures import Detections
from detector.utils.errors import UserError
from detector.utils.logging import setup_logging

PIXELS = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_run(tmp_path_factory.mktemp("runs") / "demo")
    make_student(folder)
    return folder


def test_a_run_folder_stands_for_its_student(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "detector"):
        predictor = detector.load(run)
    assert isinstance(predictor.model, FasterRCNN)
    assert f"the Faster R-CNN of self-training, {run / 'self_train' / 'model_final.pt'}" in caplog.text
    expected = predictor(PIXELS)
    assert len(expected) > 0
    assert set(expected.names) <= set(CLASSES)
    for path in (run / "self_train", run / "self_train" / "model_final.pt"):
        found = detector.load(path, model="student")(PIXELS)
        assert found.boxes.equal(expected.boxes)
        assert found.scores.equal(expected.scores)


def test_the_weak_detector_can_be_chosen_and_is_taken_without_a_student(run: Path, tmp_path: Path) -> None:
    assert isinstance(detector.load(run, model="weak").model, WeakRCNN)
    alone = make_run(tmp_path / "alone")
    assert isinstance(detector.load(alone).model, WeakRCNN)
    with pytest.raises(
        FileNotFoundError, match=r"self_train/model_final\.pt does not exist: run detector self"
    ):
        detector.load(alone, model="student")
    with pytest.raises(UserError, match=r"is the checkpoint of a weak detector, expected that of a student"):
        detector.load(alone / "model_final.pt", model="student")


def test_scores_before_nms_lead_to_torchvisions_detections(run: Path) -> None:
    predictor = detector.load(run, score_threshold=None)
    image = torch.from_numpy(PIXELS).permute(2, 0, 1)
    predictor.model.roi_heads.detections_per_img = 100
    with torch.no_grad():
        (theirs,) = predictor.model([image.float() / 255])
    found = predictor(image)
    assert len(found) == len(theirs["boxes"]) > 10
    torch.testing.assert_close(found.scores, theirs["scores"])
    torch.testing.assert_close(found.boxes, theirs["boxes"], atol=1e-3, rtol=0)
    assert found.labels.equal(theirs["labels"] - 1)


@pytest.mark.parametrize("part", ["backbone", "roi_heads.box_head"])
def test_what_is_not_finite_is_no_empty_image(run: Path, part: str) -> None:
    predictor = detector.load(run, overrides={"PRECISION": "bf16"})
    next(predictor.model.get_submodule(part).parameters()).data.fill_(torch.inf)
    with pytest.raises(UserError, match=r"not finite, in the image 0; PRECISION is 'bf16'"):
        predictor([PIXELS, PIXELS], None)


def test_a_student_takes_no_proposals(run: Path) -> None:
    with pytest.raises(UserError, match="makes its proposals itself"):
        detector.load(run)(PIXELS, np.zeros((1, 4)))


def test_files_are_predicted_and_labeled(run: Path, tmp_path: Path) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    predict([tmp_path / "a.png"], run, tmp_path / "found", formats=["coco"], score_threshold=0.1)
    annotations = json.loads((tmp_path / "found" / "detections.json").read_text())["annotations"]
    assert len(annotations) == len(detector.load(run, score_threshold=0.1)(tmp_path / "a.png")) > 0
    (tmp_path / "tags.csv").write_text(f"file,labels\na.png,{CLASSES[0]};{CLASSES[2]}\n")
    (image,) = detector.label(run, tmp_path / "tags.csv", score_threshold=1.0)
    assert sorted(box.label for box in image.boxes) == sorted((CLASSES[0], CLASSES[2]))
    assert all(box.doubtful for box in image.boxes)


@pytest.mark.usefixtures("process_as_before")
def test_it_is_tested_and_reported_without_proposals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw_toybox(tmp_path / "toybox", train=2, test=3)
    keys = (
        "DATASETS.ROOT",
        str(tmp_path / "toybox"),
        "DATASETS.PROPOSALS",
        "none.npz",
        "DATASETS.WORKERS",
        0,
    )
    run = make_run(tmp_path / "run", *keys, "DEVICE", "cpu", classes=TOYBOX)
    student = make_student(run)
    metrics = detector.evaluate(run, {"TEST.PICTURES": 1})
    assert (metrics["method"], metrics["backbone"]) == ("pcl + self-training", "small")
    assert metrics["CorLoc"] is not None
    assert json.loads((student / "metrics.json").read_text()) == metrics
    assert not (run / "metrics.json").exists()
    report(run, [], None)
    page = (student / "report.html").read_text().lower()
    assert f"<title>{run.name}: faster r-cnn from tags of toybox</title>" in page
    smaller = detector.evaluate(run, {"SELF_TRAIN.SIZES": (48,)})
    assert smaller["changed_keys"] == {"SELF_TRAIN.SIZES": [48]}
    assert len(list((student / "tests").iterdir())) == 1
    assert json.loads((student / "metrics.json").read_text()) == metrics
    for name in ("config.yaml", "model_final.pt"):  # the student alone
        (run / name).unlink()
    assert main(["test", str(run)]) == 0
    assert f"next: detector report {run}" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("process_as_before")
def test_an_exported_fcos_finds_what_the_student_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Faster R-CNN is exported by docs/export.md, which tests/test_docs.py follows."""
    onnx, *_ = (pytest.importorskip(package) for package in ("onnx", "onnxscript", "onnxruntime"))
    run = make_run(tmp_path / "run")
    make_student(run, "SELF_TRAIN.DETECTOR", "fcos")
    count, networks = 6, []  # tests/chaos draws others

    def load_and_keep(form: str, path: Path) -> Network:
        networks.append(load_program(form, path))
        return networks[0]

    monkeypatch.setattr("detector.commands.export.load_program", load_and_keep)
    pictures, found = make_pictures(tmp_path / "pictures", count), detector.load(run, score_threshold=None)
    words = ["export", str(run), "--format", "onnx", "--images", str(pictures), "--count", str(count)]
    assert main(words) == 0
    assert f"of the model on {count} images and 13 made from them" in capsys.readouterr().out
    folder = run / "self_train" / "export"
    about = json.loads((folder / "onnx.json").read_text())
    assert about["check"]["difference"] <= 1e-4
    assert about["outputs"] == ["boxes", "scores", "labels", "image_index"]
    assert (folder / "onnx.onnx").stat().st_size > 1e6
    boxes, scores, _, _ = networks[0](*pad_images([torch.from_numpy(PIXELS).permute(2, 0, 1)]))
    expected = found(PIXELS)
    assert len(expected) == len(boxes) > 10
    torch.testing.assert_close(scores, expected.scores, atol=1e-4, rtol=0)
    equals_eager(networks[0], found, SEVERAL)
    assert json.loads((folder / "preprocess.json").read_text())["classes"] == list(CLASSES)
    texts = {each.key: each.value for each in onnx.load(folder / "onnx.onnx").metadata_props}
    assert texts["names"] == '{"0": "bird", "1": "<b>car</b> & co", "2": "fish"}'
    Image.fromarray(PIXELS).save(folder / "picture.png")
    pairs = zip(expected.names, expected.scores.tolist(), strict=True)
    expected = [f"{name} {score:.2f}" for name, score in pairs if score > 0.3]
    lines = run_example(folder, "onnx.onnx", "picture.png")
    assert [line.removeprefix("picture.png ").rsplit(" ", 4)[0] for line in lines] == expected


SEVERAL = [torch.randint(256, (3, *size)).byte() for size in ((50, 70), (64, 40), (90, 33))]


def equals_eager(network: Network, predictor: Predictor, images: list[Tensor]) -> None:
    """Check that a network finds in images of several sizes what the model finds in them together."""
    options = {"device": predictor.device, "precision": predictor.precision}
    expected = score_batch(predictor.model, images, [""] * len(images), **options)
    with torch.no_grad():
        boxes, scores, labels, index = network(*pad_images(images))
    assert scores.equal(scores.sort(descending=True).values)
    found = []
    for number, (image, ours) in enumerate(zip(images, map(predictor.detections, expected), strict=True)):
        own = index == number
        pair = ours, Detections("", boxes[own], scores[own], labels[own])
        assert len(ours) == len(pair[1]) > 0
        limits = {"side": max(image.shape), "floor": 0.0, "most": 100}
        found += [(image, detection_differences(*each, **limits)) for each in (pair, pair[::-1])]
    assert typical_difference(found) <= 1e-4


@pytest.mark.parametrize("kind", ["faster_rcnn", "fcos"])
def test_a_batch_for_export_is_a_batch_of_the_student(kind: str, tmp_path: Path) -> None:
    """One image is of a pixel, which a batch pads most; and all have as many boxes as an image may have."""
    run = make_run(tmp_path / "run")
    make_student(run, "SELF_TRAIN.DETECTOR", kind)
    predictor = detector.load(run, "cpu", score_threshold=None)
    if isinstance(
        predictor.model, FasterRCNN
    ):  # after training, hardly any place is likely to hold an object
        predictor.model.rpn.head.cls_logits.bias.data.fill_(-9.0)
    network = make_network(predictor.model)
    equals_eager(network, predictor, [*SEVERAL, torch.zeros(3, 1, 1).byte()])
    equals_eager(network, predictor, SEVERAL[:1])


@pytest.mark.parametrize("words", [("--format", "torch_export"), ("--format", "onnx", "--model", "weak")])
@pytest.mark.usefixtures("process_as_before")
def test_int8_is_for_students_in_onnx(run: Path, words, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), "--int8", *words]) == 2
    assert "error: --int8 is for --format onnx and for a student" in capsys.readouterr().err


@pytest.mark.usefixtures("process_as_before")
def test_what_int8_costs_is_measured_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_toybox(tmp_path / "toybox", train=3, test=2)
    cfg = load_cfg("toybox_pcl", ["DATASETS.ROOT", str(tmp_path / "toybox")])
    points, quantized = iter([(80.0, 2), (78.5, 2)]), []
    monkeypatch.setattr(exporting, "mean_ap", lambda *_: next(points))
    monkeypatch.setattr(exporting, "load_program", lambda *_: None)
    monkeypatch.setattr(exporting, "quantize_onnx", lambda *each: quantized.append([*each[:2], *each[2]]))
    setup_logging()
    cost = exporting.quantize_checked(tmp_path / "a.onnx", cfg)
    assert cost == {"calibration_images": 3, "mAP50": 78.5, "mAP50_float32": 80.0, "mAP50_images": 2}
    ((source, target, *images),) = quantized
    assert (source, target, len(images)) == (tmp_path / "a.onnx", tmp_path / "a.onnx", 3)
    told = capsys.readouterr()
    assert "int8: mAP50 78.5, in float32 80.0, on 2 images" in told.out
    assert "warning: int8 costs 1.5 mAP50: prefer the file without --int8" in told.err


@pytest.mark.usefixtures("process_as_before")
def test_a_student_with_depthwise_convolutions_is_exported() -> None:
    pytest.importorskip("timm")
    torch.manual_seed(0)
    words = ["SELF_TRAIN.DETECTOR", "fcos", "SELF_TRAIN.CHANNELS", 64]
    model = build_student(load_cfg("photos_pcl_lite0", words), pretrained=False).eval()
    network = make_network(model)
    program, images = export_student(network), pad_images([torch.from_numpy(PIXELS).permute(2, 0, 1)] * 3)
    with torch.no_grad():
        found, expected = program.module()(*images), network(*images)
    assert expected[3].bincount().tolist() > [10] * 3
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_an_export_that_finds_something_else_is_not_kept(run: Path, tmp_path: Path, monkeypatch) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    nothing = torch.zeros(0, 4), torch.zeros(0), *torch.zeros(2, 0, dtype=torch.int64)
    # Tracing the network takes seconds, and its program would not be run.
    monkeypatch.setattr("detector.commands.export.exported_student.export_student", lambda model: None)
    monkeypatch.setattr(
        "detector.commands.export.save_program", lambda program, form, path, **_: path.touch()
    )
    monkeypatch.setattr("detector.commands.export.load_program", lambda *_: lambda *images: nothing)
    before = {path.name for path in (run / "self_train" / "export").glob("*")}
    with pytest.raises(UserError, match="gives other figures than the model"):
        export(run, "torch_export", tmp_path)
    assert {path.name for path in (run / "self_train" / "export").glob("*")} == before


def test_the_difference_of_detections_by_hand() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [20, 20, 40, 40], [50, 50, 60, 60]])
    found = Detections("a", boxes, torch.tensor([0.9, 0.5, 0.11]), torch.tensor([0, 1, 0]))
    options = {"side": 100, "floor": 0.1, "most": 10}
    assert detection_differences(found, found, **options).tolist() == [0, 0, 0]
    moved = Detections("a", boxes + torch.tensor([[5], [0], [1]]), found.scores, found.labels)
    assert detection_differences(found, moved, **options).tolist() == pytest.approx([0.05, 0, 0.01])
    nearly = detection_differences(found, found[:2], **options)  # the last nearly missed the floor
    assert nearly.tolist() == pytest.approx([0, 0, 0.01])
    other = Detections("a", boxes, found.scores, torch.tensor([0, 0, 0]))
    assert detection_differences(found, other, **options).tolist() == pytest.approx([0, 0.4, 0])
    assert not len(detection_differences(found[:0], found, **options))


def test_ties_decide_in_images_of_one_color_or_of_stripes_alone() -> None:
    black, picture = torch.zeros(3, 8, 8), torch.arange(192.0).view(3, 8, 8)
    few = torch.tensor([0.0] * 97 + [0.5] * 3)
    for ties in (black, picture[:, :1].expand(3, 8, 8), picture[:, :, :1].expand(3, 8, 8)):
        assert typical_difference([(ties, few), (picture, torch.zeros(9))]) == 0
    assert typical_difference([(picture, few), (black, torch.zeros(9))]) == 0.5
    assert typical_difference([(black, few[-5:])]) == 0.5  # more than half of an image differ
    assert typical_difference([(picture, few[:0])]) == 0

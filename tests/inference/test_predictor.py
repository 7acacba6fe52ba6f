"""inference/predictor.py: images as they come, proposals given or found."""

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from random_run import make_run

import detector
from detector.data.build import build_dataset
from detector.data.proposals import save_proposals
from detector.data.proposals.grid import grid_boxes
from detector.data.toybox import CLASSES, draw_toybox
from detector.engine.checkpoint import restore_model
from detector.engine.precision import Precision
from detector.inference.load import read_run
from detector.modeling.build import build_model
from detector.self_training.networks import predict_all


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    return detector.load(make_run(tmp_path_factory.mktemp("runs") / "demo"), score_threshold=None)


PIXELS = np.random.default_rng(0).integers(0, 256, (48, 80, 3), dtype=np.uint8)


def test_every_form_of_an_image_gives_the_same(predictor, tmp_path):
    path = tmp_path / "a.png"
    Image.fromarray(PIXELS).save(path)
    turned = Image.fromarray(
        np.rot90(PIXELS).copy()
    )  # stored a quarter to the left, to be shown to the right
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    turned.save(tmp_path / "turned.png", exif=exif)
    expected = predictor(PIXELS)
    assert len(expected.boxes) > 0
    alpha = np.dstack([PIXELS, np.full(PIXELS.shape[:2], 9, dtype=np.uint8)])
    tensor = torch.from_numpy(PIXELS).permute(2, 0, 1)
    forms = [path, str(path), tmp_path / "turned.png", Image.open(path), alpha, tensor]
    several = predictor([*forms, PIXELS])
    assert [found.image_id for found in several] == [str(path)] * 2 + [str(tmp_path / "turned.png")] + list(
        "3456"
    )
    for found in several:
        assert found.boxes.equal(expected.boxes)
        assert found.scores.equal(expected.scores)
        assert found.names == expected.names
    gray = [PIXELS[:, :, 0], PIXELS[:, :, :1], tensor[:1], Image.fromarray(PIXELS[:, :, 0])]
    first, *others = predictor(gray)
    assert all(found.scores.equal(first.scores) for found in others)


def test_proposals_that_are_given_are_those_found(predictor):
    boxes = grid_boxes(PIXELS)
    expected = predictor(PIXELS)
    assert predictor(PIXELS, boxes).boxes.equal(expected.boxes)
    one, none, found = predictor([PIXELS] * 3, [np.array([[-9, 8, 40, 999.0]]), torch.zeros(0, 4), None])
    assert one.boxes.unique(dim=0).tolist() == [[0, 8, 40, 48]]  # clipped
    assert none.boxes.shape == (0, 4)
    assert none.names == ()
    assert found.scores.equal(expected.scores)


@pytest.mark.parametrize("size", [(1, 1), (1, 400), (300, 2)])
def test_tiny_and_thin_images(predictor, size):
    found = predictor(np.zeros((*size, 3), dtype=np.uint8))
    assert found.boxes.shape == (0, 4)  # no proposal is wider and higher than PROPOSALS.MIN_SIZE


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((3, 20, 30), dtype=np.uint8), r"uint8 \(3, 20, 30\), expected a uint8 array \(H, W, 3\)"),
        (np.zeros((20, 30, 3)), r"float64 \(20, 30, 3\), expected a uint8 array"),
        (np.zeros((20, 30, 3), dtype=np.uint16), "uint16"),
        (np.zeros((0, 30, 3), dtype=np.uint8), "not empty"),
        (torch.zeros(3, 20, 30), r"torch.float32 \(3, 20, 30\), expected a uint8 tensor \(3, H, W\)"),
        (torch.zeros(2, 3, 20, 30, dtype=torch.uint8), "expected a uint8 tensor"),
    ],
)
def test_what_is_no_image_is_named(predictor, image, message):
    with pytest.raises(ValueError, match=message):
        predictor(image)


@pytest.mark.parametrize(
    ("proposals", "message"),
    [
        (np.zeros((2, 5)), r"shape \(2, 5\), expected \(R, 4\)"),
        (np.array([[0, 0, 9, 9], [0, 0, np.nan, 9]]), "proposal 1 is"),
        (np.array([[9, 0, 2, 9]]), "proposal 0 is"),
        ("grid", r"proposals are 'grid', expected numbers \(R, 4\)"),
    ],
)
def test_what_are_no_proposals_is_named(predictor, proposals, message):
    with pytest.raises(ValueError, match=message):
        predictor(PIXELS, proposals)
    with pytest.raises(ValueError, match="expected a list of 2, one for each image"):
        predictor([PIXELS, PIXELS], [proposals])
    with pytest.raises(
        FileNotFoundError, match=r"image https://example\.org/a\.jpg is an address, expected a local"
    ):
        predictor("https://example.org/a.jpg")
    with pytest.raises(TypeError, match="image is a int, expected a path"):
        predictor(3)
    with pytest.raises(TypeError, match=r"image is a set, .*several images are a list or tuple"):
        predictor({"a.jpg"})


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_scores_are_those_of_test_net(tmp_path, precision):
    """The same image, proposals and config: equal bits, in every precision."""
    root = tmp_path / "toybox"
    draw_toybox(root, train=1, test=1)
    path = root / "JPEGImages" / "000002.jpg"
    boxes = grid_boxes(np.asarray(Image.open(path)))[:50]
    save_proposals(root / "proposals.npz", ["000002"], [boxes], [Image.open(path).size[::-1]])
    keys = {
        "DEVICE": "cpu",
        "PRECISION": precision,
        "DATASETS.ROOT": root,
        "DATASETS.PROPOSALS": root / "proposals.npz",
        "DATASETS.WORKERS": 0,
    }
    words = [str(word) for pair in keys.items() for word in pair]
    run = make_run(tmp_path / "run", *words, classes=CLASSES)
    file, checkpoint, cfg = read_run(run)
    model = build_model(cfg)
    restore_model(model, checkpoint, file)
    cpu = torch.device("cpu")
    dataset = build_dataset(cfg, "test")
    (expected,) = predict_all(cfg, model.eval(), dataset, [0], Precision(cfg.precision, cpu))
    scores = detector.load(run, "cpu").scores(path, boxes)
    assert scores.boxes.equal(expected.boxes)
    assert scores.scores.equal(expected.scores)
    other = detector.load(run, "cpu", overrides={"PRECISION": "float32"}).scores(path, boxes)
    assert scores.scores.equal(other.scores) == (precision != "bf16")


def test_tf32_is_as_configured_and_then_as_it_was(predictor, monkeypatch):
    seen = []
    backends = torch.backends.cuda.matmul, torch.backends.cudnn
    forward = predictor.model.forward

    def look(*inputs):
        seen.append([backend.allow_tf32 for backend in backends])
        return forward(*inputs)

    monkeypatch.setattr(predictor.model, "forward", look)
    before = [backend.allow_tf32 for backend in backends]
    try:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = True, True
        predictor(PIXELS)
        monkeypatch.setattr(predictor, "precision", Precision("tf32", predictor.device))
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = False, True
        predictor(PIXELS)
        assert [backend.allow_tf32 for backend in backends] == [False, True]
    finally:
        for backend, value in zip(backends, before, strict=True):
            backend.allow_tf32 = value
    assert seen[0] == [False, False]
    assert seen[-1] == [True, True]

"""Pictures that are read in parts, and what is done with them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from random_run import make_run, make_student

import detector
from detector.commands.predict import predict_files
from detector.config import load_cfg
from detector.data.build import build_dataset
from detector.data.images import read_image, read_image_size
from detector.data.large_images import LargeImage, open_image_file
from detector.data.proposals.search import search
from detector.data.proposals.tiled import TiledSearch
from detector.data.tiles import Tiling, cut_view
from detector.utils.errors import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (37, 50, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pictures here have more pixels than Pillow reads by default."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50_000)
    monkeypatch.setattr("detector.data.large_images._BAND", 64)


def expect_parts(image: LargeImage, expected: torch.Tensor) -> None:
    assert isinstance(image, LargeImage)
    assert image.shape == expected.shape
    for x1, y1, x2, y2 in ((0, 0, 400, 296), (10, 20, 11, 21), (120, 0, 250, 140), (399, 200, 400, 296)):
        assert image[:, y1:y2, x1:x2].equal(expected[:, y1:y2, x1:x2])
    reduced = image.reduced(37)
    assert reduced.shape == (3, 37, 50)
    assert reduced.equal(expected[:, ::8, ::8])  # of squares of one color
    assert image.reduced(50).shape == (3, 60, 80)  # by 5: the last row has one line of pixels


@pytest.mark.parametrize(
    ("mode", "suffix"), [("RGB", "png"), ("L", "png"), ("LA", "png"), ("P", "png"), ("RGB", "tif")]
)
def test_a_picture_that_is_decoded_as_a_whole_is_cut(
    mode: str, suffix: str, tmp_path: Path, limit: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detector.data.large_images.tiff_parts", lambda path: None)  # without tifffile
    picture = Image.fromarray(PIXELS).convert(mode)
    picture.save(path := tmp_path / f"a.{suffix}")
    expected = torch.from_numpy(np.array(picture.convert("RGB"))).permute(2, 0, 1)
    image = open_image_file(path, apply_orientation=False)
    assert isinstance(image, LargeImage)
    assert image[:, 3:50, 7:300].equal(expected[:, 3:50, 7:300])
    with pytest.raises(DataError, match="exceeds limit"):
        read_image(path)
    if mode == "RGB":
        expect_parts(image, expected)


@pytest.mark.parametrize(
    "options",
    [
        {"tile": (64, 32), "compression": "zlib"},
        {"rowsperstrip": 64},
        {"rowsperstrip": 32, "compression": "zlib", "predictor": True},
        {"tile": (64, 64), "photometric": "minisblack"},
    ],
    ids=str,
)
def test_tiles_and_strips_of_tiff_files_are_those_of_the_whole(
    options: dict, tmp_path: Path, limit: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tifffile = pytest.importorskip("tifffile")
    monkeypatch.setattr("detector.data.tiff_parts._CACHED", 20_000)  # some parts are decoded again
    monkeypatch.setattr("detector.data.large_images.decoded_image", None)
    pixels = PIXELS[:, :, 0] if options.get("photometric") else PIXELS
    tifffile.imwrite(tmp_path / "a.tif", pixels, **{"photometric": "rgb", **options})
    expected = torch.from_numpy(pixels[:, :, None] if pixels.ndim == 2 else pixels)
    image = open_image_file(tmp_path / "a.tif", apply_orientation=True)
    expect_parts(image, expected.permute(2, 0, 1).expand(3, -1, -1))


def test_damage_in_a_part_of_a_tiff_file_is_named(tmp_path: Path, limit: None) -> None:
    tifffile = pytest.importorskip("tifffile")
    tifffile.imwrite(tmp_path / "a.tif", PIXELS, photometric="rgb", tile=(64, 64), compression="zlib")
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        start = file.pages[0].dataoffsets[0]
    content = bytearray((tmp_path / "a.tif").read_bytes())
    content[start : start + 20] = bytes(20)
    (tmp_path / "a.tif").write_bytes(content)
    image = open_image_file(tmp_path / "a.tif", apply_orientation=True)
    with pytest.raises(DataError, match=r"a\.tif cannot be read"):
        image[:, :10, :10]


def test_too_little_memory_is_an_error_that_says_what_helps(
    tmp_path: Path, limit: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    monkeypatch.setattr("detector.data.large_images.available_memory", lambda: 1000)
    with pytest.raises(DataError, match=r"a\.png needs 0\.0 GB .* TIFF file in tiles"):
        open_image_file(tmp_path / "a.png", apply_orientation=True)


def test_proposals_and_views_are_those_of_the_picture_in_memory(tmp_path: Path, limit: None) -> None:
    def find(image: np.ndarray) -> np.ndarray:
        return np.array([[1, 2, image.shape[1] - 4, image.shape[0] - 3]], np.float32)

    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    tiling = Tiling(100)
    image, whole = open_image_file(tmp_path / "a.png", apply_orientation=True), torch.from_numpy(PIXELS)
    tiled = TiledSearch(find, tiling)
    name, found = search(("a", tmp_path / "a.png"), tiled, True)
    assert name == "a"
    assert found[0] == (296, 400)
    expected = tiled(PIXELS)
    np.testing.assert_allclose(found[1][:-1], expected[:-1])
    assert np.abs(found[1][-1] - expected[-1]).max() < 4  # in the reduced picture
    tiles = tiling.boxes(296, 400)
    for row in range(len(tiles)):
        view, other = (cut_view(each, tiles, row, tiling).float() for each in (image, whole.permute(2, 0, 1)))
        assert view.shape == other.shape
        assert (view - other).abs().mean() < (1 if row < len(tiles) - 1 else 25)


@pytest.mark.parametrize("student", [False, True])
def test_a_large_file_is_predicted_like_its_pixels(student: bool, tmp_path: Path, limit: None) -> None:
    run = make_run(tmp_path / "run", "INPUT.TILE", 160)
    if student:
        make_student(run)
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    predictor = detector.load(run, score_threshold=None)
    found, expected = predictor(tmp_path / "a.png"), predictor(PIXELS)
    # Those of tiles; the reduced picture differs by how it is reduced.
    same = (found.boxes[:, None] - expected.boxes).abs().amax(dim=2).amin(dim=1) < 1
    assert len(found) > 10
    assert same.float().mean() > 0.6
    with pytest.raises(DataError, match="exceeds limit"):
        detector.load(run, overrides={"INPUT.TILE": 0})(tmp_path / "a.png")


def test_a_large_file_is_drawn_on_a_reduced_copy(
    tmp_path: Path, limit: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detector.commands.predict._LARGEST_SIDE", 148)
    run = make_run(tmp_path / "run", "INPUT.TILE", 160)
    (tmp_path / "new").mkdir()
    for name in ("a", "b"):
        Image.fromarray(PIXELS).save(tmp_path / "new" / f"{name}.png")
    predict_files(
        [tmp_path / "new"], run, tmp_path / "out", formats=["pictures", "coco"], score_threshold=0.0
    )
    drawn = read_image_size(tmp_path / "out" / "pictures" / "a.jpg")
    assert drawn == (6 * 74, 6 * 100)  # a quarter of the picture, and enlarged to be legible
    content = json.loads((tmp_path / "out" / "detections.json").read_text())
    assert [(each["width"], each["height"]) for each in content["images"]] == [(400, 296)] * 2
    assert max(box["bbox"][0] + box["bbox"][2] for box in content["annotations"]) > 300


def test_a_data_set_of_large_pictures_needs_tiles(tmp_path: Path, limit: None) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    for split in ("train", "val"):
        (tmp_path / f"{split}.csv").write_text("file,labels\na.png,cat\n")
    words = ["DATASETS.FORMAT", "image_labels", "DATASETS.ROOT", str(tmp_path), "DATASETS.CLASSES", "auto"]
    words += ["DATASETS.TRAIN_SPLIT", "train"]
    config = Path(__file__).parents[2] / "configs" / "toybox_pcl.yaml"
    with pytest.raises(DataError, match=r"a\.png has 400 x 296 pixels, .*set INPUT\.TILE"):
        build_dataset(load_cfg(config, words), "train")
    assert len(build_dataset(load_cfg(config, [*words, "INPUT.TILE", 160]), "train")) == 1

"""Trained weights by name."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from random_run import make_run

import detector
from detector.commands.main import main
from detector.data.toybox import CLASSES
from detector.inference import zoo
from detector.inference.thresholds import find_thresholds
from detector.utils.errors import DataError
from detector.utils.files import file_digest

IMAGE = np.zeros((48, 80, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "demo") / "model_final.pt"


@pytest.fixture
def cache(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a zoo of one name."""
    names = detector.load(weights, "cpu").class_names
    thresholds = {name: 0.2 + label / 10 for label, name in enumerate(names)}
    known = zoo.Weights(file_digest(weights), "detector train toybox_pcl", thresholds)
    monkeypatch.setattr(zoo, "ZOO", {"toybox_demo": known})
    monkeypatch.setenv(zoo.CACHE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def test_a_name_is_the_file_in_the_cache(weights: Path, cache: Path) -> None:
    shutil.copy(weights, cache / "toybox_demo.pt")
    options = {"device": "cpu", "score_threshold": None}
    found, expected = (detector.load(each, **options)(IMAGE) for each in ("toybox_demo", weights))
    assert len(found) > 0
    assert found == expected


def test_boxes_are_shown_above_the_thresholds_of_the_release(
    weights: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(shutil.copy(weights, cache / "toybox_demo.pt"))
    with caplog.at_level("INFO", "detector"):
        names = detector.load("toybox_demo", "cpu").class_names
    values = [0.2 + label / 10 for label in range(len(names))]
    assert find_thresholds(path, names).tolist() == pytest.approx(values)
    assert f"{names[1]} 0.30" in caplog.text
    assert "docs/model_zoo.md" in caplog.text
    elsewhere = shutil.copy(weights, cache.parent / "toybox_demo.pt")
    assert set(find_thresholds(Path(elsewhere), names).tolist()) == {torch.tensor(0.3).item()}


def test_all_names_have_a_checksum_and_thresholds() -> None:
    for known in zoo.ZOO.values():
        assert re.fullmatch("[0-9a-f]{64}", known.sha256)
        assert tuple(known.thresholds) == CLASSES
        assert all(0 < value < 1 for value in known.thresholds.values())
        assert known.recipe.startswith("detector train ")


def test_a_missing_file_is_an_error_that_says_where_to_put_it(cache: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        detector.load("toybox_demo", "cpu")
    for part in (str(cache), "toybox_demo.pt is attached", "DETECTOR_CACHE", "detector train toybox_pcl"):
        assert part in str(error.value)


def test_another_file_of_that_name_is_an_error(weights: Path, cache: Path) -> None:
    (cache / "toybox_demo.pt").write_bytes(weights.read_bytes()[:-1])
    found, expected = file_digest(cache / "toybox_demo.pt"), file_digest(weights)
    with pytest.raises(
        DataError, match=f"toybox_demo.pt has the SHA-256 {found}, expected {expected}: it is"
    ):
        detector.load("toybox_demo", "cpu")


def test_a_path_of_that_name_comes_first(weights: Path, cache: Path) -> None:
    shutil.copy(weights, cache.parent / "toybox_demo")
    assert zoo.find_weights("toybox_demo") == Path("toybox_demo")
    assert zoo.find_weights(weights) == weights


def test_the_cache_is_where_caches_of_the_user_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(zoo.CACHE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert zoo.cache_folder() == tmp_path / "detector"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert zoo.cache_folder() == tmp_path / "home/.cache/detector"


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "toybox_demo", "a.png", "--output", "found"],
        ["test", "toybox_pcl", "--weights", "toybox_demo"],
        ["self-train", "toybox_pcl", "--weights", "toybox_demo"],
    ],
)
def test_commands_take_a_name(words: list[str], cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(IMAGE).save("a.png")
    assert main(words) == 2
    assert "the weights toybox_demo are not in" in capsys.readouterr().err

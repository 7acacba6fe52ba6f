"""How long a training will take is known before it begins, and knowing it changes nothing."""

import time

import pytest
import torch
from tiny_training import CONFIG, tiny_words

from detector.commands import forecast as module
from detector.commands.forecast import announce, forecast
from detector.config import load_cfg

ALL = {"propose": 0, "train": 0, "test": 0, "self-train": 0}


@pytest.fixture
def cfg(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 0.0)
    return load_cfg(CONFIG, tiny_words(tmp_path))


def test_each_stage_is_timed_and_nothing_is_written(cfg, tmp_path, capsys) -> None:
    before = sorted(tmp_path.rglob("*"))
    stages = {**dict.fromkeys(["propose", "train", "test", "train seed 1"], 0), "self-train": 0}
    seconds = announce(cfg, stages)
    assert set(seconds) == set(stages)
    assert all(0 < spent < 60 for spent in seconds.values())
    assert sorted(tmp_path.rglob("*")) == before
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [*(name.split()[0] for name in stages), "in"]
    assert max(map(len, lines)) <= 80


def test_what_cannot_be_timed_is_left_to_the_stage(cfg, tmp_path, capsys) -> None:
    for path in (tmp_path / "toybox" / "JPEGImages").iterdir():
        path.write_bytes(path.read_bytes()[:900])
    assert announce(cfg, ALL) == {}
    assert "could not be timed" in capsys.readouterr().out


def test_steps_images_and_stages_that_are_left_count(cfg, monkeypatch) -> None:
    monkeypatch.setattr(module._Trial, "weak_step", lambda *_: 10.0)
    monkeypatch.setattr(module._Trial, "weak_image", lambda *_: 100.0)
    monkeypatch.setattr(module._Trial, "student", lambda _: (1000.0, 10000.0))
    found = forecast(cfg, {"train": 1, "test": 0, "train seed 1": 0, "self-train": 1}, num_weights=2)
    images = 4 + 2  # all have boxes: those to train on are tested, too
    assert found["train"] == pytest.approx(1.05 * 1 * 10, abs=5)  # of the two steps one is made
    assert found["train seed 1"] == pytest.approx(1.05 * 2 * 10, abs=5)
    assert found["test"] == pytest.approx(images * 100, abs=5)
    assert found["self-train"] == pytest.approx(2 * 4 * 100 + 1.05 * 1000 + images * 10000, abs=15)
    assert set(forecast(cfg, {"propose": 0})) == {"propose"}


def test_reading_hides_behind_computing_where_there_are_cores(cfg, monkeypatch) -> None:
    trial = module._Trial(cfg, torch.device("cuda"), None, None, 0.0)
    monkeypatch.setattr(module, "usable_cores", lambda: 4)
    assert trial._together(2.0, 1.0) == 3.0  # the cfg has no workers
    object.__setattr__(cfg.datasets, "workers", 2)
    assert trial._together(2.0, 1.0) == 2.0
    assert trial._together(2.0, 8.0) == 4.0
    trial.device = torch.device("cpu")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert trial._together(2.0, 1.0) == 2.25


def test_the_timer_does_not_count_what_is_before_its_items() -> None:
    def items():
        for _ in range(2):
            time.sleep(0.01)
            yield 1

    timed = module._Timed(items())
    time.sleep(0.05)
    assert list(timed) == [1, 1]
    assert 0.02 <= timed.seconds < 0.05

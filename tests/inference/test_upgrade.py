"""Run folders of 0.1.0 load, and detect what they did.

run_0_1_0.json has what that version wrote: the config of a small weak detector and of its Faster R-CNN, the
names, types and shapes of their weights, and the first detections in `picture()` with the weights below.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import detector

OLD = json.loads(Path(__file__).with_name("run_0_1_0.json").read_text())


def weights(described: dict[str, list]) -> dict[str, torch.Tensor]:
    """Weights that no random generator has to repeat."""
    state = {}
    for number, (name, (kind, shape)) in enumerate(described.items()):
        count = math.prod(shape)
        values = torch.sin(torch.arange(count, dtype=torch.float64) * (0.7 + 0.01 * number))
        if kind == "torch.int64":  # batches that a batch norm has seen
            values = torch.ones(count)
        elif name.endswith("running_var"):
            values = 1 + 0.5 * values
        elif len(shape) > 1:
            values = values * math.sqrt(2 / (count / shape[0]))
        state[name] = values.reshape(shape).to(getattr(torch, kind.removeprefix("torch.")))
    return state


def picture() -> np.ndarray:
    y, x = np.mgrid[0:48, 0:64]
    waves = np.stack([np.sin(x / 7), np.sin(y / 5), np.sin((x + y) / 9)], axis=-1)
    return (127 + 120 * waves).astype(np.uint8)


@pytest.mark.parametrize("name", OLD)
def test_a_run_of_0_1_0_detects_the_same(name: str, tmp_path: Path) -> None:
    old = OLD[name]
    (tmp_path / "config.yaml").write_text(old["config"])
    checkpoint = {"model": weights(old["weights"]), "config": old["config"], "version": old["version"]}
    torch.save(checkpoint | old["other"], tmp_path / "model_final.pt")
    found = detector.load(tmp_path, "cpu", score_threshold=0.0)(picture())
    assert len(found) == old["count"]
    torch.testing.assert_close(found.scores[:5], torch.tensor(old["scores"]), rtol=0, atol=1e-4)
    torch.testing.assert_close(found.boxes[:5], torch.tensor(old["boxes"]), rtol=0, atol=0.05)
    assert found.labels[:5].tolist() == old["labels"]

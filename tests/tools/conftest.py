"""What the tests of the commands share: a small Toybox with proposals, and the commands as modules."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from detector.commands.main import main
from detector.data.datasets.voc import VOCDataset
from detector.data.proposals import save_proposals
from detector.data.toybox import CLASSES, draw_toybox

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def toybox(tmp_path_factory):
    """A folder with 8 training and 4 test images, and proposals.npz: the true boxes and some at random."""
    root = tmp_path_factory.mktemp("data") / "toybox"
    draw_toybox(root, train=8, test=4)
    generator = np.random.default_rng(0)
    ids, boxes, sizes = [], [], []
    for split in ("trainval", "test"):
        dataset = VOCDataset(root, split, CLASSES)
        for i, image_id in enumerate(dataset.image_ids):
            height, width = dataset.image_size(i)
            corners = generator.uniform(size=(30, 2, 2)) * (width, height)  # (30, corner, x and y)
            random = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)  # (30, 4)
            ids.append(image_id)
            boxes.append(np.concatenate([dataset.annotation(i).boxes.numpy(), random]))
            sizes.append((height, width))
    save_proposals(root / "proposals.npz", ids, boxes, sizes)
    return root


@pytest.fixture
def overrides(toybox, tmp_path):
    """Keys that make a config of configs/toybox_*.yaml a run of four quick steps."""
    values = {
        "OUTPUT_DIR": tmp_path / "run",
        "DEVICE": "cpu",
        "DATASETS.ROOT": toybox,
        "DATASETS.PROPOSALS": toybox / "proposals.npz",
        "DATASETS.WORKERS": 0,
        "INPUT.TRAIN_SIZES": "(64, 80)",
        "INPUT.TEST_SIZES": "(64,)",
        "MODEL.BOX_FEATURES.WIDTHS": "(32, 32)",
        "MODEL.BOX_FEATURES.DROPOUT": 0.5,
        "SOLVER.IMAGES_PER_BATCH": 1,
        "SOLVER.ACCUMULATE": 2,
        "SOLVER.MAX_ITER": 4,
        "SOLVER.CHECKPOINT_PERIOD": 2,
        "SOLVER.LOG_PERIOD": 2,
        "SOLVER.PICTURE_PERIOD": 0,  # pictures take half of the time
        "TEST.PICTURES": 0,
    }
    return [str(word) for pair in values.items() for word in pair]


@pytest.fixture
def command(process_as_before, not_announced):
    """A command of `detector` as a function of its arguments that returns the exit status."""
    return lambda name: lambda words: main([name, *map(str, words)])


@pytest.fixture
def load_tool(process_as_before):
    """Load a script of tools/ as a module."""

    def load(name):
        spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load

"""tools/self_train.py under torchrun: two processes do what one does that accumulates two batches."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch

from detector.api.self_training import student_cfg, train_detector
from detector.config import load_cfg

ROOT = Path(__file__).parents[2]
CONFIG = str(ROOT / "configs" / "toybox_pcl.yaml")
KEYS = (
    "SELF_TRAIN.BACKBONE mobilenet_v3 SELF_TRAIN.SIZES (48,) SELF_TRAIN.MAX_ITER 2 "
    "SELF_TRAIN.IMAGES_PER_BATCH 2 SOLVER.MAX_ITER 1 TEST.PICTURES 0"
)


def test_two_processes_do_what_one_does(load_tool, overrides, tmp_path):
    overrides = [*overrides, *KEYS.split()]
    words, folder = ["--config-file", CONFIG, *overrides], tmp_path / "run" / "self_train"
    assert load_tool("train_net").main(words) == 0
    assert load_tool("self_train").main(words) == 0
    alone = folder.rename(tmp_path / "alone")

    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [*torchrun, str(ROOT / "tools" / "self_train.py"), *words]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("pseudo boxes: precision") == 1
    assert json.loads((folder / "metrics.json").read_text())["iteration"] == 2
    files = [path.relative_to(folder) for path in sorted((folder / "pseudo").rglob("*.*"))]
    assert len(files) > 8
    assert all((folder / file).read_bytes() == (alone / file).read_bytes() for file in files)

    again = tmp_path / "accumulated"
    shutil.copytree(folder / "pseudo", again / "pseudo")
    cfg = student_cfg(load_cfg(CONFIG, overrides))
    cfg.defrost()
    cfg.SOLVER.IMAGES_PER_BATCH, cfg.SOLVER.ACCUMULATE = 1, 2
    train_detector(cfg, again, torch.device("cpu"))
    theirs, ours = (
        torch.load(path / "model_final.pt", weights_only=True)["model"] for path in (folder, again)
    )
    for name, value in theirs.items():
        if "running" not in name and "num_batches" not in name:  # batch norm's are those of one process
            torch.testing.assert_close(value, ours[name], rtol=1e-4, atol=1e-5, msg=name)

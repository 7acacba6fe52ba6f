"""tools/test_net.py under torchrun: the figures of two processes are those of one."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFIG = str(ROOT / "configs" / "toybox_pcl.yaml")


def test_two_processes_measure_what_one_does(command, overrides, tmp_path):
    words = ["--config-file", CONFIG, *overrides, "TEST.PICTURES", "1"]
    assert command("train")([*words, "SOLVER.MAX_ITER", "1"]) == 0
    assert command("test")(words) == 0
    metrics = tmp_path / "run" / "metrics.json"
    alone = json.loads(metrics.read_text())
    metrics.unlink()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [*torchrun, str(ROOT / "tools" / "test_net.py"), *words]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert json.loads(metrics.read_text()) == alone
    assert result.stdout.count("AP in percent") == 1
    assert not (tmp_path / "run" / "results").exists()

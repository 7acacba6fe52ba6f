"""`detector test` in two processes: the figures are those of one."""

import json
from pathlib import Path

from distributed_cases import run_command_in_two_processes

ROOT = Path(__file__).parents[2]
CONFIG = str(ROOT / "configs" / "toybox_pcl.yaml")


def test_two_processes_measure_what_one_does(command, overrides, tmp_path):
    words = ["--config-file", CONFIG, *overrides, "TEST.PICTURES", "1"]
    assert command("train")([*words, "SOLVER.MAX_ITER", "1"]) == 0
    assert command("test")(words) == 0
    metrics = tmp_path / "run" / "metrics.json"
    alone = json.loads(metrics.read_text())
    metrics.unlink()
    statuses, printed, errors = run_command_in_two_processes(["test", *words])
    assert statuses == [0, 0], errors
    assert json.loads(metrics.read_text()) == alone
    assert printed.count("AP in percent") == 1
    assert not (tmp_path / "run" / "results").exists()

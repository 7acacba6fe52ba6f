"""tools/train_net.py, killed: it resumes bitwise, alone or restarted by torchrun."""

import os
import random
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from distributed_cases import CONTEXT, torchrun_train_net, train_net

from detector.engine.checkpoint import load_checkpoint
from detector.engine.resuming import list_checkpoints

ROOT = Path(__file__).parents[2]
CONFIG = str(ROOT / "configs" / "toybox_pcl.yaml")


@pytest.fixture
def words(overrides, tmp_path):
    """Arguments for a run in a folder of its own, of so many steps with a checkpoint every second one."""

    def make(folder, steps, **changes):
        keys = {"OUTPUT_DIR": tmp_path / folder, "SOLVER.MAX_ITER": steps, "SOLVER.LOG_PERIOD": 1, **changes}
        return ["--config-file", CONFIG, *overrides, *(str(word) for pair in keys.items() for word in pair)]

    return make


def run_alone(words):
    process = CONTEXT.Process(target=train_net, args=(words,))
    process.start()
    process.join(120)
    assert process.exitcode == 0


def wait_for(condition, process, patience=120):
    end = time.monotonic() + patience
    while not condition():
        assert process.is_alive()
        assert time.monotonic() < end
        time.sleep(0.02)


def final(folder):
    return load_checkpoint(folder / "model_final.pt")["model"]


def test_a_run_that_is_killed_at_random_times_resumes_bitwise(words, tmp_path):
    run_alone(words("whole", 16))
    draw, folder, kept = random.Random(0), tmp_path / "broken", []
    for _ in range(3):
        process = CONTEXT.Process(target=train_net, args=([*words("broken", 16), "--resume"],))
        process.start()
        before = len(list_checkpoints(folder)) and list_checkpoints(folder)[-1]
        wait_for(lambda before=before: list_checkpoints(folder)[-1:] not in ([], [before]), process)
        process.join(draw.uniform(0, 0.15))  # of a step or a write
        process.kill()
        process.join()
        kept.append(list_checkpoints(folder)[-1].name)
    run_alone([*words("broken", 16), "--resume"])
    went_on = re.findall(r"resuming from \S*?(\d+\.pt)", (folder / "log.txt").read_text())
    assert went_on == kept
    whole, broken = final(tmp_path / "whole"), final(folder)
    assert all(broken[name].equal(value) for name, value in whole.items())
    assert not list((folder / "checkpoints").glob(".*"))


def test_torchrun_starts_again_from_the_newest_checkpoint(words, tmp_path):
    """Two processes, one of them killed: the same as one process that accumulates two batches."""
    run_alone(words("alone", 8))
    several, folder = words("several", 8, **{"SOLVER.ACCUMULATE": 1}), tmp_path / "several"
    said = tmp_path / "said.txt"
    process = CONTEXT.Process(target=torchrun_train_net, args=(several, tmp_path, said))
    process.start()
    wait_for(lambda: list_checkpoints(folder), process)
    os.kill(int((tmp_path / "rank1").read_text()), signal.SIGKILL)
    process.join(120)
    assert process.exitcode == 0, said.read_text()
    assert "resuming from" in (folder / "log.txt").read_text()
    alone, several = final(tmp_path / "alone"), final(folder)
    for name, value in alone.items():
        torch.testing.assert_close(several[name], value, msg=name)


@pytest.mark.cuda
def test_on_a_gpu_a_resumed_run_equals_an_uninterrupted_one_bitwise(words, tmp_path):
    gpu = {"DEVICE": "cuda"}
    run_alone(words("whole", 6, **gpu))
    checkpoint = next(p for p in list_checkpoints(tmp_path / "whole") if p.stem == "000004")
    (tmp_path / "broken" / "checkpoints").mkdir(parents=True)
    shutil.copy(checkpoint, tmp_path / "broken" / "checkpoints")
    run_alone([*words("broken", 6, **gpu), "--resume"])
    whole, broken = final(tmp_path / "whole"), final(tmp_path / "broken")
    assert all(broken[name].equal(value) for name, value in whole.items())

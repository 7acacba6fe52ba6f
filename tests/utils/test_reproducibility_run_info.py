"""detector.utils.reproducibility: what a run was made with."""

import json
import subprocess
from pathlib import Path

import torch

import detector
from detector.utils.reproducibility import git_commit, run_info


def test_it_is_json_and_says_what_is_needed_to_repeat_the_run():
    info = json.loads(json.dumps(run_info(torch.device("cpu"), seed=7)))
    assert info["seed"] == 7
    assert info["packages"]["torch"] == torch.__version__
    assert {"command", "date", "commit", "python", "device", "device_name", "cpus", "threads"} <= info.keys()


def test_git_commit(tmp_path):
    def git(*words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(
            ["git", *identity, *words], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    file, installed = tmp_path / "a", tmp_path / ".venv" / "b"
    assert git_commit(file) is None
    git("init")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-m", "one")
    assert git_commit(file) == git("rev-parse", "HEAD")
    (tmp_path / "a").write_text("2")
    assert git_commit(file) == git("rev-parse", "HEAD") + "-dirty"
    installed.parent.mkdir()
    installed.write_text("2")
    assert git_commit(installed) is None  # a wheel in somebody's repository


def test_the_commit_is_that_of_the_package_whatever_started_it(monkeypatch):
    expected = run_info(torch.device("cpu"), seed=0)["commit"]
    monkeypatch.setattr("sys.argv", ["/bin/sh"])
    assert run_info(torch.device("cpu"), seed=0)["commit"] == expected == git_commit(Path(detector.__file__))

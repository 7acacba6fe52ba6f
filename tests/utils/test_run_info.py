"""detector.utils.run_info: what a run was made with."""

import json
import subprocess

import torch

from detector.utils.run_info import git_commit, run_info


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

    assert git_commit(tmp_path) is None
    git("init")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-m", "one")
    assert git_commit(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "a").write_text("2")
    assert git_commit(tmp_path) == git("rev-parse", "HEAD") + "-dirty"

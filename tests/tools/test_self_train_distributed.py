"""`detector self-train` in two processes: they do what one does that accumulates two batches."""

import json
import shutil
from pathlib import Path

import torch
from distributed_cases import run_command_in_two_processes

from detector.config import load_cfg, with_values
from detector.self_training.self_train import student_cfg
from detector.self_training.student import StudentRun, train_detector

ROOT = Path(__file__).parents[2]
CONFIG = str(ROOT / "configs" / "toybox_pcl.yaml")
KEYS = (
    "SELF_TRAIN.BACKBONE small SELF_TRAIN.CHANNELS 32 SELF_TRAIN.SIZES (48,) SELF_TRAIN.MAX_ITER 2 "
    "SELF_TRAIN.IMAGES_PER_BATCH 8 SOLVER.MAX_ITER 1 SOLVER.CHECKPOINT_PERIOD 1 TEST.PICTURES 0 "
    "DATASETS.BOXED_SHARE 0.5 SOLVER.BOXED_SHARE 0 SELF_TRAIN.PSEUDO_WEIGHT 0.5 SELF_TRAIN.COPY_PASTE 0.5 "
    "SELF_TRAIN.MOSAIC 0.5 "
    "SOLVER.OPTIMIZER sgd"  # AdamW scales gradients up that are nothing but rounding errors
)


def test_two_processes_do_what_one_does_and_resume(command, overrides, tmp_path):
    overrides = [*overrides, *KEYS.split()]
    words, folder = ["--config-file", CONFIG, *overrides], tmp_path / "run" / "self_train"
    assert command("train")(words) == 0
    assert command("self-train")(words) == 0
    alone = folder.rename(tmp_path / "alone")

    statuses, printed, errors = run_command_in_two_processes(["self-train", *words])
    assert statuses == [0, 0], errors
    assert printed.count("pseudo boxes: precision") == 1
    assert json.loads((folder / "metrics.json").read_text())["iteration"] == 2
    files = [path.relative_to(folder) for path in sorted((folder / "pseudo").rglob("*.*"))]
    assert len(files) > 8
    assert all((folder / file).read_bytes() == (alone / file).read_bytes() for file in files)

    again = tmp_path / "accumulated"
    shutil.copytree(folder / "pseudo", again / "pseudo")
    values = {"SOLVER.IMAGES_PER_BATCH": 4, "SOLVER.ACCUMULATE": 2}
    cfg = with_values(student_cfg(load_cfg(CONFIG, overrides)), values)
    train_detector(StudentRun(cfg, again, torch.device("cpu")), tmp_path / "run" / "model_final.pt")
    theirs, ours = (
        torch.load(path / "model_final.pt", weights_only=True)["model"] for path in (folder, again)
    )
    for name, value in theirs.items():
        torch.testing.assert_close(value, ours[name], rtol=1e-5, atol=1e-6, msg=name)
    for file in ("model_final.pt", "checkpoints/000002.pt", "metrics.json"):  # as if stopped in the last step
        (folder / file).unlink()
    statuses, _, errors = run_command_in_two_processes(["self-train", *words, "--resume"])
    assert statuses == [0, 0], errors
    resumed = torch.load(folder / "model_final.pt", weights_only=True)["model"]
    # DDP sums the first step after a start in another order than later ones.
    for name, value in theirs.items():
        torch.testing.assert_close(resumed[name], value, rtol=1e-6, atol=1e-7, msg=name)


def test_two_processes_share_the_teachers_steps_and_resume(command, overrides, tmp_path):
    more = ["SELF_TRAIN.TEACHER_STEPS", "4", "SELF_TRAIN.IMAGES_PER_BATCH", "2"]
    words = ["--config-file", CONFIG, *overrides, *KEYS.split(), *more]
    folder = tmp_path / "run" / "self_train"
    assert command("train")(words) == 0
    found = []
    for options in ([], ["--resume"]):
        statuses, _, errors = run_command_in_two_processes(["self-train", *words, *options])
        assert statuses == [0, 0], errors
        found.append(torch.load(folder / "model_final.pt", weights_only=True)["model"])
        for file in ("model_final.pt", "checkpoints/000004.pt", "metrics.json"):  # as if stopped before
            (folder / file).unlink()
    whole, resumed = found
    for name, value in whole.items():  # DDP sums the first step after a start in another order
        torch.testing.assert_close(resumed[name], value, rtol=1e-5, atol=1e-6, msg=name)

"""tools/train_net.py: from a config to a run folder."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from distributed_cases import CONTEXT, command_until_ctrl_c

from detector.config import load_cfg
from detector.data.datasets.voc import VOCDataset
from detector.data.formats import ReviewImage, encode_coco
from detector.data.labeled_box import LabeledBox
from detector.data.proposals import load_proposals, save_proposals
from detector.data.toybox import CLASSES

ROOT = Path(__file__).parents[2]
CONFIG = str(ROOT / "configs" / "toybox_pcl.yaml")


@pytest.fixture
def train_net(command, overrides):
    """Run the command in this process; returns its exit status."""
    main = command("train")
    return lambda *words: main(["--config-file", CONFIG, *overrides, *words])


def final_weights(folder):
    return torch.load(folder / "model_final.pt", weights_only=True)["model"]


def test_the_run_folder_says_what_ran(train_net, tmp_path, overrides, capsys):
    assert train_net() == 0
    folder = tmp_path / "run"
    assert {p.name for p in (folder / "checkpoints").iterdir()} == {"000002.pt", "000004.pt"}
    assert load_cfg(folder / "config.yaml") == load_cfg(CONFIG, overrides)
    assert json.loads((folder / "run.json").read_text())["seed"] == 0
    assert len(list(folder.glob("events.*"))) == 1
    for text in (capsys.readouterr().err, (folder / "log.txt").read_text()):
        assert "method      pcl, 3 refinement streams" in text
        assert "batch       2 images per step (1 at a time, 2 times)" in text
        assert "step 4/4  loss" in text
        assert f"weights in {folder / 'model_final.pt'}" in text


def test_images_of_both_splits_are_named(train_net, toybox, tmp_path, capsys):
    root = tmp_path / "toybox"
    shutil.copytree(toybox, root)
    splits = root / "ImageSets" / "Main"
    both = (splits / "trainval.txt").read_text().split()[:2]
    (splits / "test.txt").write_text(
        "\n".join([both[0], *(splits / "test.txt").read_text().split(), both[1]])
    )
    steps = "SOLVER.MAX_ITER", "1", "OUTPUT_DIR"
    assert train_net(*steps, str(tmp_path / "shared"), "DATASETS.ROOT", str(root)) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "too good" in line]
    assert line.startswith("warning: of toybox_test, 2 images are in toybox_trainval, too")
    assert all(f"JPEGImages/{name}." in line for name in both)
    assert train_net(*steps, str(tmp_path / "apart")) == 0
    assert train_net(*steps, str(tmp_path / "same"), "DATASETS.TEST_SPLIT", "trainval") == 0
    assert train_net(*steps, str(tmp_path / "none"), "DATASETS.TEST_SPLIT", "of_nobody") == 0
    assert "too good" not in capsys.readouterr().err


def test_pictures_change_no_bit_of_the_weights(train_net, tmp_path):
    for period in (0, 1):
        assert train_net("SOLVER.PICTURE_PERIOD", str(period), "OUTPUT_DIR", str(tmp_path / str(period))) == 0
    assert not (tmp_path / "0" / "snapshots").exists()
    assert len(list((tmp_path / "1" / "snapshots").iterdir())) == 4
    without, taken = (final_weights(tmp_path / name) for name in "01")
    assert all(without[name].equal(taken[name]) for name in without)


@pytest.mark.parametrize(
    "keys",
    [
        "MODEL.METHOD pcl",
        "MODEL.METHOD oicr MODEL.REGRESSION.ENABLED True",
        "MODEL.METHOD mist MODEL.DROP_BLOCK.ENABLED True",
        "PRECISION bf16 CHANNELS_LAST True MODEL.BACKBONE.RECOMPUTE True MODEL.BOX_FEATURES.CHUNK 20 "
        "SOLVER.SORT_WINDOW 3 INPUT.PAD_MULTIPLE 32",
    ],
)
def test_resuming_continues_to_the_same_bits(train_net, tmp_path, keys, capsys):
    folder = tmp_path / "run"
    assert train_net(*keys.split()) == 0
    whole = final_weights(folder)
    (folder / "model_final.pt").unlink()
    (folder / "checkpoints" / "000004.pt").unlink()
    # Other processes read the images: that must not matter either.
    assert train_net(*keys.split(), "DATASETS.WORKERS", "1", "--resume") == 0
    assert re.search(r"resuming from \S+, after step 2 of 4", capsys.readouterr().err)
    resumed = final_weights(folder)
    assert resumed.keys() == whole.keys()
    assert all(resumed[name].equal(value) for name, value in whole.items())


def test_fewer_steps_than_were_made_are_told(train_net, tmp_path, capsys):
    assert train_net("SOLVER.MAX_ITER", "2") == 0
    assert train_net("SOLVER.MAX_ITER", "1", "--resume") == 0
    assert "2 steps were made, more than SOLVER.MAX_ITER 1; the model of all" in capsys.readouterr().err


def test_seeds_decide(train_net, tmp_path):
    weights = []
    for seed in (1, 1, 2):
        assert train_net("SEED", str(seed), "SOLVER.MAX_ITER", "1") == 0
        weights.append(final_weights(tmp_path / "run")["head.classes.weight"])
        shutil.rmtree(tmp_path / "run")
    assert weights[0].equal(weights[1])
    assert not weights[0].equal(weights[2])


def test_an_earlier_run_that_does_not_fit_is_refused(train_net, command, overrides, tmp_path, capsys):
    assert train_net("SOLVER.MAX_ITER", "1") == 0
    began = "this run began with another config: "
    # The same names in another order have the same shapes.
    classes = ["DATASETS.CLASSES", "['car','bird','fish','flower','house','robot']"]
    by_name = "class 1 is 'bird' there and 'car' here; class 2 is 'car' there and 'bird' here."
    for words, message in (
        ([], "holds an earlier run: add --resume (resume=True in Python)"),
        (["MODEL.METHOD", "oicr", "--resume"], f"{began}MODEL.METHOD: 'pcl' -> 'oicr'"),
        (["MODEL.BOX_FEATURES.WIDTHS", "(16,)", "--resume"], "another config: MODEL.BOX_FEATURES.WIDTHS: "),
        (
            ["SOLVER.ACCUMULATE", "3", "--resume"],
            "made with 2 batches per step, but 1 processes x 3 accumulated batches are 3; processes x "
            "SOLVER.ACCUMULATE must stay 2",
        ),
        ([*classes, "--resume"], by_name),
    ):
        assert train_net(*words) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("error: ")
        assert message in error
    assert command("test")(["--config-file", CONFIG, *overrides, *classes]) == 2
    error = capsys.readouterr().err
    assert by_name in error
    assert str(tmp_path / "run") in error
    assert not (tmp_path / "run" / "metrics.json").exists()
    assert train_net("SOLVER.MAX_ITER", "2", "--resume") == 0
    assert f"{began}SOLVER.MAX_ITER: 1 -> 2" in capsys.readouterr().err


def test_a_finished_run_that_is_resumed_keeps_its_file(train_net, tmp_path):
    """By its hash, self-training knows the detector that found its boxes."""
    final = tmp_path / "run" / "model_final.pt"
    assert train_net("SOLVER.MAX_ITER", "1") == 0
    before = final.read_bytes()
    assert train_net("SOLVER.MAX_ITER", "1", "--resume") == 0
    assert final.read_bytes() == before
    assert train_net("SOLVER.MAX_ITER", "2", "--resume") == 0
    assert torch.load(final, weights_only=True)["iteration"] == 2
    (tmp_path / "run" / "checkpoints" / "000002.pt").unlink()
    assert train_net("SOLVER.MAX_ITER", "1", "--resume") == 0
    assert torch.load(final, weights_only=True)["iteration"] == 1
    final.write_bytes(before[:-100])
    assert train_net("SOLVER.MAX_ITER", "1", "--resume") == 0
    assert torch.load(final, weights_only=True)["iteration"] == 1


def test_resuming_with_other_data_is_refused(train_net, toybox, tmp_path, capsys):
    """An image was added, an object corrected, or the proposals made anew, since the run began."""
    root = shutil.copytree(toybox, tmp_path / "toybox")
    points = tmp_path / "points.jsonl"
    listed = root / "ImageSets" / "Main" / "trainval.txt"
    before, added = listed.read_text(), (root / "ImageSets" / "Main" / "test.txt").read_text().split()[0]
    points.write_text(f'{{"file": "{before.split()[0]}", "counts": {{"car": 2}}}}')
    proposals = tmp_path / "changed.npz"
    shutil.copyfile(toybox / "proposals.npz", proposals)
    keys = ("DATASETS.ROOT", str(root), "DATASETS.HINTS", str(points), "DATASETS.PROPOSALS", str(proposals))
    assert train_net(*keys, "SOLVER.MAX_ITER", "1") == 0
    listed.write_text(f"{before}{added}\n")
    assert train_net(*keys, "--resume") == 2
    error = capsys.readouterr().err
    assert "run began with other data: images: 8 then, 9 now; tags: " in error
    assert "start a run with the new data in another OUTPUT_DIR" in error
    listed.write_text(before)
    points.write_text(points.read_text().replace(": 2}", ": 3}"))
    assert train_net(*keys, "--resume") == 2
    assert "other data: images with hints: 1 then, 1 now, not the same. Undo" in capsys.readouterr().err
    points.write_text(points.read_text().replace(": 3}", ": 2}"))
    found = load_proposals(proposals)
    save_proposals(proposals, list(found), [0.5 * boxes for boxes in found.values()], found.sizes.tolist())
    assert train_net(*keys, "--resume") == 2
    assert ": proposals: " in (error := capsys.readouterr().err)
    assert " now, not the same. Undo" in error
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    del run["data"]["proposals"]  # as an older version left it
    (tmp_path / "run" / "run.json").write_text(json.dumps(run))
    assert train_net(*keys, "--resume") == 0
    del run["data"]  # as a still older version left it
    (tmp_path / "run" / "run.json").write_text(json.dumps(run))
    assert train_net(*keys, "--resume") == 0


def test_reviewed_images_of_the_test_split_are_named_once(train_net, toybox, tmp_path, capsys):
    box, images = LabeledBox("car", (1.0, 2.0, 30.0, 40.0), reviewed=True), []
    for split in ("trainval", "test"):
        source = VOCDataset(toybox, split, CLASSES)
        images.append(ReviewImage(source.image_path(0).name, source.image_size(0), (box,)))
    (tmp_path / "reviewed.json").write_bytes(encode_coco(images, ["car"]))
    assert train_net("DATASETS.BOXED", str(tmp_path / "reviewed.json"), "SOLVER.MAX_ITER", "1") == 0
    assert capsys.readouterr().err.count("1 reviewed image is in toybox_test") == 1


def test_a_second_process_is_told_who_holds_the_folder(train_net, command, overrides, tmp_path, capsys):
    code = "import sys\nfrom detector.utils.folder_lock import folder_lock\n"
    code += "with folder_lock(sys.argv[1]):\n    print('held', flush=True)\n    sys.stdin.read()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert train_net("SOLVER.MAX_ITER", "1") == 0
    capsys.readouterr()
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        assert train_net("--resume") == 2
        assert command("test")(["--config-file", CONFIG, *overrides]) == 2
        holder.kill()
    errors = capsys.readouterr().err.splitlines()
    assert [f"is in use by process {holder.pid} on " in line for line in errors] == [True, True]
    assert not (tmp_path / "run" / "metrics.json").exists()


def test_what_would_be_ignored_is_said(train_net, capsys):
    assert train_net("MODEL.BACKBONE.FROZEN_STAGES", "1") == 2
    assert "MODEL.BACKBONE.FROZEN_STAGES is 1, expected 0" in capsys.readouterr().err
    assert train_net("SOLVER.MAX_ITER", "1", "SOLVER.WARMUP_ITERS", "9") == 0
    assert "SOLVER.WARMUP_ITERS is 9 and SOLVER.MAX_ITER 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["SOLVER.BASELR", "1"], "error: there is no key SOLVER.BASELR; the nearest are SOLVER.BASE_LR"),
        (["DATASETS.ROOT", "nowhere"], "error: nowhere is not a folder in VOC layout"),
        (["DATASETS.PROPOSALS", "nowhere.npz"], "nowhere.npz"),
    ],
)
def test_what_the_user_can_mend_is_one_line(train_net, capsys, words, message):
    assert train_net(*words) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if "error" in line.lower()]
    assert len(errors) == 1
    assert errors[0].startswith("error: ")
    assert message in errors[0]


@pytest.mark.parametrize(
    ("method", "keys"),
    [
        *((method, "SOLVER.BASE_LR 1e6") for method in ("wsddn", "oicr", "pcl", "mist")),
        ("pcl", "INPUT.STD (1e-30,1e-30,1e-30)"),
    ],
)
def test_training_that_diverges_names_step_and_images_and_what_to_try(
    train_net, tmp_path, method, keys, capsys
):
    words = ["MODEL.METHOD", method, *keys.split(), "SOLVER.CLIP_NORM", "0", "SOLVER.MAX_ITER", "30"]
    assert train_net(*words) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(
        r"^error: training has diverged: in step \d+ .*from the images 0000.*SOLVER.BASE_LR.*INPUT.STD", last
    )
    assert not (tmp_path / "run" / "model_final.pt").exists()


def test_ctrl_c_says_how_to_resume(overrides, tmp_path):
    """In a process of its own, stopped at work by the signal that Ctrl-C sends."""
    words = ["train", "--config-file", CONFIG, *overrides, "SOLVER.CHECKPOINT_PERIOD", "100000"]
    words += ["SOLVER.LOG_PERIOD", "1", "SOLVER.MAX_ITER", "100000"]
    said = tmp_path / "said.txt"
    # A daemon, so that a failing test does not wait for all steps.
    process = CONTEXT.Process(target=command_until_ctrl_c, args=(words, said), daemon=True)
    process.start()
    log, give_up = tmp_path / "run" / "log.txt", time.time() + 60
    while not (log.exists() and "step 2/" in log.read_text()) and process.is_alive():
        assert time.time() < give_up
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    text = said.read_text()
    assert process.exitcode == 130, text
    assert "the same command resumes from " in text
    assert "Traceback" not in text
    assert not (tmp_path / "run" / "model_final.pt").exists()
    (path,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert int(path.stem) >= 2
    assert path.name in text
    assert torch.load(path, weights_only=True)["iteration"] == int(path.stem)

"""detector.engine.resuming: the checkpoints of a run folder, and who may resume from them."""

import pytest
import torch
from train_cases import make, restore_newest

from detector.engine.checkpoint import save_checkpoint
from detector.engine.resuming import (
    check_batches,
    checkpoint_path,
    list_checkpoints,
    load_newest,
    remove_old_checkpoints,
    restore,
)
from detector.utils.errors import DataError
from detector.utils.files import temporary_beside


@pytest.fixture
def run_folder(tmp_path):
    """A run folder with checkpoints after 1, 2 and 3 steps, and a network with its optimizer."""
    net, optimizer = make()
    for iteration in (1, 2, 3):
        with torch.no_grad():
            net.head.weight.fill_(iteration)
        path = checkpoint_path(tmp_path, iteration)
        save_checkpoint(path, net, optimizer, iteration=iteration, train_seconds=0.0, config="A: 1")
    return tmp_path, net, optimizer


def flip_a_bit_of_the_weights(data):
    place = data.index(torch.full((2, 4), 3.0).numpy().tobytes())
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    "harm", [lambda data: data[:-1], lambda data: data[: len(data) // 2], flip_a_bit_of_the_weights]
)
def test_of_a_damaged_checkpoint_the_one_before_is_used_and_a_warning_says_so(run_folder, harm, caplog):
    folder, net, optimizer = run_folder
    newest = checkpoint_path(folder, 3)
    newest.write_bytes(harm(newest.read_bytes()))
    assert restore_newest(folder, net, optimizer).iteration == 2
    assert net.head.weight[0, 0] == 2
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(f"checkpoint {newest} is damaged or of another format: ")
    assert warning.endswith("; the one before it is used")


def test_of_a_checkpoint_that_is_not_finite_the_one_before_is_used(run_folder, caplog):
    folder, net, optimizer = run_folder
    newest = checkpoint_path(folder, 3)
    content = torch.load(newest, weights_only=True)
    content["model"]["head.bias"][0] = float("nan")
    torch.save(content, newest)
    assert restore_newest(folder, net, optimizer).iteration == 2
    assert f"{newest} cannot be used: model.head.bias is not finite" in caplog.text


@pytest.mark.parametrize(
    ("scaler", "message"),
    [
        ({"scale": 3.0}, " is damaged or of another format: 'growth_factor'"),
        ({"scale": "x"}, ": scaler.scale is 'x'"),
        ({"scale": -1.0}, ": scaler.scale is -1.0"),
    ],
)
def test_a_forged_loss_scaler_is_named(run_folder, scaler, message):
    folder, net, optimizer = run_folder
    path, checkpoint = load_newest(folder)
    checkpoint["scaler"] = scaler
    with pytest.raises(DataError, match=rf"000003\.pt{message}"):
        restore(checkpoint, path, net, optimizer, torch.amp.GradScaler("cpu"))


def test_only_damaged_checkpoints_are_no_reason_to_start_over(run_folder):
    folder, net, optimizer = run_folder
    for path in list_checkpoints(folder):
        path.write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"all checkpoints in .* are damaged or not finite; remove them to start over"
    ):
        restore_newest(folder, net, optimizer)


def test_old_checkpoints_go_and_what_was_left_aside_stays(run_folder):
    folder, *_ = run_folder
    temporary_beside(folder / "checkpoints" / "000002.pt").touch()  # of a write that was killed
    remove_old_checkpoints(folder, 2, keep=1)
    assert [path.name for path in sorted((folder / "checkpoints").iterdir())] == ["000002.pt", "000003.pt"]


def test_checkpoints_are_listed_oldest_first_and_by_number(tmp_path):
    assert list_checkpoints(tmp_path) == []
    (tmp_path / "checkpoints").mkdir()
    paths = [checkpoint_path(tmp_path, i) for i in (20, 1000, 1000000)]
    for path in [
        *paths[::-1],
        tmp_path / "checkpoints" / ".000030.pt.tmp",
        tmp_path / "checkpoints" / "best.pt",
    ]:
        path.touch()
    assert list_checkpoints(tmp_path) == paths


def test_other_processes_may_continue_with_the_same_batches_per_step(monkeypatch, caplog):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("WORLD_SIZE", "3")
    check_batches({"batches_per_step": 6, "world_size": 3}, accumulate=2)
    assert caplog.text == ""
    check_batches({"batches_per_step": 6, "world_size": 1}, accumulate=2)
    assert "1 processes made the checkpoint, 3 continue" in caplog.text
    message = "with 8 batches per step, but 3 processes x 2 accumulated batches are 6.* can be 1, 2, 4, 8$"
    with pytest.raises(ValueError, match=message):
        check_batches({"batches_per_step": 8, "world_size": 4}, accumulate=2)

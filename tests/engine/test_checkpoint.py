"""detector.engine.checkpoint: saving, loading, refusing."""

import resource

import pytest
import torch
from torch import nn

from detector.engine.checkpoint import (
    DamagedCheckpoint,
    Progress,
    check_batches,
    checkpoint_path,
    list_checkpoints,
    load_checkpoint,
    remove_old_checkpoints,
    restore_model,
    restore_newest,
    restore_optimizer,
    save_checkpoint,
)


def make(width=3, lr=0.1):
    net = nn.Sequential(nn.Linear(2, width), nn.Linear(width, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return net, optimizer


def test_round_trip(tmp_path):
    path = checkpoint_path(tmp_path, 12)
    net, optimizer = make()
    save_checkpoint(path, net, optimizer, iteration=12, train_seconds=1.5)
    loaded = load_checkpoint(path)
    assert (loaded["iteration"], loaded["train_seconds"]) == (12, 1.5)
    other, other_optimizer = make(lr=0.7)
    restore_model(other, loaded, path)
    restore_optimizer(other_optimizer, loaded, path)
    for name, value in net.state_dict().items():
        assert other.state_dict()[name].equal(value)
    momenta = [s["momentum_buffer"] for s in optimizer.state.values()]
    for mine, saved in zip(other_optimizer.state.values(), momenta, strict=True):
        assert mine["momentum_buffer"].equal(saved)
    assert other_optimizer.param_groups[0]["lr"] == 0.7  # the config decides, not the checkpoint


def test_a_full_disk_keeps_the_earlier_checkpoint(tmp_path):
    path = tmp_path / "a.pt"
    net, optimizer = make()
    save_checkpoint(path, net, optimizer, iteration=1, train_seconds=0.0)
    before = path.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, limit[1]))
    try:
        with pytest.raises(OSError, match=r"cannot write .*a\.pt: File too large"):
            save_checkpoint(path, nn.Linear(200, 200), None, iteration=2, train_seconds=0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"checkpoint .*a\.pt does not exist; train first"):
        load_checkpoint(tmp_path / "a.pt")


@pytest.fixture
def run_folder(tmp_path):
    """A run folder with checkpoints after 1, 2 and 3 steps, and the network and optimiser to go on with."""
    net, optimizer = make()
    for iteration in (1, 2, 3):
        with torch.no_grad():
            net[0].weight.fill_(iteration)
        path = checkpoint_path(tmp_path, iteration)
        save_checkpoint(path, net, optimizer, iteration=iteration, train_seconds=0.0, config="A: 1")
    return tmp_path, net, optimizer


def flip_a_bit_of_the_weights(data):
    place = data.index(torch.full((3, 2), 3.0).numpy().tobytes())
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    "harm", [lambda data: data[:-1], lambda data: data[: len(data) // 2], flip_a_bit_of_the_weights]
)
def test_of_a_damaged_checkpoint_the_one_before_is_used_and_a_warning_says_so(run_folder, harm, caplog):
    folder, net, optimizer = run_folder
    newest = checkpoint_path(folder, 3)
    newest.write_bytes(harm(newest.read_bytes()))
    progress = restore_newest(folder, net, optimizer)
    assert (progress.iteration, progress.config) == (2, "A: 1")
    assert net[0].weight[0, 0] == 2
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(f"warning: {newest} is not a checkpoint, or a damaged one: ")
    assert warning.endswith("; the one before it is used")


def test_any_harm_to_a_checkpoint_is_seen_or_does_none(run_folder):
    """A bit in every 25 bytes, changed: what is loaded is what was saved, or nothing is."""
    folder, *_ = run_folder
    path = checkpoint_path(folder, 3)
    whole, data = load_checkpoint(path), path.read_bytes()
    seen = 0
    for place in range(0, len(data), 25):
        path.write_bytes(data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
        try:
            loaded = load_checkpoint(path)
        except DamagedCheckpoint:
            seen += 1
            continue
        assert all(loaded["model"][name].equal(value) for name, value in whole["model"].items())
        assert (loaded["iteration"], loaded["config"]) == (3, "A: 1")
    assert seen > 80


def test_only_damaged_checkpoints_are_no_reason_to_start_over(run_folder):
    folder, net, optimizer = run_folder
    for path in list_checkpoints(folder):
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"all checkpoints in .* are damaged; remove them to start over"):
        restore_newest(folder, net, optimizer)


def test_old_checkpoints_go_and_what_was_left_aside_stays(run_folder):
    folder, *_ = run_folder
    (folder / "checkpoints" / ".000002.pt.tmp").touch()  # of a write that was killed
    remove_old_checkpoints(folder, 2, keep=1)
    assert [path.name for path in sorted((folder / "checkpoints").iterdir())] == ["000002.pt", "000003.pt"]


def test_a_later_version_is_named(run_folder, monkeypatch):
    folder, *_ = run_folder
    monkeypatch.setattr("detector.engine.checkpoint.__version__", "0.0.10+local")
    with pytest.raises(ValueError, match=r"written by detector 0\.1\.0, this is 0\.0\.10\+local: install"):
        load_checkpoint(checkpoint_path(folder, 3))


def test_the_scaler_of_the_loss_is_kept(tmp_path):
    net, optimizer = make()
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    options = {"iteration": 1, "train_seconds": 0.0, "scaler": scaler}
    save_checkpoint(checkpoint_path(tmp_path, 1), net, optimizer, **options)
    other = torch.amp.GradScaler("cpu")
    restore_newest(tmp_path, net, optimizer, other)
    assert other.get_scale() == 64.0


@pytest.mark.parametrize("content", [b"", b"words", b"PK\x03\x04 cut off"])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "a.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.pt is not a checkpoint, or a damaged one"):
        load_checkpoint(path)


def test_a_file_of_another_kind_is_refused(tmp_path):
    torch.save({"weights": torch.ones(1)}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"a\.pt is not a checkpoint written by"):
        load_checkpoint(tmp_path / "a.pt")


class Runs:
    """What a hostile checkpoint would hold: an object whose loading calls a function."""

    def __reduce__(self):
        return (print, ("this must not run",))


def test_loading_runs_no_code(tmp_path, capsys):
    torch.save({"model": Runs(), "iteration": 1, "train_seconds": 0.0}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="not a checkpoint"):
        load_checkpoint(tmp_path / "a.pt")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1)), r"0\.weight is \(3, 2\), in the model \(4, 2\)"),
        (nn.Sequential(nn.Linear(2, 3)), r"it has 1\.weight, which the model lacks"),
        (nn.Sequential(*(nn.Linear(2, 3) for _ in range(4))), r"it lacks 2\.weight; .* and \d more"),
    ],
)
def test_a_checkpoint_of_another_model_says_what_differs_and_what_to_do(tmp_path, other, message):
    path = tmp_path / "a.pt"
    save_checkpoint(path, make()[0], None, iteration=1, train_seconds=0.0)
    with pytest.raises(ValueError, match=rf"a\.pt is of another model: .*{message}.*config\.yaml in its run"):
        restore_model(other, load_checkpoint(path), path)


def test_resuming_needs_the_optimiser_of_the_same_parameters(tmp_path):
    path = tmp_path / "a.pt"
    net, optimizer = make()
    save_checkpoint(path, net, None, iteration=1, train_seconds=0.0)
    with pytest.raises(ValueError, match="has weights only"):
        restore_optimizer(optimizer, load_checkpoint(path), path)
    save_checkpoint(path, net, optimizer, iteration=1, train_seconds=0.0)
    frozen = torch.optim.SGD(net[0].parameters(), lr=0.1)
    with pytest.raises(ValueError, match="other parameters frozen"):
        restore_optimizer(frozen, load_checkpoint(path), path)


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


def test_other_processes_may_go_on_with_the_same_batches_a_step(monkeypatch, caplog):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("WORLD_SIZE", "3")
    check_batches(Progress(), accumulate=5)  # a checkpoint from before they said so
    check_batches(Progress(batches_per_step=6, world_size=3), accumulate=2)
    assert caplog.text == ""
    check_batches(Progress(batches_per_step=6, world_size=1), accumulate=2)
    assert "warning: 1 processes made the checkpoint, 3 go on" in caplog.text
    message = "with 8 batches a step, but 3 processes x 2 accumulated batches are 6.* can be 1, 2, 4, 8$"
    with pytest.raises(ValueError, match=message):
        check_batches(Progress(batches_per_step=8, world_size=4), accumulate=2)

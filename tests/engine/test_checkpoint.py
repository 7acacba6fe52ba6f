"""detector.engine.checkpoint: saving, loading, refusing."""

import io
import resource

import pytest
import torch
from torch import nn

from detector.engine.checkpoint import (
    DamagedCheckpoint,
    load_checkpoint,
    restore_model,
    restore_optimizer,
    save_checkpoint,
)
from detector.utils.errors import UserError


def make(width=3, lr=0.1):
    net = nn.Sequential(nn.Linear(2, width), nn.Linear(width, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return net, optimizer


def test_round_trip(tmp_path):
    path = tmp_path / "checkpoints" / "000012.pt"
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
    for restored, saved in zip(other_optimizer.state.values(), momenta, strict=True):
        assert restored["momentum_buffer"].equal(saved)
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


@pytest.mark.parametrize(("folder", "command"), [("", "train .*run"), ("self_train", "self-train .*run")])
def test_of_an_interrupted_training_the_command_that_continues_is_named(tmp_path, folder, command):
    checkpoints = tmp_path / "run" / folder / "checkpoints"
    checkpoints.mkdir(parents=True)
    final = checkpoints.parent / "model_final.pt"
    with pytest.raises(FileNotFoundError, match="train first"):
        load_checkpoint(final)
    (checkpoints / "000001.pt").touch()
    with pytest.raises(FileNotFoundError, match=f"if it was interrupted, detector {command} --resume contin"):
        load_checkpoint(final)


def test_any_harm_to_a_checkpoint_is_seen_or_does_none(tmp_path):
    """A bit in every 25 bytes, changed: what is loaded is what was saved, or nothing is."""
    path = tmp_path / "a.pt"
    save_checkpoint(path, *make(), iteration=3, train_seconds=0.0, config="A: 1")
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


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("part", ["1.weight", "running", "momentum_buffer"])
def test_what_is_not_finite_is_neither_written_nor_loaded(tmp_path, part, value):
    path = tmp_path / "a.pt"
    net, optimizer = make()
    net.register_buffer("running", torch.zeros(2))
    save_checkpoint(path, net, optimizer, iteration=1, train_seconds=0.0)
    before, whole = path.read_bytes(), load_checkpoint(path)
    momentum = part == "momentum_buffer"
    (optimizer.state[net[0].bias][part] if momentum else net.state_dict()[part]).view(-1)[-1] = value
    with pytest.raises(UserError, match=rf"a\.pt is not written: .*{part} is not finite after 2 steps"):
        save_checkpoint(path, net, optimizer, iteration=2, train_seconds=0.0)
    assert path.read_bytes() == before
    (whole["optimizer"]["state"][1] if momentum else whole["model"])[part].view(-1)[-1] = value
    torch.save(whole, path)
    with pytest.raises(DamagedCheckpoint, match=rf"a\.pt cannot be used: .*{part} is not finite"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": 3}, "model is a int"),
        ({"model": {"a": 3}}, "model.a is a int"),
        ({"model": {"a": torch.zeros(3).to_sparse()}}, "expected a dense tensor"),
        ({"model": {"a": torch.zeros(3, device="meta")}}, "has no values"),
        ({"iteration": "x"}, "iteration is a str"),
        ({"iteration": -1}, "iteration is -1"),
        ({"batches_per_step": 0}, "batches_per_step is 0"),
        ({"train_seconds": None}, "train_seconds is a NoneType"),
        ({"train_seconds": 1e300}, r"train_seconds is 1e\+300"),
        ({"config": 3}, "config is a int"),
        ({"version": []}, "version is a list"),
        ({"version": "9" * 5000}, r"version is '999.*', expected one such as"),
        ({"version": "new"}, "version is 'new', expected one such as"),
        ({"optimizer": 3}, "optimizer is a int"),
    ],
)
def test_forged_content_is_named(tmp_path, changes, message):
    path = tmp_path / "a.pt"
    save_checkpoint(path, *make(), iteration=3, train_seconds=0.0)
    torch.save({**load_checkpoint(path), **changes}, path)
    with pytest.raises(DamagedCheckpoint, match=rf"a\.pt is damaged: .*{message}"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda saved: saved.pop("param_groups"), "param_groups"),
        (lambda saved: saved.update(state=3), "damaged"),
        (lambda saved: saved["state"].update({9: {"momentum_buffer": 3}}), "damaged"),
        (lambda saved: saved["state"].update({-1: saved["state"].pop(0)}), "damaged"),
        (lambda saved: saved["state"][0].update(momentum_buffer=torch.zeros(7)), r"momentum_buffer .*\(7,\)"),
        (
            lambda saved: saved["state"].update({0: {"exp_avg": 3}}),
            "saved by another optimizer, which keeps exp_avg",
        ),
    ],
)
def test_a_forged_optimizer_is_named(tmp_path, harm, message):
    path = tmp_path / "a.pt"
    net, optimizer = make()
    save_checkpoint(path, net, optimizer, iteration=3, train_seconds=0.0)
    checkpoint = load_checkpoint(path)
    harm(checkpoint["optimizer"])
    with pytest.raises(UserError, match=rf"a\.pt:? .*{message}"):
        restore_optimizer(optimizer, checkpoint, path)


def test_other_types_of_numbers_are_another_model(tmp_path):
    net, _ = make()
    save_checkpoint(tmp_path / "a.pt", net.double(), None, iteration=1, train_seconds=0.0)
    with pytest.raises(
        UserError, match=r"0\.weight is torch\.float64 \(3, 2\), in the model torch\.float32 \(3, 2\)"
    ):
        restore_model(make()[0], load_checkpoint(tmp_path / "a.pt"), tmp_path / "a.pt")


def test_a_later_version_is_named(tmp_path, monkeypatch):
    save_checkpoint(tmp_path / "a.pt", make()[0], None, iteration=1, train_seconds=0.0)
    monkeypatch.setattr("detector.engine.checkpoint.__version__", "0.0.10+local")
    with pytest.raises(ValueError, match=r"written by detector 0\.1\.0, this is 0\.0\.10\+local: install"):
        load_checkpoint(tmp_path / "a.pt")


class Runs:
    """What a hostile checkpoint would hold: an object whose loading calls a function."""

    def __reduce__(self):
        return (print, ("this must not run",))


def saved(content):
    torch.save(content, file := io.BytesIO())
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((content, "is damaged or of another format") for content in (b"", b"words", b"PK\x03\x04 cut off")),
        (saved({"weights": torch.ones(1)}), "is not a checkpoint written by"),
        (saved({"model": Runs(), "iteration": 1, "train_seconds": 0.0}), "is damaged or of another format"),
    ],
    ids=["empty", "words", "cut off", "other", "runs"],
)
def test_what_is_no_checkpoint_is_named_and_runs_no_code(tmp_path, capsys, content, message):
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.pt {message}"):
        load_checkpoint(tmp_path / "a.pt")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1)),
            r"0\.weight is \S+ \(3, 2\), in the model \S+ \(4, 2\)",
        ),
        (nn.Sequential(nn.Linear(2, 3)), r"it has 1\.weight, which the model lacks"),
        (nn.Sequential(*(nn.Linear(2, 3) for _ in range(4))), r"it lacks 2\.weight; .* and \d more"),
    ],
)
def test_a_checkpoint_of_another_model_says_what_differs_and_what_to_do(tmp_path, other, message):
    path = tmp_path / "a.pt"
    save_checkpoint(path, make()[0], None, iteration=1, train_seconds=0.0)
    with pytest.raises(ValueError, match=rf"a\.pt is of another model: .*{message}.*config\.yaml in its run"):
        restore_model(other, load_checkpoint(path), path)


def test_resuming_needs_the_optimizer_of_the_same_parameters(tmp_path):
    path = tmp_path / "a.pt"
    net, optimizer = make()
    save_checkpoint(path, net, None, iteration=1, train_seconds=0.0)
    with pytest.raises(ValueError, match="has weights only"):
        restore_optimizer(optimizer, load_checkpoint(path), path)
    save_checkpoint(path, net, optimizer, iteration=1, train_seconds=0.0)
    frozen = torch.optim.SGD(net[0].parameters(), lr=0.1)
    with pytest.raises(ValueError, match="other parameters frozen"):
        restore_optimizer(frozen, load_checkpoint(path), path)

"""detector.engine.loop: the loop, on a stand-in model that is quick to step."""

import dataclasses
import itertools
import logging
import math
import re
import resource
import shutil

import pytest
import torch
from train_cases import Net, batches, criterion, make, make_batch, restore_newest, weights

from detector.engine.checkpoint import load_checkpoint, restore_model, restore_optimizer
from detector.engine.loop import TrainOptions, make_steps
from detector.engine.loss_log import NonFiniteLoss
from detector.engine.precision import Precision
from detector.engine.resuming import list_checkpoints
from detector.evaluation.attention import save_attention
from detector.structures import Batch
from detector.utils.errors import UserError
from detector.utils.logging import PROGRESS, STEP


def run(folder, net, optimizer, data=None, criterion=criterion, **changes):
    """Train 8 steps; `changes` are those of TrainOptions and arguments of train."""
    names = changes.keys() & {field.name for field in dataclasses.fields(TrainOptions)}
    options = TrainOptions(5, 8, lambda iteration: 1 / (1 + iteration), log_period=3, checkpoint_period=3)
    options = dataclasses.replace(options, **{name: changes.pop(name) for name in names})
    data = batches() if data is None else data
    changes = {"precision": Precision("float32", torch.device("cpu")), **changes}
    return make_steps(net, criterion, optimizer, data, options, folder=folder, **changes)


@pytest.mark.parametrize("scale_momentum", [False, True])
def test_a_resumed_run_equals_an_uninterrupted_one_bitwise(tmp_path, scale_momentum):
    whole, optimizer = make()
    run(tmp_path / "whole", whole, optimizer, scale_momentum=scale_momentum)

    def stop_at_five():  # in the middle of a period, as Ctrl-C would
        yield from itertools.islice(batches(), 4)
        raise KeyboardInterrupt

    net, optimizer = make()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "broken", net, optimizer, stop_at_five(), scale_momentum=scale_momentum)
    path = list_checkpoints(tmp_path / "broken")[-1]
    assert path.name == "000004.pt"  # the last complete step, saved on Ctrl-C

    net, optimizer = make()
    torch.rand(7)  # another state of the generator than the first run had
    checkpoint = load_checkpoint(path)
    restore_model(net, checkpoint, path)
    restore_optimizer(optimizer, checkpoint, path)
    rest = {"start": 4, "train_seconds": 100.0, "scale_momentum": scale_momentum}
    run(tmp_path / "broken", net, optimizer, batches(start=4), **rest)
    assert weights(net).equal(weights(whole))
    last = [load_checkpoint(list_checkpoints(tmp_path / name)[-1]) for name in ("whole", "broken")]
    momenta = [c["optimizer"]["state"][0]["momentum_buffer"] for c in last]
    assert momenta[0].equal(momenta[1])
    assert last[1]["train_seconds"] > 100 > last[0]["train_seconds"]


def test_the_scale_of_a_float16_loss_is_gone_on_with(tmp_path):
    """The gradient overflows at the first scales, which halve: a resumed run must not begin there again."""
    precisions, nets = [], []
    for start in (0, 3):
        net, optimizer = make()
        precision = Precision("fp16", torch.device("cpu"))
        precision.scaler.load_state_dict({**precision.scaler.state_dict(), "scale": 2.0**20})
        folder = tmp_path / str(start)
        if start:
            shutil.copytree(tmp_path / "0" / "checkpoints", folder / "checkpoints")
            for path in list_checkpoints(folder)[1:]:
                path.unlink()
            assert restore_newest(folder, net, optimizer, precision.scaler).iteration == start
        run(folder, net, optimizer, batches(start), start=start, precision=precision, keep_checkpoints=9)
        precisions.append(precision)
        nets.append(net)
    assert precisions[0].scaler.get_scale() < 2.0**18
    assert precisions[0].scaler.state_dict() == precisions[1].scaler.state_dict()
    assert weights(nets[0]).equal(weights(nets[1]))
    assert not weights(nets[0]).equal(weights(make()[0]))


def test_what_the_run_folder_holds(tmp_path):
    net, optimizer = make()
    seconds = run(tmp_path, net, optimizer, keep_checkpoints=2)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["000006.pt", "000008.pt"]
    final = load_checkpoint(tmp_path / "model_final.pt")
    assert (final["iteration"], final["train_seconds"]) == (8, seconds)
    assert "optimizer" not in final
    assert all(final["model"][k].equal(v) for k, v in net.state_dict().items())
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 1


def test_accumulated_batches_equal_one_large_batch(tmp_path):
    """Two batches of 2 averaged into one step give the gradient of one batch of 4."""

    def part(first):
        whole, rows = make_batch(0, size=4), slice(first, first + 2)
        fields = (whole.images, whole.rois, whole.labels, whole.counts, whole.image_ids)
        return Batch(*(field[rows] for field in fields))

    gradients = []
    for data in ([make_batch(0, size=4)], [part(0), part(2)]):
        net, optimizer = make()
        net.dropout.p = 0.0
        optimizer.register_step_pre_hook(
            lambda *_, net=net: gradients.append([p.grad.clone() for p in net.parameters()])
        )
        run(tmp_path, net, optimizer, data, max_iter=1, accumulate=len(data))
    for whole, parts in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, parts)


def test_the_gradients_of_the_images_of_a_step_can_be_summed(tmp_path):
    """SGD on the sum over N images is SGD on the mean with N times the step and an Nth of the decay."""
    nets = []
    for factor, lr, decay in ((4.0, 0.01, 0.02), (1.0, 0.04, 0.005)):
        torch.manual_seed(1)
        net = Net()
        groups = [{"params": list(net.parameters()), "initial_lr": lr}]
        optimizer = torch.optim.SGD(groups, lr=lr, momentum=0.9, weight_decay=decay)
        run(tmp_path / str(factor), net, optimizer, accumulate=2, gradient_factor=factor)
        nets.append(weights(net))
    torch.testing.assert_close(*nets)
    assert not nets[0].equal(weights(make()[0]))


def test_the_schedule_sets_the_learning_rate_of_each_step(tmp_path):
    net, optimizer = make()
    seen = []
    optimizer.register_step_pre_hook(lambda opt, *_: seen.append(opt.param_groups[0]["lr"]))
    run(tmp_path, net, optimizer, max_iter=3)
    assert seen == pytest.approx([0.1, 0.1 / 2, 0.1 / 3])


@pytest.mark.parametrize("clip_norm", [0.0, 0.01])
def test_the_gradient_is_clipped_where_asked(tmp_path, clip_norm):
    net, optimizer = make()
    norms = []
    optimizer.register_step_pre_hook(
        lambda *_: norms.append(math.sqrt(sum(float((p.grad**2).sum()) for p in net.parameters())))
    )
    run(tmp_path, net, optimizer, max_iter=3, clip_norm=clip_norm)
    assert all(norm <= 0.0101 for norm in norms) == (clip_norm > 0)


def poisoned(position):
    for i, batch in enumerate(batches()):
        if i == position:
            batch.images.fill_(float("nan"))
        yield batch


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_images(tmp_path):
    net, optimizer = make()
    with pytest.raises(
        NonFiniteLoss, match=r"in step 5 loss is nan, from the images image4_0, image4_1; lower"
    ):
        run(tmp_path, net, optimizer, poisoned(4))
    assert [p.name for p in list_checkpoints(tmp_path)] == ["000003.pt"]
    assert weights(net).isfinite().all()


def test_a_device_that_is_not_read_every_step_still_names_the_images_and_saves_nothing_bad(
    tmp_path, monkeypatch
):
    net, optimizer = make()
    monkeypatch.setattr(Batch, "to", lambda self, *_, **__: self)  # Precision alone says cuda
    with pytest.raises(NonFiniteLoss, match="in step 4 loss is nan, from the images image3_0, image3_1;"):
        run(tmp_path, net, optimizer, poisoned(3), precision=Precision("float32", torch.device("cuda")))
    assert [p.name for p in list_checkpoints(tmp_path)] == ["000003.pt"]


def test_a_gradient_that_is_not_finite_stops_the_run_too(tmp_path):
    net, optimizer = make()
    net.head.weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(
        NonFiniteLoss, match=r"in step 1 gradient_norm is (nan|inf), from the images image0_0, image0_1;"
    ):
        run(tmp_path, net, optimizer)


@pytest.mark.parametrize("error", [ValueError, RuntimeError])
def test_scores_that_are_not_finite_name_step_and_images_however_they_are_refused(tmp_path, error):
    """The weights become infinite in step 2, after a check that found nothing; step 3 finds the scores."""
    net, optimizer = make()

    def refuse_nan(outputs, batch):
        if not outputs.isfinite().all():
            raise error("all elements of input should be between 0 and 1")
        return criterion(outputs, batch)

    def diverge(opt, *_):
        if len(opt.state) and opt.param_groups[0]["lr"] == 0.05:
            net.head.weight.data.fill_(float("inf"))

    optimizer.register_step_post_hook(diverge)
    message = "in step 3 the scores are not finite, from the images image2_0, image2_1;.*BASE_LR.*INPUT.STD"
    with pytest.raises(NonFiniteLoss, match=message):
        run(tmp_path, net, optimizer, criterion=refuse_nan)
    assert list_checkpoints(tmp_path) == []


@pytest.mark.parametrize("error", [ValueError, RuntimeError])
def test_a_bug_of_the_criterion_stays_a_bug(tmp_path, error):
    def broken(outputs, batch):
        raise error("shapes do not match")

    with pytest.raises(error, match="shapes do not match") as caught:
        run(tmp_path, *make(), criterion=broken)
    assert not isinstance(caught.value, UserError)


@pytest.mark.parametrize("step", [3, 8])
def test_weights_that_are_not_finite_reach_no_file(tmp_path, step):
    net, optimizer = make()
    rate = 0.1 / step
    optimizer.register_step_post_hook(
        lambda opt, *_: opt.param_groups[0]["lr"] == rate and net.head.bias.data.fill_(float("nan"))
    )
    with pytest.raises(UserError, match=f"{step:06d}.pt is not written: model.head.bias is not finite"):
        run(tmp_path, net, optimizer)
    assert f"{step:06d}.pt" not in [path.name for path in list_checkpoints(tmp_path)]
    assert not (tmp_path / "model_final.pt").exists()


def test_ctrl_c_before_the_first_checkpoint_loses_no_step(tmp_path):
    """Ctrl-C within a step, once batch norm has seen its images: what is saved is the step before."""
    kept = {}

    def make_normed():
        net, optimizer = make()
        net.norm = torch.nn.BatchNorm1d(2)
        net.register_forward_hook(lambda module, _, outputs: module.norm(outputs))
        return net, optimizer

    net, optimizer = make_normed()
    run(tmp_path / "whole", net, optimizer, checkpoint_period=100)
    net, optimizer = make_normed()

    def interrupted(outputs, batch):
        if batch.image_ids[0].startswith("image5"):
            raise KeyboardInterrupt
        kept["norm"] = net.norm.running_mean.clone()
        return criterion(outputs, batch)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "broken", net, optimizer, criterion=interrupted, checkpoint_period=100)
    assert [path.name for path in list_checkpoints(tmp_path / "broken")] == ["000005.pt"]
    net, optimizer = make_normed()
    assert restore_newest(tmp_path / "broken", net, optimizer).iteration == 5
    assert net.norm.running_mean.equal(kept["norm"])
    run(tmp_path / "broken", net, optimizer, batches(5), start=5, checkpoint_period=100)
    first, second = (
        load_checkpoint(tmp_path / name / "model_final.pt")["model"] for name in ("whole", "broken")
    )
    assert all(second[name].equal(value) for name, value in first.items())


def test_ctrl_c_saves_nothing_of_a_loss_that_is_not_finite(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(Batch, "to", lambda self, *_, **__: self)  # a GPU reads losses when it logs them

    def stop():
        yield from itertools.islice(poisoned(1), 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, *make(), stop(), precision=Precision("float32", torch.device("cuda")))
    assert list_checkpoints(tmp_path) == []
    assert "no checkpoint of step 2: training has diverged: in step 2 loss is nan" in caplog.text


@pytest.mark.filterwarnings("error")  # an exception in a thread is a warning for pytest
def test_a_full_disk_names_the_events(tmp_path):
    def fill(outputs, batch):
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
        return criterion(outputs, batch)

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(
            OSError, match=f"cannot write the TensorBoard events in {tmp_path}: File too large"
        ):
            run(tmp_path, *make(), criterion=fill, log_period=1, checkpoint_period=100, max_iter=5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_without_a_terminal_each_tenth_of_the_steps_is_shown(tmp_path, caplog):
    caplog.set_level(logging.DEBUG, "detector")
    run(tmp_path, *make(), max_iter=200, log_period=5, checkpoint_period=200)
    shown = [r.getMessage().split()[1] for r in caplog.records if r.levelno == PROGRESS]
    assert shown == [f"{step}/200" for step in range(20, 201, 20)]
    assert sum(r.levelno == STEP for r in caplog.records) == 30


def test_the_log_has_losses_speed_and_time_left(tmp_path, caplog):
    net, optimizer = make()
    caplog.set_level(logging.DEBUG, "detector")
    run(tmp_path, net, optimizer)
    lines = [
        record.getMessage() for record in caplog.records if record.name == "detector.engine.progress_log"
    ]
    assert [line.split()[1] for line in lines] == ["3/8", "6/8", "8/8"]
    for line in lines:
        assert re.search(r"loss \S+  mil \S+  refine_1 \S+ .*lr \S+  images/s \S+  time left \d:\d\d$", line)


@pytest.mark.parametrize(("end", "warned"), [(0.5, True), (0.3, False)])
def test_a_warning_says_that_the_image_labels_are_hardly_learned(tmp_path, caplog, end, warned):
    mil = itertools.chain([0.7] * 6, itertools.repeat(end))
    run(tmp_path, *make(), criterion=lambda outputs, batch: {"mil": outputs.sum() * 0 + next(mil)})
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert ["from 0.7 to 0.5" in line and "SOLVER.MAX_ITER" in line for line in warnings] == [True] * warned


def test_a_finished_run_has_nothing_left_to_do(tmp_path):
    net, optimizer = make()
    before = weights(net)
    assert run(tmp_path, net, optimizer, start=8, train_seconds=3.0) == pytest.approx(3.0, abs=0.5)
    assert weights(net).equal(before)


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("step", [2, 3, 5, 7])  # before a log line, and where a checkpoint follows
def test_a_run_folder_that_is_moved_ends_the_run(tmp_path, replaced, step):
    folder, moved = tmp_path / "run", tmp_path / "moved"

    def move_then_go_on():
        yield from itertools.islice(batches(), step - 1)
        folder.rename(moved)
        if replaced:
            folder.mkdir()
        yield from batches(start=step - 1)

    net, optimizer = make()
    with pytest.raises(UserError, match=r"run was moved or deleted.* while .*OUTPUT_DIR.*--resume"):
        run(folder, net, optimizer, move_then_go_on())
    assert [path.name for path in folder.glob("*")] == []
    assert folder.exists() == replaced
    assert [path.name for path in list_checkpoints(moved)] == ["000003.pt", "000006.pt"][: (step - 1) // 3]


class MovesWhileItLooks:
    """Snapshots, of which each takes long enough for the folder to be moved."""

    def due(self, iteration, max_iter):
        return iteration == 2

    def take(self, model, iteration, folder, writer):
        folder.rename(folder.with_name("moved"))
        save_attention(folder / "snapshots" / "000002.npz", [])


def test_a_run_folder_that_is_moved_during_a_snapshot_is_not_made_anew(tmp_path):
    net, optimizer = make()
    with pytest.raises(UserError, match=r"run was moved or deleted"):
        run(tmp_path / "run", net, optimizer, snapshots=MovesWhileItLooks())
    assert not (tmp_path / "run").exists()


def test_a_stop_in_a_run_folder_that_was_deleted_makes_none(tmp_path, caplog):
    def delete_then_stop():
        yield from itertools.islice(batches(), 4)
        shutil.rmtree(tmp_path / "run")
        raise KeyboardInterrupt

    net, optimizer = make()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", net, optimizer, delete_then_stop())
    assert "no checkpoint of step 4: the folder" in caplog.text
    assert not list(tmp_path.iterdir())

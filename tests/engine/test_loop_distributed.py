"""detector.engine.loop in several processes: what one process with accumulated batches does."""

from pathlib import Path

import pytest
import torch
from distributed_cases import poisoned, run_processes, train_stand_in
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from train_cases import criterion

from detector.engine.checkpoint import load_checkpoint
from detector.engine.loss_log import NonFiniteLoss
from detector.engine.resuming import list_checkpoints


def logged(folder: Path) -> dict[tuple[str, int], float]:
    """What TensorBoard was told, by name and step."""
    events = EventAccumulator(str(folder)).Reload()
    names = [name for name in events.Tags()["scalars"] if name != "train/images/s"]
    return {(name, event.step): event.value for name in names for event in events.Scalars(name)}


@pytest.mark.parametrize(("processes", "accumulate"), [(2, 1), (2, 2), (4, 1)])
def test_processes_equal_one_that_accumulates(tmp_path, processes, accumulate):
    several = run_processes(train_stand_in, processes, tmp_path / "several", accumulate)
    alone = train_stand_in(tmp_path / "alone", processes * accumulate)
    assert all(weights == several[0] for weights in several[1:])
    assert several[0] == pytest.approx(alone, rel=1e-5, abs=1e-6)
    assert logged(tmp_path / "several") == pytest.approx(logged(tmp_path / "alone"), rel=1e-5)
    saved = [load_checkpoint(list_checkpoints(tmp_path / name)[-1]) for name in ("several", "alone")]
    assert [s["batches_per_step"] for s in saved] == [processes * accumulate] * 2
    assert [s["world_size"] for s in saved] == [processes, 1]
    assert len(list((tmp_path / "several").glob("events.*"))) == 1  # of the main process


def test_nan_in_one_process_stops_all_and_is_said_once(tmp_path):
    main, other = run_processes(train_stand_in, 2, tmp_path, 1, poisoned)
    assert isinstance(main, NonFiniteLoss)
    assert "in step 3 loss is nan on rank 1, from the images image5_0, image5_1;" in str(main)
    assert isinstance(other, SystemExit)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["000002.pt"]
    model = load_checkpoint(list_checkpoints(tmp_path)[0])["model"]
    assert all(tensor.isfinite().all() for tensor in model.values())


@pytest.mark.cuda
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_gpus_equal_one_that_accumulates(tmp_path):
    several = run_processes(train_stand_in, 2, tmp_path / "several", 2, criterion, "cuda")
    (alone,) = run_processes(train_stand_in, 1, tmp_path / "alone", 4, criterion, "cuda")
    assert several[0] == several[1]
    assert several[0] == pytest.approx(alone, rel=1e-4, abs=1e-5)

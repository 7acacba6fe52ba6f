import pytest
from torch.utils.tensorboard import SummaryWriter

from detector.reporting.metrics_sections import read_curves


def write(folder, steps, value, number=1, **options):
    """Write events whose file has its place by `number`; TensorBoard's own names may tie within a second."""
    with SummaryWriter(folder / "new", **options) as writer:
        for step in steps:
            writer.add_scalar("train/loss", value, step)
            writer.add_scalar("other", 0.0, step)
    (path,) = (folder / "new").iterdir()
    path.rename(folder / f"events.out.tfevents.{number}")


def test_the_curves_of_a_run_that_was_resumed(tmp_path):
    write(tmp_path, (2, 4, 6), 1.0)
    write(tmp_path, (6, 8), 2.0, number=2, purge_step=5)
    curves = read_curves(tmp_path)
    assert list(curves) == ["loss"]
    steps, values = curves["loss"]
    assert steps.tolist() == [2, 4, 6, 8]
    assert values == pytest.approx([1, 1, 2, 2])


def test_a_folder_without_events(tmp_path):
    assert read_curves(tmp_path) == {}


def test_a_torn_end_is_no_damage(tmp_path):
    write(tmp_path, range(9), 1.0)
    (path,) = tmp_path.glob("events.*")
    content = path.read_bytes()
    for cut in (3, 20, 40):
        path.write_bytes(content[:-cut])
        steps, _ = read_curves(tmp_path)["loss"]
        assert steps.tolist() == list(range(len(steps)))
        assert len(steps) in (8, 9)

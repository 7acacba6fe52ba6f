"""Every file of configs/: it loads, builds what its name says, and takes a step on made-up data."""

from pathlib import Path

import pytest
import torch

from detector.build import build_criterion, build_lr_factor, build_model, build_optimizer
from detector.config import load_cfg
from detector.data.toybox import CLASSES
from detector.structures import Batch, boxes_to_rois

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.yaml"))

# Weights that no test machine has, and layers of which a hundred million parameters would take seconds.
SMALL = ["MODEL.WEIGHTS", "", "MODEL.BOX_FEATURES.WIDTHS", "(64, 64)"]


@pytest.fixture(params=CONFIGS, ids=lambda path: path.stem)
def path(request):
    return request.param


def made_up_batch(num_classes):
    generator = torch.Generator().manual_seed(0)
    top_left = torch.rand(12, 2, generator=generator) * 30
    boxes = torch.cat(
        [top_left, top_left + 8 + 24 * torch.rand(12, 2, generator=generator)], dim=1
    )  # (12, 4)
    labels = torch.zeros(2, num_classes)
    labels[0, :2] = labels[1, -1] = 1
    return Batch(
        images=torch.randn(2, 3, 64, 64, generator=generator),
        rois=boxes_to_rois([boxes[:8], boxes[8:]]),
        labels=labels,
        counts=torch.tensor([8, 4]),
        image_ids=("a", "b"),
    )


def test_there_are_configs():
    assert len(CONFIGS) >= 6


def test_it_takes_a_step(path):
    cfg = load_cfg(path, SMALL)
    torch.manual_seed(0)
    model = build_model(cfg).train()
    optimizer = build_optimizer(cfg, model)
    batch = made_up_batch(len(cfg.DATASETS.CLASSES))
    losses = build_criterion(cfg)(model(batch.images, batch.rois, batch.counts), batch)
    streams = 0 if "wsddn" in path.stem else cfg.MODEL.STREAMS
    image = ["image"] if cfg.MODEL.IMAGE_HEAD else []
    assert list(losses) == ["mil", *(f"refine_{k + 1}" for k in range(streams)), *image]
    assert all(torch.isfinite(loss) for loss in losses.values())
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    torch.stack(list(losses.values())).sum().backward()
    optimizer.step()
    for name, p in model.named_parameters():
        assert p.isfinite().all(), name
        if name.startswith("head.") and name.endswith("weight"):
            assert not p.equal(before[name]), f"{name} has not moved"
        if not p.requires_grad:
            assert p.equal(before[name]), f"{name} is frozen but moved"


@pytest.mark.cuda
@pytest.mark.parametrize("path", [p for p in CONFIGS if "toybox" in p.stem], ids=lambda path: path.stem)
def test_the_host_never_waits_in_a_step(path):
    cfg = load_cfg(path, SMALL)
    model = build_model(cfg).train().cuda()
    optimizer, criterion = build_optimizer(cfg, model), build_criterion(cfg)
    batch = made_up_batch(len(cfg.DATASETS.CLASSES)).to(torch.device("cuda"))

    def step():
        losses = criterion(model(batch.images, batch.rois, batch.counts), batch)
        torch.stack(list(losses.values())).sum().backward()
        optimizer.step()

    step()  # libraries load
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    names = [event.name for event in profile.events()]
    assert any("centres_kernel" in name for name in names) == ("wsddn" not in path.stem)
    assert not [name for name in names if "DtoH" in name]


def test_the_name_says_the_method(path):
    assert load_cfg(path).MODEL.METHOD in path.stem.split("_")


def test_it_opens_with_its_command(path):
    head = "".join(line for line in path.read_text().splitlines(keepends=True) if line.startswith("#"))
    assert path.read_text().startswith(head[0])
    for tool in ("train_net", "test_net"):
        assert f"python tools/{tool}.py --config-file configs/{path.name}" in head
    assert "published" in head
    assert "Measured" in head


def test_runs_do_not_share_a_folder():
    folders = [load_cfg(path).OUTPUT_DIR for path in CONFIGS]
    assert len(set(folders)) == len(folders)


def test_the_schedule_is_sensible(path):
    cfg = load_cfg(path)
    factor = build_lr_factor(cfg)
    assert 0 < factor(0) <= 1
    assert max(factor(i) for i in range(0, cfg.SOLVER.MAX_ITER, max(1, cfg.SOLVER.MAX_ITER // 50))) > 0.9


@pytest.mark.parametrize("path", [p for p in CONFIGS if "toybox" in p.stem], ids=lambda path: path.stem)
def test_toybox_configs_name_its_classes(path):
    assert load_cfg(path).DATASETS.CLASSES == CLASSES

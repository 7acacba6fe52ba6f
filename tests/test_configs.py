"""Every file of configs/: it loads, builds what its name says, trains a step and tests on made-up data."""

import re
from pathlib import Path

import pytest
import torch
from published_recipes import PUBLISHED

from detector.config import load_cfg
from detector.config.yaml_files import flatten, read_yaml_chain
from detector.data.toybox import CLASSES
from detector.engine.build import build_lr_factor, build_optimizer
from detector.engine.passes import predict
from detector.engine.precision import Precision, set_tf32
from detector.modeling.build import build_criterion, build_model, build_postprocess
from detector.structures import Batch, Sample, Views, boxes_to_rois

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.yaml"))

# Weights that no test machine has, and layers whose hundred million parameters would take seconds.
SMALL = ["MODEL.WEIGHTS", "", "MODEL.BOX_FEATURES.WIDTHS", "(16, 16)"]
NO_DROPOUT = ["MODEL.BOX_FEATURES.DROPOUT", "0"]


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


def named_classes(path):
    """Classes for a config that takes those of its data set."""
    return [] if load_cfg(path).datasets.classes else ["DATASETS.CLASSES", "cat,dog"]


def test_there_are_configs():
    assert len(CONFIGS) >= 15


def test_it_takes_a_step_and_a_test_pass(path):
    cfg = load_cfg(path, [*SMALL, *named_classes(path)])
    torch.manual_seed(0)
    model = build_model(cfg).train()
    optimizer = build_optimizer(cfg.solver, model)
    batch = made_up_batch(len(cfg.datasets.classes))
    losses = build_criterion(cfg)(model(batch.images, batch.rois, batch.counts), batch)
    streams = 0 if "wsddn" in path.stem else cfg.model.streams
    boxes = ["regress_classes", "regress_boxes"] if "_reg_" in path.stem else []
    if boxes and cfg.model.method == "mist_wetectron":
        boxes = [f"regress_{k + 1}" for k in range(streams)]
    image = ["image"] if cfg.model.image_head else []
    assert list(losses) == ["mil", *(f"refine_{k + 1}" for k in range(streams)), *boxes, *image]
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
    check_a_test_pass(cfg, model, batch)


def check_a_test_pass(cfg, model, batch):
    boxes = batch.rois[:8, 1:]
    sample = Sample(batch.images[0], boxes, batch.labels[0], "a", flipped=True)
    (scores,) = predict(model, [Views("a", (64, 64), boxes, (sample,))], device=torch.device("cpu"))
    assert scores.scores.shape == (8, len(cfg.datasets.classes))
    moved = not scores.boxes.equal(boxes[:, None].expand_as(scores.boxes))
    assert moved == cfg.model.regression.enabled
    assert build_postprocess(cfg.test)(scores).boxes.isfinite().all()


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["float32", "bf16", "fp16"])
@pytest.mark.parametrize("path", [p for p in CONFIGS if "toybox" in p.stem], ids=lambda path: path.stem)
def test_the_host_never_waits_in_a_step(path, name):
    cfg = load_cfg(path, [*SMALL, "PRECISION", name, "CHANNELS_LAST", "True"])
    model = build_model(cfg).train().cuda()
    optimizer, criterion = build_optimizer(cfg.solver, model), build_criterion(cfg)
    precision = Precision(cfg.precision, torch.device("cuda"))
    batch = made_up_batch(len(cfg.datasets.classes)).to(torch.device("cuda"))

    def step():
        with precision.autocast():
            outputs = model(*batch.inputs)
        losses = criterion(outputs, batch)
        precision.scaler.scale(torch.stack(list(losses.values())).sum()).backward()
        precision.scaler.unscale_(optimizer)
        precision.scaler.step(optimizer)
        precision.scaler.update()

    step()  # libraries load
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    names = [event.name for event in profile.events()]
    assert any("centers_kernel" in name for name in names) == ("wsddn" not in path.stem)
    assert not [name for name in names if "DtoH" in name]


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["tf32", "bf16", "fp16"])
def test_a_step_in_less_precision_has_nearly_the_loss_of_float32(name):
    def loss(*words):
        cfg = load_cfg(CONFIGS[0].parent / "voc07_pcl_pytorch_vgg16.yaml", [*SMALL, *NO_DROPOUT, *words])
        torch.manual_seed(0)
        set_tf32(cfg.precision == "tf32")
        model, device = build_model(cfg).train().cuda(), torch.device("cuda")
        batch = made_up_batch(len(cfg.datasets.classes)).to(device)
        with Precision(cfg.precision, device).autocast():
            outputs = model(*batch.inputs)
        losses = torch.stack(list(build_criterion(cfg)(outputs, batch).values()))
        losses.sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)
        return losses.detach()

    expected, found = loss(), loss("PRECISION", name, "CHANNELS_LAST", "True")
    set_tf32(False)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0.02, atol=1e-3)


def test_the_name_says_what_is_built(path):
    cfg, words = load_cfg(path), path.stem.split("_")
    assert {*cfg.model.method.split("_")} <= {*words}
    assert ("reg" in words) == cfg.model.regression.enabled
    if words[0] not in ("toybox", "photos", "doom", "boards", "own"):
        assert words[-1] == cfg.model.backbone.name


def test_a_file_says_only_what_differs_from_the_one_it_builds_on(path):
    *bases, file = read_yaml_chain(path)
    if bases:
        inherited = load_cfg(bases[-1].path).values()
        repeated = [key for key, value in flatten(file.content) if inherited[key] == _as_config(value)]
        assert set(repeated) <= {"MODEL.METHOD"}  # which the default may be: said where one looks for it


def _as_config(value):
    return tuple(value) if isinstance(value, list) else value


def test_it_opens_with_its_command(path):
    head = "".join(line for line in path.read_text().splitlines(keepends=True) if line.startswith("#"))
    assert path.read_text().startswith(head[0])
    for tool in ("train_net", "test_net"):
        assert f"python tools/{tool}.py --config-file configs/{path.name}" in head
    assert "published: " in head
    assert "Measured" in head


def header(path):
    return "".join(line for line in path.read_text().splitlines(keepends=True) if line.startswith("#"))


def test_it_has_a_source_or_a_measured_figure(path):
    """A recipe that nobody published and nobody measured is a guess, however sensible it looks."""
    head = header(path)
    measured = re.search(r"Measured: (?!not yet)|Measured on", head)
    assert measured or re.search(r"^# Source: \S", head, re.M), f"{path.name} has neither"


def test_published_recipes_name_the_deviations_that_are_left():
    for name in PUBLISHED:
        head = header(CONFIGS[0].parent / f"{name}.yaml")
        assert re.search(r"published: \d+\.\d / \d+\.\d\. Measured: ", head), name
        assert "Deviations that are left, beside those of all recipes (docs/recipes.md):\n# * " in head, name
        assert "Proposals are" in head, name
        assert "PRECISION is tf32" in head, name
        # MIST's code resizes by Pillow, as exactly as this package does, and flips at random.
        assert ("antialiasing" in head) == ("mist" not in name), name


def test_runs_do_not_share_a_folder():
    folders = [load_cfg(path).output_dir for path in CONFIGS]
    assert len(set(folders)) == len(folders)


def test_the_schedule_is_sensible(path):
    cfg = load_cfg(path)
    factor = build_lr_factor(cfg.solver)
    assert 0 < factor(0) <= 1
    assert max(factor(i) for i in range(0, cfg.solver.max_iter, max(1, cfg.solver.max_iter // 50))) > 0.9


@pytest.mark.parametrize("path", [p for p in CONFIGS if "toybox" in p.stem], ids=lambda path: path.stem)
def test_toybox_configs_name_its_classes(path):
    assert load_cfg(path).datasets.classes == CLASSES

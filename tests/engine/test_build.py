"""detector.engine.build, build_data and build_model: each key reaches the object that it is about."""

import json
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch

from detector.config import KEYS, Settings, load_cfg, with_values
from detector.data import build as build_data
from detector.data.proposals import save_proposals
from detector.data.training_set import TrainingSet
from detector.engine import build
from detector.engine.schedule import set_lr
from detector.inference.results import results_key
from detector.modeling import build as build_model
from detector.modeling.backbones import build as build_backbone
from detector.modeling.drop_block import ConcreteDropBlock
from detector.modeling.refinement import Refinement, cluster_loss, suppressed_by_any
from detector.modeling.regression import StreamRegressionLoss
from detector.modeling.weights import TORCHVISION, Weights, save_weights
from detector.self_training import build as build_student
from detector.structures import Batch, Scores
from detector.utils.distributed import find_device
from detector.utils.errors import ConfigError


@pytest.fixture
def make_cfg(tmp_path):
    """A config of the defaults with the small backbone, changed by KEY VALUE words."""
    path = tmp_path / "c.yaml"
    path.write_text("MODEL: {BACKBONE: {NAME: small, FROZEN_STAGES: 0}, BOX_FEATURES: {WIDTHS: [16, 8]}}")
    return lambda *words: load_cfg(path, words)


def test_device(make_cfg, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device(make_cfg().device).type == "cpu"
    with pytest.raises(ValueError, match="device is 'cuda', but torch finds no CUDA device"):
        find_device(make_cfg("DEVICE", "cuda").device)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert find_device(make_cfg().device).type == "cuda"
    assert find_device(make_cfg("DEVICE", "cpu").device).type == "cpu"


@pytest.fixture
def launched(monkeypatch):
    """As if torchrun had started this as process 1 of so many."""

    def launch(processes):
        names = {"RANK": 1, "LOCAL_RANK": 1, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
        for name, value in {"TORCHELASTIC_RUN_ID": "test", **names}.items():
            monkeypatch.setenv(name, str(value))

    return launch


def test_each_process_has_its_own_gpu(make_cfg, monkeypatch, launched):
    launched(2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device(make_cfg().device) == torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="2 processes were started where there are 1 GPUs"):
        find_device(make_cfg().device)


def test_a_gpu_that_does_not_exist_or_is_another_processes_is_refused(monkeypatch, launched):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(ValueError, match="device is 'cuda:7', but torch finds 2 GPUs"):
        find_device("cuda:7")
    launched(2)
    assert find_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(ValueError, match="'cuda:0' in process 1 of 2, expected 'cuda', which is cuda:1"):
        find_device("cuda:0")


def test_images_a_step_and_the_learning_rate_for_them(make_cfg, launched):
    words = ["SOLVER.IMAGES_PER_BATCH", "2", "SOLVER.ACCUMULATE", "3", "SOLVER.BASE_LR", "0.1"]
    linear = [*words, "SOLVER.LR_SCALING", "linear", "SOLVER.LR_IMAGES", "4"]
    assert build.images_per_step(make_cfg(*words).solver) == 6
    launched(4)
    assert build.images_per_step(make_cfg(*words).solver) == 24
    assert build.base_lr(make_cfg(*words).solver) == pytest.approx(0.1)
    assert build.base_lr(make_cfg(*linear).solver) == pytest.approx(0.6)
    cfg = make_cfg(*linear)
    assert build.build_optimizer(cfg.solver, torch.nn.Linear(1, 1)).param_groups[0]["lr"] == pytest.approx(
        0.6
    )


def test_images_a_step_may_decide_how_many_batches_are_accumulated(make_cfg, launched):
    cfg = make_cfg("SOLVER.IMAGES_PER_BATCH", "2", "SOLVER.IMAGES_PER_STEP", "16")
    for processes, accumulate in ((1, 8), (2, 4), (8, 1)):
        launched(processes)
        assert build.accumulated_batches(cfg.solver) == accumulate
        assert build.images_per_step(cfg.solver) == 16
    launched(3)
    with pytest.raises(ValueError, match="IMAGES_PER_STEP is 16, expected a multiple of 6: 3 processes"):
        build.accumulated_batches(cfg.solver)


@pytest.mark.parametrize(("method", "streams"), [("wsddn", 0), ("oicr", 2), ("pcl", 2)])
def test_model_and_criterion_have_as_many_streams_as_the_method(make_cfg, method, streams):
    cfg = make_cfg("MODEL.METHOD", method, "MODEL.STREAMS", "2", "MODEL.STREAM_WEIGHTS", "(3, 1)")
    model = build_model.build_model(cfg)
    assert len(model.head.refinements) == streams
    assert model.box_features.out_features == 8
    assert build_model.build_criterion(cfg).stream_weights == ((3.0, 1.0) if streams else ())


@pytest.mark.parametrize(("proposals", "shown"), [(0, 1.0), (9, 0.0)])
@pytest.mark.parametrize("method", ["wsddn", "oicr", "pcl", "mist", "mist_wetectron"])
def test_every_parameter_gets_a_gradient_from_any_batch(make_cfg, method, proposals, shown):
    """Processes that train together wait for each; without proposals or labels there is nothing to learn."""
    words = ["MODEL.METHOD", method, "MODEL.DROP_BLOCK.ENABLED", "True", "MODEL.REGRESSION.ENABLED", "True"]
    if method == "mist_wetectron":
        words += ["MODEL.MIL_BACKGROUND", "True"]
    cfg = make_cfg(*words, "MODEL.IMAGE_HEAD", "True")
    model, rois = (
        build_model.build_model(cfg).train(),
        torch.tensor([[0.0, 4, 4, 40, 40]]).expand(proposals, 5),
    )
    labels = torch.full((1, 20), shown)
    batch = Batch(torch.rand(1, 3, 64, 64), rois, labels, torch.tensor([proposals]), ("a",))
    sum(build_model.build_criterion(cfg)(model(*batch.inputs), batch).values()).backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_refinements_take_the_keys_of_clusters(make_cfg):
    words = ["CLUSTERS.GRAPH_IOU", "0.3", "CLUSTERS.MAX_CENTERS", "4", "CLUSTERS.MEMBER_IOU", "0.6"]
    words += ["CLUSTERS.IGNORE_IOU", "0", "CLUSTERS.IGNORE_COVER", "0.8", "CLUSTERS.COVER_IOU", "0.3"]
    clusters = make_cfg(*words).clusters
    pcl = build_model.build_refinement("pcl", clusters)
    chosen = {"graph_iou": 0.3, "max_centers": 4}
    assert pcl == Refinement("pcl", chosen, cluster_loss, 0.6, 0, 0.8, 0.3)
    oicr = build_model.build_refinement("oicr", clusters)
    assignment = {"member_iou": 0.6, "ignore_iou": 0, "ignore_cover": 0.8, "cover_iou": 0.3}
    assert oicr == Refinement("oicr", **assignment)
    clusters = make_cfg(*words, "CLUSTERS.TOP_SHARE", "0.3", "CLUSTERS.NMS_IOU", "0.1").clusters
    chosen = {"top_share": 0.3, "nms_iou": 0.1}
    assert build_model.build_refinement("mist", clusters) == Refinement("mist", chosen, **assignment)


def test_the_drop_block_takes_its_keys(make_cfg):
    assert build_model.build_model(make_cfg()).box_features.drop_block is None
    words = ["ENABLED", "True", "SHARE", "0.9", "SIZE", "1", "TEMPERATURE", "0.5"]
    keys = [f"MODEL.DROP_BLOCK.{word}" if i % 2 == 0 else word for i, word in enumerate(words)]
    drop = build_model.build_model(make_cfg(*keys)).box_features.drop_block
    assert isinstance(drop, ConcreteDropBlock)
    assert (drop.limit, drop.size, drop.temperature, drop.gradient_factor) == (0.9, 1, 0.5, 1)
    assert isinstance(drop.norm, torch.nn.GroupNorm)


def test_what_mists_code_has_of_its_own(make_cfg):
    words = ["MODEL.METHOD", "mist_wetectron", "MODEL.REGRESSION.ENABLED", "True"]
    words += ["MODEL.REGRESSION.WEIGHT", "0.5", "MODEL.STREAMS", "2", "MODEL.DROP_BLOCK.ENABLED", "True"]
    words += ["MODEL.STREAM_WEIGHTS", "3,1", "MODEL.MIL_BACKGROUND", "True"]
    cfg = make_cfg(*words, "CLUSTERS.TOP_SHARE", "0.3", "CLUSTERS.NMS_IOU", "0.1", "CLUSTERS.IGNORE_IOU", "0")
    model, criterion = build_model.build_model(cfg), build_model.build_criterion(cfg)
    assert model.head.classes.out_features == 21
    assert len(model.regression.boxes) == 2
    assert criterion.regression == StreamRegressionLoss(0.5, "all")
    rule = criterion.refinement.rule
    assert (rule.func, rule.keywords) == (suppressed_by_any, {"top_share": 0.3, "nms_iou": 0.1})
    assert criterion.refinement.ignore_iou == 0
    drop = model.box_features.drop_block
    assert (drop.bound, drop.rescale, drop.norm.num_features) == ("scale", "batch", 512)
    assert (drop.gradient_factor, type(drop.norm)) == (0.01, torch.nn.BatchNorm2d)


@pytest.mark.parametrize(("method", "last"), [("mist", torch.nn.ReLU), ("mist_wetectron", torch.nn.Identity)])
def test_vgg16_of_mists_code_has_no_last_relu(make_cfg, method, last):
    words = ["MODEL.METHOD", method, "MODEL.BACKBONE.NAME", "vgg16", "MODEL.BOX_FEATURES.WIDTHS", "8,"]
    assert type(build_model.build_model(make_cfg(*words)).backbone.features[-1]) is last


@pytest.mark.parametrize(
    ("method", "labels", "rule"),
    [
        ("wsddn", "top1", "oicr"),
        ("pcl", "top1", "oicr"),
        ("pcl", "clusters", "pcl"),
        ("mist", "clusters", "mist"),
    ],
)
def test_any_method_can_have_a_regression_branch(make_cfg, method, labels, rule):
    words = ["MODEL.METHOD", method, "MODEL.REGRESSION.LABELS", labels, "MODEL.REGRESSION.WEIGHT", "0.5"]
    assert build_model.build_criterion(make_cfg(*words)).regression is None
    assert build_model.build_model(make_cfg(*words)).regression is None
    words += ["MODEL.REGRESSION.ENABLED", "True", "CLUSTERS.MEMBER_IOU", "0.6"]
    words += ["MODEL.REGRESSION.SCORE_WEIGHT", "3"]
    loss = build_model.build_criterion(make_cfg(*words)).regression
    assert loss.labels.rule == rule
    assert (loss.labels.member_iou, loss.weight, loss.box_reduction) == (0.6, 0.5, "weighted")
    branch = build_model.build_model(make_cfg(*words)).regression
    assert (branch.boxes.out_features, branch.score_weight) == (80, 3)


def test_optimizers(make_cfg):
    model = build_model.build_model(make_cfg())
    sgd = build.build_optimizer(
        make_cfg("SOLVER.MOMENTUM", "0.8", "SOLVER.BACKBONE_LR_FACTOR", "0.5").solver, model
    )
    assert isinstance(sgd, torch.optim.SGD)
    assert {g["momentum"] for g in sgd.param_groups} == {0.8}
    assert {g["initial_lr"] for g in sgd.param_groups} == {5e-4, 1e-3, 2e-3}  # backbone, weights, biases
    adamw = build.build_optimizer(make_cfg("SOLVER.OPTIMIZER", "adamw").solver, model)
    assert isinstance(adamw, torch.optim.AdamW)


def test_parts_of_the_model_have_learning_rates_of_their_own(make_cfg):
    words = ["MODEL.DROP_BLOCK.ENABLED", "True", "SOLVER.BASE_LR", "0.01", "SOLVER.STEPS", "10,"]
    words += ["SOLVER.REFINEMENT_LR_FACTOR", "10", "SOLVER.DROP_BLOCK_LR_FACTOR", "0.01"]
    words += ["SOLVER.DROP_BLOCK_GAMMA", "3", "SOLVER.WARMUP_ITERS", "0"]
    cfg = make_cfg(*words)
    model = build_model.build_model(cfg)
    optimizer, schedule = build.build_optimizer(cfg.solver, model), build.build_lr_factor(cfg.solver)

    def rates(iteration):
        set_lr(optimizer, schedule, iteration)
        found = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
        stream, block = model.head.refinements[1], model.box_features.drop_block
        shown = (model.head.classes.weight, stream.weight, stream.bias, block.reduce.weight)
        return [found[id(p)] for p in shown]

    assert rates(0) == pytest.approx([0.01, 0.1, 0.2, 1e-4])
    assert rates(10) == pytest.approx([0.001, 0.01, 0.02, 3e-4])


def test_gradients_are_averaged_or_summed(make_cfg):
    words = ["SOLVER.IMAGES_PER_BATCH", "2", "SOLVER.ACCUMULATE", "3"]
    assert build.build_train_options(make_cfg(*words).solver, 0).gradient_factor == 1
    words += ["SOLVER.GRADIENT_REDUCTION", "sum", "SOLVER.SCALE_MOMENTUM", "True"]
    options = build.build_train_options(make_cfg(*words).solver, 0)
    assert (options.gradient_factor, options.scale_momentum) == (6, True)


def test_test_passes_are_sizes_times_flips(make_cfg):
    def passes(*more):
        cfg = make_cfg("INPUT.TEST_SIZES", "(100, 200)", *more)
        return [(t.size, t.flip) for t in build_data.build_test_transforms(cfg.input)]

    assert passes() == [(100, False), (100, True), (200, False), (200, True)]
    assert passes("INPUT.TEST_FLIP", "False") == [(100, False), (200, False)]


def test_each_test_size_has_its_side_and_cap(make_cfg):
    words = ["INPUT.TEST_SIZES", "(480, 576)", "INPUT.TEST_FLIP", "False", "INPUT.MAX_SIZE", "900"]

    passes = [t.size_options for t in build_data.build_test_transforms(make_cfg(*words).input)]
    assert passes == [(480, "shortest", 900), (576, "shortest", 900)]
    changed = make_cfg(*words, "INPUT.TEST_SIDE", "longest")
    assert {t.side for t in build_data.build_test_transforms(changed.input)} == {"longest"}
    assert changed.input.side == "shortest"


def test_pretrained_weights_that_are_missing_or_do_not_fit_are_named(make_cfg, tmp_path):
    cfg = make_cfg("MODEL.BACKBONE.NAME", "vgg16", "MODEL.WEIGHTS", str(tmp_path / "w.pth"))
    model = build_model.build_model(cfg)
    with pytest.raises(FileNotFoundError, match=r"MODEL.WEIGHTS: .*w.pth does not exist; download it"):
        build_backbone.load_pretrained(cfg.model, cfg.input, model)
    save_weights(tmp_path / "w.pth", Weights({"features.0.weight": torch.zeros(1)}, TORCHVISION))
    with pytest.raises(ValueError, match=r"MODEL.WEIGHTS is '.*w.pth', which cannot be used: .*features"):
        build_backbone.load_pretrained(cfg.model, cfg.input, model)
    (tmp_path / "w.pth").write_bytes(b"words")
    with pytest.raises(ValueError, match=r"MODEL.WEIGHTS is '.*w.pth', which cannot be used"):
        build_backbone.load_pretrained(cfg.model, cfg.input, model)


def test_pretrained_weights_of_vgg16_reach_the_model(make_cfg, tmp_path):
    cfg = make_cfg("MODEL.BACKBONE.NAME", "vgg16", "MODEL.WEIGHTS", str(tmp_path / "w.pth"))
    model = build_model.build_model(cfg)
    weights = {k: torch.full_like(v, 0.5) for k, v in model.backbone.state_dict().items()}
    layers = model.box_features.layers.state_dict()
    weights |= {f"classifier.{k}": torch.full_like(v, 0.25) for k, v in layers.items()}
    weights["classifier.6.weight"] = torch.zeros(1000, 8)
    save_weights(tmp_path / "w.pth", Weights(weights, TORCHVISION))
    build_backbone.load_pretrained(cfg.model, cfg.input, model)
    assert all((p == 0.5).all() for p in model.backbone.parameters())
    assert all((p == 0.25).all() for p in model.box_features.parameters())


def test_weights_that_expect_another_preprocessing_are_refused(make_cfg, tmp_path):
    cfg = make_cfg("MODEL.BACKBONE.NAME", "resnet18", "MODEL.WEIGHTS", str(tmp_path / "w.pth"))
    model = build_model.build_model(cfg)
    weights = {k: torch.full_like(v, 0.5) for k, v in model.backbone.state_dict().items()}
    save_weights(tmp_path / "w.pth", Weights(weights, replace(TORCHVISION, std=(0.5, 0.5, 0.5))))
    with pytest.raises(
        ValueError, match=r"expect mean .* std \[0.5, .*, but INPUT has mean .* std \[0.229, "
    ):
        build_backbone.load_pretrained(cfg.model, cfg.input, model)
    save_weights(tmp_path / "w.pth", Weights(weights, TORCHVISION))
    build_backbone.load_pretrained(cfg.model, cfg.input, model)
    assert all((p == 0.5).all() for p in model.backbone.parameters())


@pytest.mark.parametrize(("name", "stride"), [("vgg16", 16), ("resnet18", 16), ("resnet34", 8)])
def test_backbones_take_stride_and_frozen_stages(make_cfg, name, stride):
    words = ["MODEL.BACKBONE.NAME", name, "MODEL.BACKBONE.STRIDE", str(stride)]
    backbone = build_backbone.build_backbone(
        make_cfg(*words, "MODEL.BACKBONE.FROZEN_STAGES", "0").model.backbone
    )
    assert backbone.stride == stride
    assert all(p.requires_grad for p in backbone.parameters())
    frozen = build_backbone.build_backbone(
        make_cfg(*words, "MODEL.BACKBONE.FROZEN_STAGES", "2").model.backbone
    )
    assert not all(p.requires_grad for p in frozen.parameters())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("FROZEN_STAGES", 4, "FROZEN_STAGES is 4, expected 0 or 1 or 2 or 3, because .* 'vgg16'"),
        ("STRIDE", 32, "MODEL.BACKBONE.STRIDE is 32, expected 8 or 16, because .* 'vgg16'"),
        ("NAME", "small", "FROZEN_STAGES is 2, expected 0, because .* 'small'"),
    ],
)
def test_strides_and_stages_that_a_backbone_cannot_have(key, value, message):
    cfg = with_values(Settings(), {f"MODEL.BACKBONE.{key}": value})
    with pytest.raises(ConfigError, match=message):
        build_backbone.build_backbone(cfg.model.backbone)


def test_the_config_offers_the_backbones_that_can_be_built():
    assert KEYS["MODEL.BACKBONE.NAME"].choices == (*build_backbone.LIMITS, "timm")


def test_the_small_backbone_has_no_pretrained_weights(make_cfg):
    cfg = make_cfg("MODEL.WEIGHTS", "a.pth")
    with pytest.raises(ConfigError, match=r"MODEL.WEIGHTS is 'a.pth', expected ''"):
        build_backbone.load_pretrained(cfg.model, cfg.input, build_model.build_model(cfg))


def test_timm_takes_name_stride_and_frozen_stages(make_cfg):
    pytest.importorskip("timm")
    words = ["MODEL.BACKBONE.NAME", "timm", "MODEL.BACKBONE.TIMM_NAME", "resnet10t"]
    frozen = ["MODEL.BACKBONE.FROZEN_STAGES", "2"]
    backbone = build_backbone.build_backbone(
        make_cfg(*words, *frozen, "MODEL.BACKBONE.STRIDE", "8").model.backbone
    )
    assert backbone.stride == 8
    assert any(not p.requires_grad for p in backbone.parameters())
    free = build_backbone.build_backbone(make_cfg(*words, "MODEL.BACKBONE.FROZEN_STAGES", "0").model.backbone)
    assert all(p.requires_grad for p in free.parameters())


def test_timm_missing_is_said(make_cfg, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "detector.modeling.backbones.timm", None)
    with pytest.raises(ValueError, match="not installed: pip install timm"):
        build_backbone.build_backbone(
            make_cfg("MODEL.BACKBONE.NAME", "timm", "MODEL.BACKBONE.TIMM_NAME", "resnet10t").model.backbone
        )


def test_coco_sets_take_their_paths_and_crowds_from_the_config(make_cfg, tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.jpg").touch()
    crowd = {"id": 1, "image_id": 1, "category_id": 7, "bbox": [1, 1, 4, 4], "iscrowd": 1}
    content = {
        "images": [{"id": 1, "file_name": "a.jpg", "height": 9, "width": 9}],
        "annotations": [crowd],
        "categories": [{"id": 7, "name": "cat"}],
    }
    (tmp_path / "train.json").write_text(json.dumps(content))
    words = ["DATASETS.FORMAT", "coco", "DATASETS.ROOT", str(tmp_path), "DATASETS.CLASSES", "[]"]
    words += ["DATASETS.COCO_JSON", "{split}.json", "DATASETS.COCO_IMAGES", "pictures"]
    cfg = make_cfg(*words)
    dataset = build_data.build_dataset(cfg, "train")
    assert dataset.labels(0).tolist() == [1]
    named = build_data.name_classes(cfg, dataset)
    assert named.datasets.classes == ("cat",)
    assert cfg.datasets.classes == ()
    assert build_data.name_classes(named, None) is named
    without = make_cfg(*words, "DATASETS.DIFFICULT_LABELS", "False")
    with pytest.warns(UserWarning, match="1 of 1 images show no class"):
        assert build_data.build_dataset(without, "train").labels(0).tolist() == [0]


@pytest.mark.parametrize(
    ("metrics", "format_", "asked"),
    [("auto", "voc", False), ("auto", "coco", True), ("voc", "coco", False), ("coco", "voc", True)],
)
def test_coco_figures_are_for_coco_sets_or_on_request(make_cfg, metrics, format_, asked):
    pytest.importorskip("pycocotools")
    assert build.wants_coco_metrics(metrics, format_) == asked


def test_results_are_of_the_weights(make_cfg, tmp_path):
    path, keys = tmp_path / "weights.pt", set()
    for content in (b"weights", b"other weights"):
        path.write_bytes(content)
        keys.add(results_key(make_cfg(), path))
    assert len(keys) == 2


@pytest.mark.parametrize("student", [False, True])
def test_keys_that_change_no_result_make_no_other_test(make_cfg, tmp_path, student):
    (tmp_path / "weights.pt").write_bytes(b"weights")

    def key(*words):
        return results_key(make_cfg(*words), tmp_path / "weights.pt", student)

    for word in (
        "DEVICE=cpu",
        "INPUT.FLIP=False",
        "MODEL.BOX_FEATURES.CHUNK=9",
        "SELF_TRAIN.NMS=0.5",
        "SOLVER.MAX_ITER=7",
        "TEST.PICTURES=3",
        "OUTPUT_DIR=elsewhere",
    ):
        assert key(word) == key()
    for word in ("TEST.NMS=0.4", "TEST.MAX_PER_CLASS=9", "PROPOSALS.MAX_COUNT=9", "INPUT.TEST_FLIP=False"):
        assert (key(word) == key()) == student
    assert (key("SELF_TRAIN.SIZES=[9]") == key()) != student
    for word in (
        "TEST.MAX_DETECTIONS=9",
        "TEST.SCORE_THRESHOLD=0.1",
        "PRECISION=bf16",
        "DATASETS.TEST_SPLIT=val",
    ):
        assert key(word) != key()


def test_results_are_of_the_proposals_and_not_of_their_path(make_cfg, tmp_path):
    (tmp_path / "weights.pt").write_bytes(b"weights")

    def key(name, bottom):
        save_proposals(tmp_path / name, ["a"], [np.array([[0, 0, 9, bottom]])], [(20, 30)])
        cfg = make_cfg("DATASETS.PROPOSALS", str(tmp_path / name))
        return results_key(cfg, tmp_path / "weights.pt")

    assert key("a.npz", 8) == key("moved.npz", 8)
    assert key("a.npz", 8) != key("a.npz", 7)


def test_speed_and_memory_are_as_configured(make_cfg):
    words = ["CHANNELS_LAST", "True", "MODEL.BACKBONE.RECOMPUTE", "True", "MODEL.BOX_FEATURES.CHUNK", "9"]
    model = build_model.build_model(make_cfg(*words))
    weight = next(model.backbone.parameters())
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert model.recompute_backbone
    assert model.box_features.chunk == 9


def test_the_student_scales_its_sizes_as_configured(make_cfg):
    words = ["SELF_TRAIN.BACKBONE", "mobilenet_v3", "SELF_TRAIN.SIZES", "60,80", "SELF_TRAIN.MAX_SIZE", "90"]
    transform = build_student.build_student(make_cfg(*words)).transform
    assert transform.scale_jitter == (1, 1)
    transform = build_student.build_student(make_cfg(*words, "SELF_TRAIN.SCALE_JITTER", "0.5,2")).transform
    assert transform.scale_jitter == (0.5, 2)
    assert (transform.min_size, transform.max_size) == ((60, 80), 90)


def groups_of(cfg):
    """The parameter groups of weights and of biases outside the backbone."""
    groups = build.build_optimizer(cfg.solver, build_model.build_model(cfg)).param_groups
    return [next(group for group in groups if group["name"] == f"head {kind}") for kind in ("weight", "bias")]


def bias_lr_factor(cfg):
    weights, biases = groups_of(cfg)
    return biases["initial_lr"] / weights["initial_lr"]


def choosing(cfg):
    """The options by which pseudo boxes are chosen."""
    images = SimpleNamespace(image_ids=["a"], labels=lambda index: torch.ones(20))
    with patch.object(build_student, "pseudo_boxes", lambda *_, **options: options):
        training_set = TrainingSet(images, reviewed={}, hints={}, proposals=None)
        return build_student.build_pseudo_boxes(cfg.self_train, training_set, of_student=False)(0, None)


def test_boxes_are_of_the_likely_tags(make_cfg):
    """The score 0.9 of a class without a tag makes up for it where 30 % of the tags are missing."""
    boxes = torch.tensor([[0.0, 0, 9, 9], [20, 20, 40, 40]])[:, None].expand(-1, 3, 4)
    scores = Scores("a", boxes, torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.9, 0.2]]))
    images = SimpleNamespace(image_ids=["a"], labels=lambda index: torch.tensor([1.0, 0, 0]))
    training_set = TrainingSet(images, reviewed={}, hints={}, proposals=None)
    found = [
        build_student.build_pseudo_boxes(
            make_cfg().self_train,
            training_set,
            of_student=False,
            noise=build_model.build_tag_noise(make_cfg(*words).datasets),
        )(0, scores)
        for words in ((), ("DATASETS.MISSING_TAGS", "0.3"))
    ]
    assert [sorted(each.labels.unique().tolist()) for each in found] == [[0], [0, 1]]


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("MODEL.MIL_REDUCTION", "sum", lambda cfg: build_model.build_criterion(cfg).mil_reduction),
        (
            "MODEL.BOX_FEATURES.OUTPUT_SIZE",
            3,
            lambda cfg: build_model.build_model(cfg).box_features.pool.output_size,
        ),
        ("MODEL.BOX_FEATURES.CONTEXT", 1.5, lambda cfg: build_model.build_model(cfg).box_features.context),
        ("SOLVER.BIAS_LR_FACTOR", 3, bias_lr_factor),
        ("SOLVER.BIAS_WEIGHT_DECAY", 0.25, lambda cfg: groups_of(cfg)[1]["weight_decay"]),
        ("SOLVER.GAMMA", 0.5, lambda cfg: build.build_lr_factor(cfg.solver).keywords["gamma"]),
        (
            "SOLVER.KEEP_CHECKPOINTS",
            7,
            lambda cfg: build.build_train_options(cfg.solver, cfg.seed).keep_checkpoints,
        ),
        ("SELF_TRAIN.RELATIVE_SCORES", True, lambda cfg: choosing(cfg)["relative"]),
        ("SELF_TRAIN.DROP_INSIDE", 0.75, lambda cfg: choosing(cfg)["drop_inside"]),
        (
            "SELF_TRAIN.ROIS",
            99,
            lambda cfg: build_student.build_student(cfg).roi_heads.fg_bg_sampler.batch_size_per_image,
        ),
        (
            "SELF_TRAIN.TEST_PROPOSALS",
            77,
            lambda cfg: build_student.build_student(cfg).eval().rpn.post_nms_top_n(),
        ),
        (
            "TEST.MAX_PER_CLASS",
            11,
            lambda cfg: build_model.build_postprocess(cfg.test).keywords["max_per_class"],
        ),
    ],
)
def test_keys_reach_what_is_built(make_cfg, key, value, found):
    assert found(make_cfg("SELF_TRAIN.BACKBONE", "small", key, str(value))) == value != KEYS[key].default

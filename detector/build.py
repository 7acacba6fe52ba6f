"""From a config to objects; detector/build_data.py makes the data sets and their batches.

The two are the only readers of configs beside the tools: all else takes plain arguments.
"""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from textwrap import shorten

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from yacs.config import CfgNode

from detector.build_data import build_watched
from detector.data.annotated import AnnotatedImages
from detector.engine.precision import Precision, set_tf32
from detector.engine.schedule import lr_factor, parameter_groups
from detector.engine.snapshots import Snapshots
from detector.engine.train import train
from detector.evaluation.coco import find_engine
from detector.evaluation.samples import choose_samples
from detector.modeling.backbones.resnet import ResNet, load_resnet_weights
from detector.modeling.backbones.small import SmallBackbone
from detector.modeling.backbones.vgg16 import VGG16, load_vgg16_weights
from detector.modeling.box_features import BoxFeatures
from detector.modeling.compiled import compile_model
from detector.modeling.drop_block import ConcreteDropBlock
from detector.modeling.faster_rcnn import TimmPyramid, faster_rcnn, torchvision_pyramid
from detector.modeling.head import Head, ImageHead
from detector.modeling.mist import MIST
from detector.modeling.oicr import OICR
from detector.modeling.pcl import PCL
from detector.modeling.postprocess import postprocess
from detector.modeling.regression import RegressionBranch, RegressionLoss
from detector.modeling.weak_rcnn import WeakRCNN
from detector.modeling.weights import TORCHVISION, Preprocessing, load_tensors, load_weights
from detector.modeling.wsddn import Criterion
from detector.structures import Detections, Scores
from detector.utils.distributed import local_rank, local_world_size, world_size
from detector.utils.logging import setup_logging
from detector.utils.reproducibility import seed_everything

# Training images that snapshots are taken of, and how many are looked at to choose them: COCO has 80,000.
_WATCHED, _CANDIDATES = 4, 1000


def build_device(cfg: CfgNode) -> torch.device:
    """The device that DEVICE names; "auto" is the GPU where there is one. Each process has its own GPU."""
    available = torch.cuda.is_available()
    if cfg.DEVICE == "cuda" and not available:
        raise ValueError("DEVICE is 'cuda', but torch finds no CUDA device; use DEVICE auto or DEVICE cpu")
    if not available or cfg.DEVICE == "cpu":
        return torch.device("cpu")
    if world_size() == 1:
        return torch.device("cuda")
    if local_world_size() > torch.cuda.device_count():
        raise ValueError(
            f"{local_world_size()} processes were started where there are {torch.cuda.device_count()} GPUs; "
            "give torchrun --nproc_per_node of at most that, or use DEVICE cpu"
        )
    return torch.device("cuda", local_rank())


def build_coco_engine(cfg: CfgNode) -> str | None:
    """The package that reckons COCO's figures, None where TEST.METRICS asks for none."""
    asked = cfg.TEST.METRICS == "coco" or (cfg.TEST.METRICS == "auto" and cfg.DATASETS.FORMAT == "coco")
    return find_engine() if asked else None


def start_run(cfg: CfgNode, folder: Path) -> torch.device:
    """The device to run on, once threads, seeds, the run folder and its log are set up."""
    device = build_device(cfg)
    if cfg.THREADS:
        torch.set_num_threads(cfg.THREADS)
    seed_everything(cfg.SEED, cfg.DETERMINISTIC)
    set_tf32(cfg.PRECISION == "tf32")
    torch.backends.cudnn.benchmark = cfg.CUDNN_BENCHMARK
    folder.mkdir(parents=True, exist_ok=True)
    setup_logging(folder / "log.txt")
    return device


def build_model(cfg: CfgNode) -> WeakRCNN:
    """The detector with random weights."""
    backbone = build_backbone(cfg)
    options = cfg.MODEL.BOX_FEATURES
    box_features = BoxFeatures(
        backbone.out_channels,
        backbone.stride,
        pool=options.POOL,
        output_size=options.OUTPUT_SIZE,
        widths=options.WIDTHS,
        dropout=options.DROPOUT,
        drop_cells=options.DROP_CELLS,
        drop_block=build_drop_block(cfg, backbone.out_channels),
        chunk=options.CHUNK,
    )
    streams = 0 if cfg.MODEL.METHOD == "wsddn" else cfg.MODEL.STREAMS
    num_classes = len(cfg.DATASETS.CLASSES)
    head = Head(box_features.out_features, num_classes, streams, init_std=cfg.MODEL.HEAD_STD)
    image_head = ImageHead(backbone.out_channels, num_classes) if cfg.MODEL.IMAGE_HEAD else None
    regression = build_regression(cfg, box_features.out_features)
    recompute = cfg.MODEL.BACKBONE.RECOMPUTE
    model = WeakRCNN(backbone, box_features, head, image_head, regression, recompute_backbone=recompute)
    if cfg.CHANNELS_LAST:
        backbone.to(memory_format=torch.channels_last)  # convolutions lay out features as their weights
    if cfg.COMPILE:
        compile_model(model)
    return model


def build_precision(cfg: CfgNode, device: torch.device) -> Precision:
    """What the model computes in, with the state (of float16's scaler) that a checkpoint keeps."""
    return Precision(cfg.PRECISION, device)


def build_backbone(cfg: CfgNode) -> nn.Module:
    """Images (B, 3, H, W) to features; it has `out_channels` and `stride`."""
    options = cfg.MODEL.BACKBONE
    if options.NAME == "small":
        return SmallBackbone()
    if options.NAME == "vgg16":
        return VGG16(stride=options.STRIDE, frozen_stages=options.FROZEN_STAGES)
    if options.NAME != "timm":
        return ResNet(options.NAME, stride=options.STRIDE, frozen_stages=options.FROZEN_STAGES)
    try:  # timm is an optional dependency
        from detector.modeling.backbones.timm import TimmBackbone
    except ImportError:
        raise ValueError("MODEL.BACKBONE.NAME is 'timm', which is not installed: pip install timm") from None
    return TimmBackbone(options.TIMM_NAME, stride=options.STRIDE, frozen_stages=options.FROZEN_STAGES)


def build_drop_block(cfg: CfgNode, channels: int) -> ConcreteDropBlock | None:
    """What learns to silence cells of pooled features (N, channels, S, S); None: nothing does."""
    options = cfg.MODEL.DROP_BLOCK
    if not options.ENABLED:
        return None
    return ConcreteDropBlock(
        channels,
        share=options.SHARE,
        size=options.SIZE,
        temperature=options.TEMPERATURE,
        gradient_factor=options.GRADIENT_FACTOR,
    )


def build_regression(cfg: CfgNode, in_features: int) -> RegressionBranch | None:
    """The branch that classifies and moves proposals by their features; None: there is none."""
    options = cfg.MODEL.REGRESSION
    if not options.ENABLED:
        return None
    return RegressionBranch(
        in_features,
        len(cfg.DATASETS.CLASSES),
        class_agnostic=options.CLASS_AGNOSTIC,
        init_std=cfg.MODEL.HEAD_STD,
        box_std=options.BOX_STD,
    )


def load_pretrained(cfg: CfgNode, model: WeakRCNN) -> None:
    """Load MODEL.WEIGHTS, those of an ImageNet classifier, into the model; nothing where it is "".

    Raises:
        FileNotFoundError, ValueError: there are none, they are of another network, or want another
            pre-processing than INPUT.MEAN and INPUT.STD.
    """
    source, backbone = cfg.MODEL.WEIGHTS, model.backbone
    if source == "":
        return
    try:
        weights = load_weights(source)
        configured = Preprocessing(cfg.INPUT.MEAN, cfg.INPUT.STD)
        if not weights.preprocessing.is_close(configured):
            raise ValueError(f"they want {weights.preprocessing}, but INPUT has {configured}")
        if isinstance(backbone, VGG16):
            load_vgg16_weights(backbone, model.box_features.layers, weights.tensors)
        elif isinstance(backbone, ResNet):
            load_resnet_weights(backbone, weights.tensors)
        else:
            from detector.modeling.backbones.timm import load_timm_weights

            load_timm_weights(backbone, weights.tensors)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"MODEL.WEIGHTS: {error}; download it, or use ''") from None
    except (RuntimeError, ValueError) as error:
        reason = shorten(str(error), 300)  # torch lists every key on lines of their own
        raise ValueError(f"MODEL.WEIGHTS is {source!r}, which cannot be used: {reason}") from error


def build_criterion(cfg: CfgNode) -> Criterion:
    """The losses of MODEL.METHOD, and of the regression branch where there is one."""
    refinement, regression = build_refinement(cfg), None
    if cfg.MODEL.REGRESSION.ENABLED:
        labels = build_oicr(cfg) if cfg.MODEL.REGRESSION.LABELS == "top1" else refinement
        regression = RegressionLoss(labels, cfg.MODEL.REGRESSION.WEIGHT)
    return Criterion(
        refinement,
        mil_reduction=cfg.MODEL.MIL_REDUCTION,
        stream_weights=cfg.MODEL.STREAM_WEIGHTS,
        regression=regression,
    )


def build_refinement(cfg: CfgNode) -> OICR | PCL | MIST | None:
    """How a refinement stream gets and learns its pseudo labels; None: there are no such streams."""
    options = cfg.CLUSTERS
    if cfg.MODEL.METHOD == "wsddn":
        return None
    if cfg.MODEL.METHOD == "oicr":
        return build_oicr(cfg)
    if cfg.MODEL.METHOD == "mist":
        return MIST(
            top_share=options.TOP_SHARE,
            nms_iou=options.NMS_IOU,
            member_iou=options.MEMBER_IOU,
            ignore_iou=options.IGNORE_IOU,
        )
    return PCL(
        graph_iou=options.GRAPH_IOU,
        max_centres=options.MAX_CENTRES,
        member_iou=options.MEMBER_IOU,
        ignore_iou=options.IGNORE_IOU,
    )


def build_oicr(cfg: CfgNode) -> OICR:
    """Pseudo labels from the best proposal of each class."""
    return OICR(member_iou=cfg.CLUSTERS.MEMBER_IOU, ignore_iou=cfg.CLUSTERS.IGNORE_IOU)


def accumulated_batches(cfg: CfgNode) -> int:
    """Batches that each process makes of a step.

    Raises:
        ValueError: SOLVER.IMAGES_PER_STEP cannot be shared by the processes.
    """
    solver, processes = cfg.SOLVER, world_size()
    if solver.IMAGES_PER_STEP == 0:
        return solver.ACCUMULATE
    accumulate, rest = divmod(solver.IMAGES_PER_STEP, solver.IMAGES_PER_BATCH * processes)
    if rest:
        raise ValueError(
            f"SOLVER.IMAGES_PER_STEP is {solver.IMAGES_PER_STEP}, expected a multiple of "
            f"{solver.IMAGES_PER_BATCH * processes}: {processes} processes share it, in batches of "
            f"SOLVER.IMAGES_PER_BATCH {solver.IMAGES_PER_BATCH}"
        )
    return accumulate


def images_per_step(cfg: CfgNode) -> int:
    """Images that all processes together make a step of."""
    return cfg.SOLVER.IMAGES_PER_BATCH * accumulated_batches(cfg) * world_size()


def base_lr(cfg: CfgNode) -> float:
    """The learning rate that BASE_LR and LR_SCALING give for the images a step."""
    scale = images_per_step(cfg) / cfg.SOLVER.LR_IMAGES if cfg.SOLVER.LR_SCALING == "linear" else 1
    return cfg.SOLVER.BASE_LR * scale


def build_optimizer(cfg: CfgNode, model: nn.Module) -> Optimizer:
    """The optimiser over the model's trainable parameters."""
    solver = cfg.SOLVER
    groups = parameter_groups(
        model,
        base_lr=base_lr(cfg),
        weight_decay=solver.WEIGHT_DECAY,
        backbone_lr_factor=solver.BACKBONE_LR_FACTOR,
        bias_lr_factor=solver.BIAS_LR_FACTOR,
        bias_weight_decay=solver.BIAS_WEIGHT_DECAY,
    )
    # One kernel for all, and it takes float16's overflows without the host. On the CPU, bits as they were.
    fused = next(model.parameters()).is_cuda
    if solver.OPTIMIZER == "sgd":
        return SGD(groups, momentum=solver.MOMENTUM, fused=fused)
    return AdamW(groups, fused=fused)


def build_lr_factor(cfg: CfgNode) -> Callable[[int], float]:
    """Number of finished steps to the factor of the learning rate."""
    solver = cfg.SOLVER
    return partial(
        lr_factor,
        max_iter=solver.MAX_ITER,
        schedule=solver.SCHEDULE,
        steps=solver.STEPS,
        gamma=solver.GAMMA,
        warmup_iters=solver.WARMUP_ITERS,
        warmup_factor=solver.WARMUP_FACTOR,
    )


def build_training(cfg: CfgNode) -> Callable[..., float]:
    """:func:`train` with what SEED and SOLVER say of it."""
    solver = cfg.SOLVER
    return partial(
        train,
        seed=cfg.SEED,
        max_iter=solver.MAX_ITER,
        lr_factor=build_lr_factor(cfg),
        accumulate=accumulated_batches(cfg),
        clip_norm=solver.CLIP_NORM,
        log_period=solver.LOG_PERIOD,
        checkpoint_period=solver.CHECKPOINT_PERIOD,
        keep_checkpoints=solver.KEEP_CHECKPOINTS,
        config=cfg.dump(),
    )


def build_snapshots(cfg: CfgNode, dataset: AnnotatedImages) -> Snapshots | None:
    """What looks every SOLVER.PICTURE_PERIOD steps at what the streams see; None: nothing does."""
    if cfg.SOLVER.PICTURE_PERIOD == 0:
        return None
    candidates = range(min(len(dataset), _CANDIDATES))
    indices = choose_samples([dataset.labels(i) for i in candidates], _WATCHED)
    views = build_watched(cfg, dataset, indices)
    usable = [k for k, each in enumerate(views) if len(each.proposals) and each.samples[0].labels.any()]
    return Snapshots(
        [views[k] for k in usable],
        [dataset.read_image(indices[k]) for k in usable],
        dataset.class_names,
        build_refinement(cfg),
        cfg.SOLVER.PICTURE_PERIOD,
    )


def self_training_cfg(cfg: CfgNode) -> CfgNode:
    """The config of self-training's detector: SELF_TRAIN in the place of what SOLVER says."""
    options, changed = cfg.SELF_TRAIN, cfg.clone()
    changed.defrost()
    for key in ("MAX_ITER", "IMAGES_PER_BATCH", "BASE_LR"):
        changed.SOLVER[key] = options[key]
    changed.SOLVER.ACCUMULATE, changed.SOLVER.SCHEDULE = 1, "cosine"
    changed.SOLVER.IMAGES_PER_STEP, changed.SOLVER.LR_SCALING = 0, "none"
    changed.SOLVER.BACKBONE_LR_FACTOR = 1.0  # the pyramid, which is new, belongs to the backbone
    changed.freeze()
    return changed


def build_faster_rcnn(cfg: CfgNode) -> nn.Module:
    """The detector of self-training, with its ImageNet weights.

    Raises:
        FileNotFoundError, ValueError: there are no such weights, or they are of another network.
    """
    options, backbone = cfg.SELF_TRAIN, cfg.SELF_TRAIN.BACKBONE
    mean, std = cfg.INPUT.MEAN, cfg.INPUT.STD
    if backbone == "timm":
        pyramid: nn.Module = TimmPyramid(cfg.MODEL.BACKBONE.TIMM_NAME)
    else:
        try:
            weights = load_tensors(options.WEIGHTS) if options.WEIGHTS else None
            pyramid = torchvision_pyramid(backbone, weights)
        except (RuntimeError, ValueError) as error:
            reason = shorten(str(error), 300)
            raise ValueError(
                f"SELF_TRAIN.WEIGHTS is {options.WEIGHTS!r}, which does not fit: {reason}"
            ) from error
        mean, std = TORCHVISION.mean, TORCHVISION.std
    model = faster_rcnn(
        pyramid,
        len(cfg.DATASETS.CLASSES),
        sizes=options.SIZES,
        max_size=options.MAX_SIZE,
        mean=mean,
        std=std,
        max_detections=cfg.TEST.MAX_DETECTIONS,
    )
    if backbone == "timm":
        load_pretrained(cfg, model)
    return model


def results_key(cfg: CfgNode, weights: Path) -> str:
    """What the results of a test depend on, in 64 characters: the weights, and the keys that matter to it."""
    relevant = cfg.clone()
    relevant.defrost()
    for key in ("SOLVER", "SELF_TRAIN", "OUTPUT_DIR", "THREADS"):
        del relevant[key]
    del relevant.DATASETS["WORKERS"]
    digest = hashlib.sha256(relevant.dump().encode())
    with open(weights, "rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


def build_postprocess(cfg: CfgNode) -> Callable[[Scores], Detections]:
    """From the scores of an image's proposals to its detections."""
    return partial(
        postprocess,
        score_threshold=cfg.TEST.SCORE_THRESHOLD,
        nms_threshold=cfg.TEST.NMS,
        max_detections=cfg.TEST.MAX_DETECTIONS,
    )

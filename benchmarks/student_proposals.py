"""A student's region proposals instead of selective search: their recall, and a weak detector that uses them.

    python benchmarks/student_proposals.py photos --only search --only student [--seeds 3] [--jobs 1]
    python benchmarks/student_proposals.py photos --resume [--seeds 3] [--jobs 1] [KEY VALUE ...]

The first argument is a data set of benchmarks/few_boxes.py. The first command makes weak detectors with
selective search and their students. The second finds the proposals of these students, best first, and trains
weak detectors on them ("regions") and on them followed by those of selective search ("both").
"""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from few_boxes import DATA, PLAIN, take_data_set
from methods import ROOT, compare

import detector
from detector.config import load_cfg
from detector.data.build import build_dataset
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.proposals.file import load_proposals, save_proposals
from detector.evaluation.coverage import best_overlaps, recall
from detector.self_training.faster_rcnn import FasterRCNN
from detector.structures import clip_boxes, scale_boxes

MOST = 1500


@torch.no_grad()
def regions(model: FasterRCNN, image: torch.Tensor) -> torch.Tensor:
    """The proposals (R, 4) of the network's first stage for an image (3, H, W) in [0, 1], best first."""
    batch, _ = model.transform([image])
    (boxes,), _ = model.rpn(batch, model.backbone(batch.tensors))
    (height, width), (resized_height, resized_width) = image.shape[1:], batch.image_sizes[0]
    return clip_boxes(scale_boxes(boxes, width / resized_width, height / resized_height), height, width).cpu()


def prepare(data_set: str, names: Sequence[str], overrides: Sequence[str]) -> None:
    """Write the proposals of all images for each seed whose student exists, and print their recall."""
    cfg = load_cfg(ROOT / DATA[data_set], overrides)
    searched = load_proposals(cfg.datasets.proposals)
    sets = [build_dataset(cfg, split) for split in (cfg.datasets.train_split, cfg.datasets.test_split)]
    for run in sorted(ROOT.glob(f"runs/methods_student_proposals_{data_set}/student_[0-9]")):
        folder = ROOT / f"runs/student_proposals_{data_set}"
        files = {name: folder / f"{name}_{run.name[-1]}.npz" for name in ("regions", "both")}
        if all(file.exists() for file in files.values()):
            continue
        model = detector.load(run, model="student").model
        assert isinstance(model, FasterRCNN)
        model.rpn._pre_nms_top_n["testing"] = model.rpn._post_nms_top_n["testing"] = MOST
        device = next(model.parameters()).device
        found, sizes = {}, {}
        for dataset in sets:
            for index, image_id in enumerate(dataset.image_ids):
                image = dataset.read_image(index).to(device).float() / 255
                found[image_id], sizes[image_id] = regions(model, image), dataset.image_size(index)
        both = {image_id: torch.cat([found[image_id], searched[image_id]]) for image_id in found}
        for name, boxes in {"regions": found, "both": both}.items():
            files[name].parent.mkdir(parents=True, exist_ok=True)
            save_proposals(files[name], list(boxes), list(boxes.values()), list(sizes.values()))
            print(name, run.name, *(coverage(sets[1], boxes, n) for n in (100, 500, MOST)), flush=True)


def coverage(dataset: AnnotatedImages, boxes: Mapping[str, torch.Tensor], count: int) -> str:
    """Percent of the objects of a split that the first `count` proposals cover at IoU 0.5 and 0.7."""
    annotations = [a for i in range(len(dataset)) if (a := dataset.annotation(i)) is not None]
    overlaps = [best_overlaps(boxes[a.image_id][:count], a) for a in annotations]
    both = [
        recall(overlaps, annotations, len(dataset.class_names), iou_threshold=iou)[-1] for iou in (0.5, 0.7)
    ]
    return f"{count}: {100 * both[0]:.1f} / {100 * both[1]:.1f}"


if __name__ == "__main__":
    config = DATA[data_set := take_data_set()]
    folder = f"runs/student_proposals_{data_set}"
    variants = {"search": ()} | {
        name: ("DATASETS.PROPOSALS", f"{folder}/{name}_{{seed}}.npz", "PROPOSALS.MAX_COUNT", str(MOST))
        for name in ("regions", "both")
    }
    students = {"student": (("search",), PLAIN)}
    compare(f"student_proposals_{data_set}", config, variants, students, partial(prepare, data_set))

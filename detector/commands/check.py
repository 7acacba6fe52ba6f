"""The command `detector check`."""

import shlex
import statistics
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from detector.commands.check_tags import check_tags
from detector.commands.check_teacher import check_teacher
from detector.config import Settings, load_cfg
from detector.data.build import build_dataset, build_hints, build_proposals, build_reviewed, name_classes
from detector.data.check import (
    Pixels,
    doubtful_classes,
    near_duplicates,
    odd_boxes,
    page_findings,
    read_all,
    repeated_images,
    tag_findings,
)
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.datasets.coco import COCODataset
from detector.data.formats.coco import read as read_coco
from detector.data.loader import is_large
from detector.data.orientation import Boxed, find_turns
from detector.data.padding import padding_findings
from detector.data.proposals import Proposals, clean_proposals
from detector.data.reviewed import describe_reviewed
from detector.data.tile_choice import tile_findings
from detector.data.training_set import TrainingSet
from detector.evaluation.coverage import best_overlaps, recall
from detector.evaluation.pictures import choose_samples, encode_samples
from detector.evaluation.summary import align
from detector.inference.results import annotations
from detector.structures import Annotation, Hints, ReviewedBoxes, box_area
from detector.utils.command_line import next_step, teacher_words
from detector.utils.distributed import find_device
from detector.utils.errors import UserError, counted, shortened
from detector.utils.outputs import OutputFolder
from detector.utils.progress import progress_bar

_SHOWN = 5  # of each kind of problem
_IOUS = (0.5, 0.7)
_TINY = 64  # pixels
_LEAST_RECALL = 0.8


def check(config_file: str | Path, overrides: Sequence[object] = ()) -> bool:
    """Print a report of both splits, and draw a sheet of samples of each, OUTPUT_DIR/check/SPLIT.png.

    Every image is read.

    Returns:
        whether there is a file of proposals, without which no training begins.

    Raises:
        UserError: something would stop a run: an image cannot be read, or the proposals are of other images.
    """
    cfg = load_cfg(config_file, overrides)
    train_set = build_dataset(cfg, cfg.datasets.train_split)
    cfg = name_classes(cfg, train_set)
    datasets = {cfg.datasets.train_split: train_set}
    if cfg.datasets.test_split not in datasets:
        datasets[cfg.datasets.test_split] = build_dataset(cfg, cfg.datasets.test_split)
    outputs = OutputFolder(Path(cfg.output_dir, "check"), "check")
    of_teacher = ["teacher.json", "teacher.png"] if cfg.datasets.teacher else []
    outputs.check([*(f"{split}.png" for split in datasets), *of_teacher])
    problems = device_problems(cfg)
    training_set = read_boxes_and_hints(cfg, train_set, problems)
    readable: dict[str, dict[str, Pixels]] = {}  # of each data set, the images that can be read, by id
    for split, dataset in datasets.items():
        print(f"{dataset.name}: {describe_images(dataset)}")
        reading = read_all(dataset, cfg.datasets.workers)
        pixels = [*progress_bar(reading, total=len(dataset), desc=dataset.name)]
        unreadable = {i: picture.error for i, picture in enumerate(pixels) if picture.error is not None}
        images = zip(dataset.image_ids, pixels, strict=True)
        readable[dataset.name] = {image_id: picture for image_id, picture in images if picture.error is None}
        truth = annotations(dataset)
        counts, overlaps = list[int](), list[Tensor]()
        proposals = None
        try:
            proposals = build_proposals(cfg.datasets, dataset)
            counts, overlaps = measure_proposals(cfg, dataset, truth, proposals)
        except FileNotFoundError as error:
            print(error)
        except UserError as error:
            problems.append(str(error))
        check_truth(dataset, truth, cfg.proposals.min_size)
        warn_of_turned(dataset, truth, unreadable)
        labels, lines = dataset.all_labels(), []
        if dataset is train_set:
            labels = training_set.labels()
            lines += doubtful_classes(dataset.name, training_set.label_counts(), len(dataset))
            lines += tag_findings(dataset.name, labels, dataset.class_names)
            if cfg.solver.images_per_batch > 1:
                size = max(cfg.input.train_sizes)
                lines += padding_findings(dataset, size, cfg.input.side, cfg.input.max_size)
        lines += findings(dataset, list(truth.values()), overlaps)
        lines += size_findings(cfg, dataset, truth)
        lines += page_findings(dataset.name, readable[dataset.name])
        print(f"\n{class_table(dataset, labels, list(truth.values()), overlaps)}\n")
        for line in lines:
            print(f"warning    {line}")
        if counts:
            low, median, high = min(counts), statistics.median(counts), max(counts)
            print(f"proposals  {low}/{median:.0f}/{high} per image (min/median/max), as a detector gets them")
        problems += unreadable.values()
        sheet = draw_samples(cfg, dataset, proposals if counts else None, unreadable)
        print(f"samples    {outputs.write(f'{split}.png', sheet) if sheet else 'none'}\n")
    if len(readable) > 1 and (leaked := leaked_images(*readable.values())):
        print(f"warning    {leaked}\n")
    if repeated := repeated_images(datasets.values(), readable):
        print(f"same pixels:{_block(repeated)}\n")
    check_teacher(cfg, outputs, problems)
    if problems:
        raise UserError(f"what would stop a run:{_block(problems)}")
    return Path(cfg.datasets.proposals).is_file()


def device_problems(cfg: Settings) -> list[str]:
    """That the device of the config is not there; []: it is."""
    try:
        find_device(cfg.device)
    except UserError as error:
        return [str(error)]
    return []


def describe_images(dataset: AnnotatedImages) -> str:
    sizes = np.array([dataset.image_size(i) for i in range(len(dataset))])  # (N, 2)
    height, width = np.median(sizes, axis=0)
    low, high = sizes.min(axis=0), sizes.max(axis=0)
    without = int((~dataset.all_labels().any(axis=1)).sum())
    return (
        f"{len(dataset)} images, {without} of them without a class, {low[1]} to {high[1]} pixels wide "
        f"(median {width:.0f}), {low[0]} to {high[0]} high (median {height:.0f})"
    )


def read_boxes_and_hints(cfg: Settings, train_set: AnnotatedImages, problems: list[str]) -> TrainingSet:
    """The tags, reviewed boxes and hints; prints how many there are, and adds errors to `problems`."""
    reviewed: Mapping[str, ReviewedBoxes] = {}
    hints: Mapping[str, Hints] = {}
    try:
        reviewed = build_reviewed(cfg, train_set)  # warns of what is odd about them
        hints = build_hints(cfg.datasets, train_set)
    except (UserError, OSError) as error:
        problems.append(str(error))
    if reviewed:
        print(f"{train_set.name}: {describe_reviewed(train_set, reviewed)}")
    if hints:
        print(f"{train_set.name}: {len(hints)} of {len(train_set)} images have points or counts")
    return TrainingSet(train_set, reviewed, hints, proposals=None)


def findings(dataset: AnnotatedImages, truth: Sequence[Annotation], overlaps: Sequence[Tensor]) -> list[str]:
    """What images and proposals will make worse, and what to do."""
    lines = []
    if tiny := [i for i in range(len(dataset)) if min(dataset.image_size(i)) < _TINY]:
        lines.append(
            f"{dataset.name}: {counted(len(tiny), 'image has', 'images have')} a side of "
            f"fewer than {_TINY} pixels, such as {dataset.image_path(tiny[0])}: "
            "objects in them are a few cells of the features; use larger ones"
        )
    if overlaps:
        shares = recall(overlaps, truth, len(dataset.class_names), iou_threshold=0.5)
        if shares[-1] < _LEAST_RECALL:
            lines.append(
                f"{dataset.name}: the proposals cover {shares[-1]:.0%} of the objects at IoU 0.5; others "
                "are never found: raise PROPOSALS.LONGEST_SIDE or MAX_COUNT, or set a mode of quality"
            )
    return lines


def size_findings(cfg: Settings, dataset: AnnotatedImages, truth: Mapping[int, Annotation]) -> list[str]:
    """Whether objects are too small for the network, by ground-truth boxes or else those of self-training."""
    boxes = [annotation.boxes for annotation in truth.values()]
    pseudo = Path(cfg.output_dir, "self_train", "pseudo", f"{cfg.datasets.train_split}.json")
    if not boxes and pseudo.is_file():
        found = [box.box for image in read_coco(pseudo) for box in image.boxes]
        boxes = [torch.tensor(found).reshape(-1, 4)]
    sides = torch.cat([box_area(of_image).sqrt() for of_image in boxes]).tolist() if boxes else []
    longest = statistics.median(max(dataset.image_size(i)) for i in range(len(dataset)))
    return tile_findings(dataset.name, longest, sides, max(cfg.input.test_sizes), cfg.input.tile)


def leaked_images(train: Mapping[str, Pixels], test: Mapping[str, Pixels]) -> str:
    """A message where images of the test split are nearly in the training split, too; else ""."""
    pairs = near_duplicates(*([pixels.sketch for pixels in split.values()] for split in (train, test)))
    if not pairs:
        return ""
    train_ids, test_ids = list(train), list(test)
    shown = _block([f"{train_ids[i]} and {test_ids[j]}" for i, j in pairs])
    return (
        f"{counted(len({j for _, j in pairs}), 'image', 'images')} to test on nearly the same as "
        f"some to train on: the results will be too good; move both into one split:{shown}"
    )


def measure_proposals(
    cfg: Settings, dataset: AnnotatedImages, truth: Mapping[int, Annotation], proposals: Proposals
) -> tuple[list[int], list[Tensor]]:
    """The number of proposals of each image, and how well each of `truth`, by image, is covered."""
    counts, overlaps = [], []
    for index, image_id in enumerate(dataset.image_ids):
        boxes = clean(cfg, proposals, image_id)
        counts.append(len(boxes))
        if index in truth:
            overlaps.append(best_overlaps(boxes, truth[index]))
    return counts, overlaps


def clean(cfg: Settings, proposals: Proposals, image_id: str) -> Tensor:
    """The proposals (R, 4) of an image as a detector gets them."""
    options, boxes = cfg.proposals, proposals[image_id]
    most = len(boxes) if cfg.input.tile else options.max_count  # which is then of each tile
    return clean_proposals(boxes, min_size=options.min_size, stride=1, max_count=most)


def check_truth(dataset: AnnotatedImages, truth: Mapping[int, Annotation], min_side: float) -> None:
    """Print how many images have ground-truth boxes, and what is odd about some."""
    if not truth:
        print("no image has ground-truth boxes: only how well the labels are predicted can be measured")
    elif len(truth) < len(dataset):
        boxed = f"{len(truth)} of {len(dataset)} images"
        print(f"ground-truth boxes in {boxed}: AP and CorLoc can be measured on those alone")
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for index, annotation in truth.items():
        for what, count in odd_boxes(annotation, dataset.image_size(index), min_side).items():
            counts[what] += count
            first.setdefault(what, annotation.image_id)
    for what, count in counts.most_common():
        print(f"odd boxes  {count} {what}; the first in {first[what]}")


def warn_of_turned(
    dataset: AnnotatedImages, truth: Mapping[int, Annotation], unreadable: Mapping[int, str]
) -> None:
    """Warn of images that EXIF turns where the file does not say that boxes are of them as they are stored.

    VOC's reader warns itself, as it opens all images; of COCO's large sets that would take minutes.
    """
    if isinstance(dataset, COCODataset) and not dataset.orientation_known:
        boxed = (i for i, annotation in truth.items() if len(annotation.boxes) and i not in unreadable)
        pictures = [Boxed(dataset.image_path(i), dataset.image_size(i), upright=False) for i in boxed]
        find_turns(dataset.source, pictures, upright=False)


def class_table(
    dataset: AnnotatedImages, labels: np.ndarray, truth: Sequence[Annotation], overlaps: Sequence[Tensor]
) -> str:
    """A line for each class: images that show it, their share, boxes, and the share that proposals cover.

    Args:
        labels: (N, C) bool, whether the image shows the class.
    """
    num_classes = len(dataset.class_names)
    shown = labels.sum(axis=0).tolist()  # (C,)
    boxes = sum((a.labels.bincount(minlength=num_classes) for a in truth), torch.zeros(num_classes))  # (C,)
    columns = [
        ["class", *dataset.class_names, "all"],
        ["images", *map(str, shown), str(len(dataset))],
        ["share", *(f"{100 * count / len(dataset):.1f} %" for count in shown), ""],
    ]
    if truth:
        columns.append(["boxes", *(f"{count:.0f}" for count in boxes), f"{boxes.sum():.0f}"])
    for iou in _IOUS if overlaps else ():
        shares = recall(overlaps, truth, num_classes, iou_threshold=iou)
        columns.append([f"recall {iou}", *("-" if np.isnan(share) else f"{share:.3f}" for share in shares)])
    return "\n".join(align(list(zip(*columns, strict=True))))


def draw_samples(
    cfg: Settings, dataset: AnnotatedImages, proposals: Proposals | None, unreadable: dict[int, str]
) -> bytes:
    """A PNG sheet of some images; empty where none can be read."""
    readable = [i for i in range(len(dataset)) if i not in unreadable and not is_large(dataset, i)]
    places = choose_samples([dataset.labels(i) for i in readable], cfg.test.pictures)
    indices = [readable[place] for place in places]
    if not indices:
        return b""
    boxes = [None if proposals is None else clean(cfg, proposals, dataset.image_ids[i]) for i in indices]
    return encode_samples(dataset, indices, boxes)


def _block(lines: Sequence[str]) -> str:
    return "\n  " + shortened(lines, _SHOWN, "\n  ")


def run(options: Namespace) -> None:
    options.overrides += teacher_words(options)
    if options.tags:
        folder = check_tags(options.config_file, options.overrides)
        trained = (folder / "model_final.pt").is_file()
        words = ("review", folder) if trained else ("train", options.config_file, *options.overrides)
        next_step("detector", *words)
        return
    check(options.config_file, options.overrides)
    first = shlex.join(["detector", "train", str(options.config_file), *options.overrides, "--quick"])
    print(f"a first try in a third of the time: {first}")
    next_step("detector", "train", options.config_file, *options.overrides, "--to", "detector")

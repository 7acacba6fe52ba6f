"""Which tags of the training split are probably wrong: `detector check --tags`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from detector.config import Settings, load_cfg
from detector.config.yaml_files import Overrides
from detector.data.build import build_proposals, build_training_set, name_classes
from detector.data.check import near_duplicates, read_all
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.doubted_tags import DoubtedTag, encode_doubted_tags
from detector.engine.checkpoint import load_checkpoint
from detector.engine.run_folder import check_class_names, start_run
from detector.evaluation.summary import align
from detector.evaluation.voc import image_ap
from detector.evaluation.wrong_tags import WrongTags, find_wrong_tags, rates
from detector.labeling.tag_scores import score_by_folds
from detector.reporting.tags_page import tags_page
from detector.self_training.join import tags_of
from detector.utils.errors import UserError, counted
from detector.utils.folder_lock import folder_lock
from detector.utils.outputs import OutputFolder
from detector.utils.progress import progress_bar

FOLDS = 3
_MANY = 0.05  # share of wrong tags from which training should know of them
_SHOWN = 10  # doubted tags that are printed
_PICTURES = 120  # and that the page shows


def check_tags(config: str | Path, overrides: Overrides) -> Path:
    """Write the tags that are probably wrong, OUTPUT_DIR/check/tags.csv and tags.html, and print the first.

    Returns:
        OUTPUT_DIR.

    Raises:
        UserError, OSError: the data cannot be read, or there are no proposals.
    """
    cfg = load_cfg(config, overrides)
    folder = Path(cfg.output_dir)
    with folder_lock(folder):
        outputs = OutputFolder(folder / "check", "check")
        outputs.check(["tags.csv", "tags.html"])
        device = start_run(cfg, folder / "check")
        training_set = build_training_set(cfg)
        dataset = training_set.dataset
        cfg = name_classes(cfg, dataset)
        build_proposals(cfg.datasets, dataset, training_set.proposals)
        if len(dataset) < 2 * FOLDS:
            raise UserError(f"{dataset.name} has {len(dataset)} images, expected at least {2 * FOLDS}")
        tags, known = (values.numpy() for values in tags_of(training_set))
        for row, image_id in enumerate(dataset.image_ids):
            known[row] &= image_id not in training_set.reviewed  # a person has looked at it
        backbone = trained_backbone(cfg, folder / "model_final.pt")
        steps = steps_of(cfg, backbone)
        scores = score_by_folds(cfg, training_set, device, folds=FOLDS, steps=steps, backbone=backbone)
        heads = scores.heads.numpy().astype(np.float64)
        found = find_wrong_tags(heads.mean(axis=1), tags, known)
        others = contradicting_duplicates(dataset, tags, cfg.datasets.workers)
        doubted = [
            (image, _doubted(dataset, image, label, tags, found, heads, scores.boxes, others))
            for image, label in found.suspects()
        ]
        table = outputs.write("tags.csv", encode_doubted_tags(tag for _, tag in doubted))
        summary = describe([tag for _, tag in doubted])
        page = tags_page(dataset, doubted[:_PICTURES], f"{folder.name}: doubted tags", summary)
        path = outputs.write("tags.html", page)
    print(f"\n{class_table(dataset, tags, found)}\n")
    for _, tag in doubted[:_SHOWN]:
        reason = f"; otherwise in {tag.near_duplicates}" if tag.near_duplicates else ""
        print(f"doubted    {tag.image}: {tag.label} is {tag.likely} ({tag.probability:.0%}){reason}")
    ap = image_ap(list(torch.from_numpy(heads.mean(axis=1))), list(torch.from_numpy(tags)))
    print(
        f"\n{summary}\nimage AP   {100 * np.nanmean(ap):.0f} of the scores: the higher, the better the list"
    )
    print(f"table      {table}\npictures   {path}")
    if (hint := how_to_train(found)) != "":
        print(hint)
    return folder


def trained_backbone(cfg: Settings, weights: Path) -> dict[str, Tensor] | None:
    """The backbone of the weak detector of a run; None: there is none yet."""
    if not weights.is_file():
        return None
    checkpoint = load_checkpoint(weights)
    check_class_names(cfg.datasets.classes, checkpoint, weights)
    saved, prefix = checkpoint["model"], "backbone."
    return {name.removeprefix(prefix): saved[name] for name in saved if name.startswith(prefix)}


def steps_of(cfg: Settings, backbone: object) -> int:
    """Of the training without a part of the images: fewer where the backbone has learned already."""
    return max(1, cfg.solver.max_iter // (4 if backbone is not None else 1))


def contradicting_duplicates(
    dataset: AnnotatedImages, tags: np.ndarray, threads: int
) -> dict[tuple[int, int], list[str]]:
    """The ids of the images that nearly equal one and say otherwise, by (image, class)."""
    reading = read_all(dataset, threads)
    pixels = [*progress_bar(reading, total=len(dataset), desc="near duplicates")]
    readable = [index for index, picture in enumerate(pixels) if picture.error is None]
    sketches = [pixels[index].sketch for index in readable]
    others: dict[tuple[int, int], list[str]] = {}
    for first, second in near_duplicates(sketches, sketches):
        one, other = readable[first], readable[second]
        for label in np.flatnonzero(tags[one] != tags[other]).tolist() if one != other else ():
            others.setdefault((one, label), []).append(dataset.image_ids[other])
    return others


def _doubted(
    dataset: AnnotatedImages,
    image: int,
    label: int,
    tags: np.ndarray,
    found: WrongTags,
    heads: np.ndarray,
    boxes: Tensor,
    others: Mapping[tuple[int, int], list[str]],
) -> DoubtedTag:
    said, likely = ("shown", "not shown") if tags[image, label] else ("not shown", "shown")
    x1, y1, x2, y2 = boxes[image, label].tolist()
    return DoubtedTag(
        dataset.image_ids[image],
        dataset.class_names[label],
        said,
        likely,
        float(found.probability[image, label]),
        float(heads[image, :, label].mean()),
        *(x1, y1, x2, y2),
        near_duplicates="; ".join(others.get((image, label), ())),
    )


def class_table(dataset: AnnotatedImages, tags: np.ndarray, found: WrongTags) -> str:
    """A line for each class: its tags, and how many are expected to be missing and false."""
    rows = [["class", "tags", "missing", "false"]]
    for label, name in enumerate(dataset.class_names):
        missing, false = found.joint[label, 0, 1], found.joint[label, 1, 0]
        rows.append([name, str(int(tags[:, label].sum())), f"{missing:.0f}", f"{false:.0f}"])
    return "\n".join(align(rows))


def how_to_train(found: WrongTags) -> str:
    """The keys with which training forgives as many wrong tags as are expected; "" if there are few."""
    missing, false = rates(found.joint)
    if max(missing, false) < _MANY:
        return ""
    keys = f"DATASETS.MISSING_TAGS {missing:.2f} DATASETS.FALSE_TAGS {false:.2f}"
    return f"to train on such tags as they are: {keys}"


def describe(doubted: Sequence[DoubtedTag]) -> str:
    """How many tags are doubted, and how many of these are expected to be wrong."""
    if not doubted:
        return "no tag is expected to be wrong"
    expected = sum(row.probability for row in doubted)
    missing = sum(row.said == "not shown" for row in doubted)
    return (
        f"{counted(len(doubted), 'tag is', 'tags are')} doubted, {missing} missing and "
        f"{len(doubted) - missing} false: about {expected:.0f} of them are expected to be wrong"
    )

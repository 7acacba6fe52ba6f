"""The results of a test: the metrics, what metrics.json records beside them, and the folder they go to."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from detector.config import KEYS, Settings, changed_keys, load_cfg
from detector.config.keys import Result
from detector.config.yaml_files import Overrides, read_overrides
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.datasets.voc import VOCDataset
from detector.evaluation.coco import coco_ap
from detector.evaluation.summary import summarize
from detector.evaluation.voc import average_precisions, corloc, image_ap, ranked_hits
from detector.inference.image_results import ImageResult
from detector.self_training.choose import agreement
from detector.self_training.pseudo_set import find_pseudo_set
from detector.structures import Annotation
from detector.utils.config_files import run_folder
from detector.utils.errors import shortened
from detector.utils.files import archive_digest, file_digest, read_json
from detector.utils.lazy import Lazy
from detector.utils.outputs import OutputFolder

_LEARNED = 0.1  # the image AP of a learned class covers so much of the way from chance to 1
LEARNED_WELL = 90.0  # the mean image AP, in percent, below which to doubt
OWN_TEST = "the run's own test"  # the key of its outputs


def find_run_folder(config_file: Path, output_dir: str) -> Path:
    """The folder of a run's config.yaml, even if the run was moved; for other configs, their OUTPUT_DIR."""
    folder = run_folder(config_file)
    overridden = output_dir != load_cfg(config_file).output_dir
    return Path(output_dir) if folder is None or overridden else folder


def choose_outputs(cfg: Settings, folder: Path, weights: Path, key: str, student: bool) -> OutputFolder:
    """Where the test of a run in `folder` writes.

    The run folder itself, if the weights are its model_final.pt and no key that changes the results differs
    from its config.yaml, or if it holds no run; else a folder of its own in `tests`, named by the weights and
    by `key`. So the metrics of a run are never replaced by those of another test.
    """
    config, own_weights = folder / "config.yaml", folder / "model_final.pt"
    outputs = OutputFolder(folder, key)
    if not config.exists() or outputs.made("config.yaml"):
        return outputs
    if (
        own_weights.is_file()
        and own_weights.samefile(weights)
        and _relevant(cfg, student) == _relevant(load_cfg(config), student)
    ):
        return OutputFolder(folder, OWN_TEST)
    return OutputFolder(folder / "tests" / f"{weights.stem}-{key[:8]}", key)


def results_key(cfg: Settings, weights: Path, student: bool = False) -> str:
    """A hash of what the results of a test depend on: weights, proposals, and the keys that matter.

    Weights and proposals count by their content, not by their paths. A `student` is a Faster R-CNN of
    self-training, which has keys of its own and no proposals.
    """
    return hashlib.sha256((_relevant(cfg, student) + file_digest(weights)).encode()).hexdigest()


def _relevant(cfg: Settings, student: bool) -> str:
    """The keys that can change the results of a test, as JSON; of the proposals, the file's digest."""
    test: Result = "student_test" if student else "weak_test"
    values = {key: value for key, value in cfg.values().items() if test in KEYS[key].affects}
    if "DATASETS.PROPOSALS" in values and Path(cfg.datasets.proposals).is_file():
        values["DATASETS.PROPOSALS"] = archive_digest(cfg.datasets.proposals)
    return json.dumps(values)


def ignored_keys(overrides: Overrides, student: bool) -> str:
    """What to say of keys that were given for a test, or a prediction, and do not change it; "" of none."""
    own: Result = "student_test" if student else "weak_test"
    other: Result = "weak_test" if student else "student_test"
    ignored = [
        key
        for key, _ in read_overrides(overrides)
        if own not in KEYS[key].affects and (other in KEYS[key].affects or key.startswith("SELF_TRAIN."))
    ]
    if not ignored:
        return ""
    have = "SELF_TRAIN.SIZES and MAX_SIZE, TEST_PROPOSALS, and an NMS at 0.5" if student else "INPUT and TEST"
    who = "a student, which has" if student else "the weak detector, whose keys are"
    return f"{', '.join(ignored)} changes nothing for {who} {have}"


def measure(
    results: Lazy[ImageResult],
    test_set: AnnotatedImages,
    train_results: Lazy[ImageResult],
    train_set: AnnotatedImages,
    with_coco: bool,
) -> dict[str, Any]:
    """AP on the test split, CorLoc on the training split, and COCO's AP if `with_coco`.

    Args:
        results: of all images of the test split; those without ground-truth boxes count for the AP of the
            image labels only.
        train_results: of the images of the training split that have ground-truth boxes.
    """
    names, truth = train_set.class_names, annotations(test_set)
    rows, boxed, count = list(truth), list(truth.values()), len(test_set)
    found = Lazy(lambda place: results[rows[place]].detections, len(rows))
    unknown = Lazy(test_set.unknown, count) if count and test_set.unknown(0) is not None else None
    ranked = ranked_hits(found, boxed, len(names))
    return summarize(
        names,
        average_precisions(ranked),
        average_precisions(ranked, eleven_point=True),
        corloc(
            train_results.map(lambda result: result.best_boxes),
            list(annotations(train_set).values()),
            len(names),
        ),
        coco_ap(found, boxed, len(names)) if with_coco and truth else {},
        image_ap(
            results.map(lambda result: result.best_scores),
            Lazy(test_set.labels, count),
            cast(Lazy[Tensor] | None, unknown),  # of all images or of none
        ),
    )


def image_label_warning(
    metrics: Mapping[str, Any], counts: Mapping[str, tuple[int, int]], backbone_factor: float
) -> str:
    """What to say if the image labels, which is all that a weak detector is told, are not learned; else "".

    Random scores reach an image AP of the share of the images that show the class. On seven data sets the
    mean of recipes that found the objects was 93 to 99, and 50 to 85 where training was too short, or too
    slow for the backbone (docs/troubleshooting.md).

    Args:
        counts: of :func:`label_counts` on the test split.
        backbone_factor: SOLVER.BACKBONE_LR_FACTOR.
    """
    by_chance = []
    for name, (shown, absent) in counts.items():
        ap, chance = metrics["per_class"][name]["image_AP"], 100 * shown / max(1, shown + absent)
        if ap is not None and ap < chance + (100 - chance) * _LEARNED:
            by_chance.append(f"{name} {ap:.0f} ({chance:.0f})")
    mean = metrics["image_mAP"]
    if not by_chance and (mean is None or mean >= LEARNED_WELL):
        return ""
    worst = f", hardly better than by chance (in parentheses): {shortened(by_chance)}" if by_chance else ""
    faster = ", or let the backbone learn faster (SOLVER.BACKBONE_LR_FACTOR 1)" if backbone_factor < 1 else ""
    return (
        f"image AP is {mean:.0f}{worst}. Boxes are unreliable until labels are learned: train longer "
        f"(SOLVER.MAX_ITER){faster}, or draw some boxes (docs/troubleshooting.md, the labels are not learned)"
    )


def unreliable(weights: Path) -> str:
    """What to say before using the boxes of a checkpoint that has not learned its labels; else ""."""
    path = weights.parent / "metrics.json"
    metrics = read_json(path, "metrics") if path.is_file() else {}
    mean = metrics.get("image_mAP")
    if mean is None or mean >= LEARNED_WELL:
        return ""
    if metrics.get("weights_sha256") != file_digest(weights):  # trained again since
        return ""
    return (
        f"image AP is {mean:.0f} in {path}: boxes are unreliable until labels are learned, and many "
        "(docs/troubleshooting.md, the labels are not learned)"
    )


def annotations(dataset: AnnotatedImages) -> dict[int, Annotation]:
    """The ground-truth boxes of the images that have them: all, but in an image_labels set."""
    pairs = ((i, dataset.annotation(i)) for i in range(len(dataset)))
    return {i: annotation for i, annotation in pairs if annotation is not None}


def name_images(dataset: AnnotatedImages) -> str:
    """What was measured: a data set, or the images of it that have boxes."""
    boxed = len(annotations(dataset))
    if boxed == len(dataset):
        return dataset.name
    if boxed == 0:
        return f"no image of {dataset.name}, as none has boxes"
    return f"{boxed} of {len(dataset)} images of {dataset.name}, those with boxes"


def describe_test(
    cfg: Settings, folder: Path, weights: Path, checkpoint: Mapping[str, Any], key: str
) -> dict[str, Any]:
    """The entries of metrics.json that identify what was tested; `key` is of :func:`results_key`."""
    config = folder / "config.yaml"
    changed = changed_keys(load_cfg(config), cfg) if config.is_file() else {}
    return {
        "method": cfg.model.method,
        "weights": str(weights),
        "weights_sha256": file_digest(weights),
        "results_key": key,
        "changed_keys": {key: value for key, value in changed.items() if key != "OUTPUT_DIR"},
        "iteration": checkpoint["iteration"],
        "train_seconds": checkpoint["train_seconds"],
    }


def describe_student(cfg: Settings, folder: Path, train_set: AnnotatedImages) -> dict[str, Any]:
    """The entries of metrics.json on self-training, with the quality of the pseudo boxes in `folder`."""
    about = {"method": f"{cfg.model.method} + self-training", "backbone": cfg.self_train.backbone}
    truth = annotations(train_set)
    made = find_pseudo_set(folder)
    if not truth or made is None:
        return about
    pseudo = annotations(VOCDataset(made, cfg.datasets.train_split, train_set.class_names))
    return about | {"pseudo_boxes": agreement([pseudo[i] for i in truth], list(truth.values()))}

"""The HTML report of a run: metrics, error types, pictures, training curves and stream attention."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from detector.config import KEYS, Settings, load_cfg
from detector.data.build import build_dataset
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.training_set import changed_data, describe_truth
from detector.engine.snapshots import list_snapshots
from detector.evaluation.attention import load_attention
from detector.evaluation.errors import confusion, count_kinds, count_outcomes, judge
from detector.evaluation.pictures import choose_images
from detector.evaluation.summary import MEANS, load_detections
from detector.evaluation.voc import precision_recall
from detector.inference.load import choose_run
from detector.inference.measured import compare, how_to_measure, unmeasured
from detector.inference.results import annotations, name_images
from detector.report.document import Section, render
from detector.report.galleries import (
    galleries_section,
    images_section,
    unjudged_section,
)
from detector.report.metrics_sections import (
    CARDS,
    cards,
    classes_section,
    confusion_section,
    curves_section,
    errors_section,
    precision_recall_section,
    read_curves,
    summary,
)
from detector.report.streams_section import streams_section
from detector.self_training.networks import Model
from detector.structures import Annotation, Detections
from detector.utils.errors import DataError, UserError
from detector.utils.files import file_digest, read_json, reading
from detector.utils.outputs import OutputFolder

_KEY = "report"
_REMEDY = "run `detector test` again"


def write_report(folder: Path, overrides: Sequence[str], output: Path | None, model: Model = "auto") -> Path:
    """Write the report of a run that `detector test` has measured, and print where it is.

    Args:
        folder: the run folder; if it holds a student of self-training, the page is about that.
        overrides: config keys and values that replace those of the run.
        output: the page; None: report.html in the run folder, or in its folder self_train for the student.
        model: "weak": about the weak detector; see :func:`detector.load`.

    Returns:
        where the weights are: `folder`, or the checkpoint that was tested, if `folder` holds its test alone.

    Raises:
        UserError, OSError: a file of the run is missing or damaged, or the page cannot be written.
    """
    given, folder = folder, choose_run(folder, model)
    if not (folder / "config.yaml").is_file():
        raise FileNotFoundError(f"{folder} is not a run folder: it has no config.yaml; train first")
    output = output or folder / "report.html"
    if not output.parent.is_dir():
        raise FileNotFoundError(f"cannot write {output}: {output.parent} is not a folder")
    outputs = OutputFolder(output.parent, _KEY)
    outputs.check([output.name])
    cfg = load_cfg(folder / "config.yaml", overrides)
    path = folder / "metrics.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no test results: run `detector test {folder}` first")
    metrics = read_json(path)
    with reading(path, "metrics"):
        check_metrics(metrics)
    detections = load_detections(folder / "detections.npz")
    test_set = build_dataset(cfg, cfg.datasets.test_split)
    train_set = build_dataset(cfg, cfg.datasets.train_split)
    if changed := changed_data(metrics.get("truth"), describe_truth(test_set, train_set)):
        raise UserError(f"the data have changed since the test, {path}: {changed}; {_REMEDY}")
    run_info = read_json(folder / "run.json") if (folder / "run.json").exists() else {}
    kinds, results = results_sections(cfg, metrics, test_set, detections)
    on_what = (
        f"In percent. AP on {name_images(test_set)}; CorLoc on {name_images(train_set)}; "
        f"image AP, of labels without boxes, on the {len(test_set)} images of {test_set.name}."
    )
    whole = folder.parent if folder.name == "self_train" else folder  # the run folder, of both detectors
    page = render(
        "page",
        made_from=made_from(folder),
        title=f"{whole.resolve().name}: {metrics['method'].upper()} on {test_set.name}",
        doubt=unmeasured(metrics, test_set.name),
        commands=how_to_measure(cfg, whole) if metrics["mAP50"] is None else [],
        summary=summary(
            metrics, name_images(test_set) if metrics["mAP50"] is not None else test_set.name, kinds
        ),
        comparison=str(compare(whole) or ""),
        cards=cards(metrics),
        sections=[
            classes_section(metrics, on_what),
            *results,
            streams(train_set, folder),
            curves_section(read_curves(folder)),
            Section("Run", render("run", changes=changes(cfg), facts=facts(metrics, run_info))),
        ],
    )
    outputs.write(output.name, page.encode())
    print(f"report    {output}")
    return given if (folder / "model_final.pt").exists() else Path(metrics["weights"])


def made_from(folder: Path) -> str:
    """A hash of the files that the page about the detector in `folder` shows; the page holds it, too."""
    names = ("config.yaml", "run.json", "metrics.json", "detections.npz", "../metrics.json")
    paths = [folder / name for name in names] + list_snapshots(folder)
    digests = [file_digest(path) if path.is_file() else "" for path in paths]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def is_current(folder: Path) -> bool:
    """Whether report.html of a folder shows what is there now."""
    page = folder / "report.html"
    return page.is_file() and f'name="made-from" content="{made_from(folder)}"' in page.read_text("utf-8")


def check_metrics(metrics: dict[str, Any]) -> None:
    """Raise a DataError if a value that the page shows is missing or has the wrong type."""
    kinds = {"method": str, "weights": str, "iteration": int, "train_seconds": int | float, "per_class": dict}
    for key, kind in kinds.items():
        if not isinstance(metrics.get(key), kind):
            raise DataError(f"{key} is {metrics.get(key)!r}, an unexpected value; {_REMEDY}")
    if not 0 <= metrics["train_seconds"] < 1e10:
        raise DataError(f"train_seconds is {metrics['train_seconds']}; {_REMEDY}")
    means = {key: metrics.get(key) for key in (*CARDS, *MEANS.values())}
    columns = ["AP50", *(column for column, mean in MEANS.items() if means[mean] is not None)]
    rows = {"the means": (means, means)} | {
        name: (row, columns) for name, row in metrics["per_class"].items()
    }
    for name, (row, needed) in rows.items():
        if not isinstance(row, dict) or not all(key in row and is_percentage(row[key]) for key in needed):
            raise DataError(
                f"the metrics of {name} are {row!r}, expected percentages of {', '.join(needed)}; {_REMEDY}"
            )


def is_percentage(value: Any) -> bool:
    """Whether a metric is in range; None: it was not measured."""
    return value is None or (isinstance(value, int | float) and 0 <= value <= 100)


def results_sections(
    cfg: Settings, metrics: dict, test_set: AnnotatedImages, detections: Sequence[Detections]
) -> tuple[np.ndarray | None, list[Section]]:
    """Counts of error types, and the sections on the detections; None and pictures without ground truth."""
    names, count = test_set.class_names, cfg.test.pictures
    found = {image.image_id: image for image in detections}
    if found.keys() != set(test_set.image_ids):
        raise UserError(
            f"detections.npz has {len(found)} images, which are not those of {test_set.name}: "
            "run `detector test` again with the same DATASETS"
        )
    truth = annotations(test_set)
    if not truth:
        ordered = [found[image_id] for image_id in test_set.image_ids]
        places = choose_images(ordered, len(names), count)
        section = unjudged_section(ordered, places, names, test_set.read_image, cfg.test.picture_score)
        return None, [section]
    if list(metrics["per_class"]) != list(names):
        raise UserError(
            f"metrics.json has the classes {', '.join(metrics['per_class'])}, the data set has "
            f"{', '.join(names)}: run `detector test` again with the same DATASETS"
        )
    if any((image.labels >= len(names)).any() for image in detections):
        raise UserError(f"detections.npz has a label above {len(names) - 1}: run `detector test` again")
    boxed, annotated = list(truth), list(truth.values())
    ordered = [found[annotation.image_id] for annotation in annotated]
    judged = judge(ordered, annotated, len(names))
    kinds = count_kinds(judged, len(names))
    galleries, pictured = galleries_section(
        judged, names, lambda index: test_set.read_image(boxed[index]), count
    )
    ap = [metrics["per_class"][name]["AP50"] for name in names]
    return kinds, [
        errors_section(names, kinds, count_outcomes(judged, len(names))),
        galleries,
        images_section(judged, names, pictured),
        precision_recall_section(names, precision_recall(ordered, annotated, len(names)), ap),
        confusion_section(names, confusion(judged, len(names))),
    ]


def streams(train_set: AnnotatedImages, folder: Path) -> Section:
    """The section on the snapshots that training wrote."""
    snapshots = []
    for path in list_snapshots(folder):
        snapshots.append((int(path.stem), load_attention(path)))
        for each in snapshots[-1][1]:
            if len(each.labels) and int(each.labels.max()) >= len(train_set.class_names):
                raise DataError(
                    f"snapshot {path} has label {int(each.labels.max())}, but {train_set.name} has only "
                    f"{len(train_set.class_names)} classes; remove the file or pass the DATASETS of the run"
                )
    places = {image_id: i for i, image_id in enumerate(train_set.image_ids)}

    def read(image_id: str) -> tuple[Tensor, Annotation | None]:
        if image_id not in places:
            raise UserError(f"{train_set.name} has no image {image_id!r}, which {folder / 'snapshots'} shows")
        return train_set.read_image(places[image_id]), train_set.annotation(places[image_id])

    return streams_section(snapshots, train_set.class_names, read)


def changes(cfg: Settings) -> list[tuple[str, object, object]]:
    """(key, default, value) of every key that differs from its default."""
    defaults = {key: declared.default for key, declared in KEYS.items()}
    return [(key, defaults[key], value) for key, value in cfg.values().items() if value != defaults[key]]


def facts(metrics: dict, run_info: dict) -> dict[str, str]:
    """The entries of metrics.json and run.json that identify the run."""
    packages = run_info["packages"] if isinstance(run_info.get("packages"), dict) else {}
    return {
        "weights": metrics["weights"],
        "command": str(run_info.get("command", "")),
        "date": str(run_info.get("date", "")),
        "commit": str(run_info.get("commit") or ""),
        "seed": str(run_info.get("seed", "")),
        "device": str(run_info.get("device_name", "")),
        "versions": ", ".join(f"{name} {version}" for name, version in packages.items() if version),
    }

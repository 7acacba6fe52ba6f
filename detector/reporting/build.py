"""The HTML report of a run: metrics, error types, pictures, training curves and stream attention."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from detector.config import Settings, load_cfg
from detector.config.settings import DatasetSettings
from detector.config.yaml_files import Overrides
from detector.data.build import build_splits
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.training_set import changed_data, describe_truth
from detector.engine.resuming import last_step
from detector.engine.snapshots import list_snapshots
from detector.evaluation.attention import load_attention
from detector.evaluation.summary import MEANS, load_detections
from detector.inference import thresholds
from detector.inference.load import choose_run
from detector.inference.measured import compare, how_to_measure, unmeasured
from detector.inference.results import name_images
from detector.reporting.document import POLICY, SCRIPT, Section, render
from detector.reporting.keys import differing_keys, facts, recipe_of
from detector.reporting.metrics_sections import (
    CARDS,
    cards,
    classes_section,
    curves_section,
    read_curves,
    summary,
)
from detector.reporting.pseudo_section import pseudo_section
from detector.reporting.results import Tested, results_sections
from detector.reporting.streams_section import streams_section
from detector.self_training.networks import Model
from detector.self_training.pseudo_boxes import found_by
from detector.self_training.pseudo_set import find_pseudo_set
from detector.structures import Annotation
from detector.utils.errors import DataError, UserError
from detector.utils.files import file_digest, read_json, reading
from detector.utils.outputs import OutputFolder

_KEY = "report"
_REMEDY = "run `detector test` again"


class Written(NamedTuple):
    """A page, and the run that was named, or the checkpoint that was tested, if only its test is there."""

    page: Path
    weights: Path


def write_report(folder: Path, overrides: Overrides, output: Path | None, model: Model = "auto") -> Written:
    """Write the report of a run that `detector test` has measured, and print where it is.

    Args:
        folder: the run folder; if it holds a student of self-training, the page is about that.
        overrides: config keys and values that replace those of the run.
        output: the page; None: report.html in the run folder, or in its folder self_train for the student.
        model: "weak": about the weak detector; see :func:`detector.load`.

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
    train_set, test_set = build_splits(cfg)
    tested = read_test(folder, test_set, train_set)
    whole = folder.parent if folder.name == "self_train" else folder  # the run folder, of both detectors
    shown = {}
    if compare(whole):
        for name, run in (("weak", whole), ("student", whole / "self_train")):
            shown[name] = tested if run == folder else read_test(run, test_set, train_set)
    kinds, results = results_sections(tested, test_set, cfg.test.pictures)
    metrics = tested.metrics
    page = render(
        "page",
        policy=POLICY,
        script=SCRIPT,
        made_from=made_from(folder),
        command="detector report",
        guide="docs/report.md",
        title=name_page(cfg.datasets, whole, "" if folder != whole else cfg.model.method),
        doubt=unmeasured(metrics, test_set.name),
        commands=how_to_measure(cfg.datasets, whole) if metrics["mAP50"] is None else [],
        summary=summary(
            metrics, name_images(test_set) if metrics["mAP50"] is not None else test_set.name, kinds
        ),
        comparison=str(compare(whole) or ""),
        cards=cards(metrics),
        sections=[
            classes_section(
                {name: test.metrics for name, test in (shown or {"": tested}).items()},
                name_measures(test_set, train_set),
            ),
            *results,
            *training_sections(cfg, folder, whole, train_set, metrics),
        ],
    )
    outputs.write(output.name, page.encode())
    print(f"report    {output}")
    student = whole / "self_train"
    if model == "auto" and folder == whole and student.is_dir() and not (student / "model_final.pt").exists():
        step, last = last_step(student), cfg.self_train.max_iter
        print(
            "note      this page is about the weak detector: its student is training or was interrupted "
            f"(step {step} of {last} is kept); write the report again when it is done"
        )
    return Written(output, given if (folder / "model_final.pt").exists() else Path(metrics["weights"]))


def read_test(folder: Path, test_set: AnnotatedImages, train_set: AnnotatedImages) -> Tested:
    """What `detector test` left in a folder, checked.

    Raises:
        UserError, OSError: it is missing or damaged, or the data have changed since.
    """
    path = folder / "metrics.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no test results: run `detector test {folder}` first")
    metrics = read_json(path)
    with reading(path, "metrics"):
        check_metrics(metrics)
    detections = load_detections(folder / "detections.npz")
    if changed := changed_data(metrics.get("truth"), describe_truth(test_set, train_set)):
        raise UserError(f"the data have changed since the test, {path}: {changed}; {_REMEDY}")
    chosen = thresholds.read(folder, test_set.class_names, str(metrics.get("weights_sha256")))
    return Tested.ordered(metrics, detections, chosen, test_set)


def name_page(data: DatasetSettings, run: Path, method: str) -> str:
    """For example "steel: Faster R-CNN from tags", and the folder of the data, if its name is another.

    Args:
        method: of a weak detector; "" for a student.
    """
    network = f"weak detector ({method.upper()})" if method else "Faster R-CNN"
    run_name, folder = run.resolve().name, Path(data.root).resolve().name
    taught = "tags and reviewed boxes" if data.boxed else "tags"
    return f"{run_name}: {network} from {taught}{'' if folder == run_name else f' of {folder}'}"


def name_measures(test_set: AnnotatedImages, train_set: AnnotatedImages) -> str:
    """Which images the columns of the table of classes are about."""
    return (
        f"In percent. AP on {name_images(test_set)}; CorLoc on {name_images(train_set)}; "
        f"image AP, of labels without boxes, on the {len(test_set)} images of {test_set.name}."
    )


def training_sections(
    cfg: Settings, folder: Path, run: Path, train_set: AnnotatedImages, metrics: dict[str, Any]
) -> list[Section]:
    """What the detector learned from and how: only sections of what there is."""
    sections, pseudo = [], find_pseudo_set(folder)
    if pseudo is not None:
        split, detectors = cfg.datasets.train_split, len(found_by(folder))
        sections.append(pseudo_section(pseudo, split, train_set, cfg.test.pictures, detectors))
    if (snapshots := list_snapshots(folder)) and (seen := streams(train_set, folder, snapshots)):
        sections.append(seen)
    if curves := read_curves(folder):
        sections.append(curves_section(curves))
    run_info = read_json(folder / "run.json") if (folder / "run.json").exists() else {}
    name, recipe = recipe_of(run)
    changes = differing_keys(recipe, cfg, run, student=folder != run)
    values = {"changes": changes, "recipe": name, "facts": facts(metrics, run_info)}
    return [*sections, Section("Run", render("run", **values))]


def made_from(folder: Path) -> str:
    """A hash of the files that the page about the detector in `folder` shows; the page holds it, too."""
    own = ("config.yaml", "run.json", "metrics.json", "detections.npz", thresholds.FILE)
    names = (*own, "../metrics.json", "../detections.npz")
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


def streams(train_set: AnnotatedImages, folder: Path, paths: Sequence[Path]) -> Section | None:
    """The section on the snapshots that training wrote; None if they show no image."""
    snapshots = []
    for path in paths:
        snapshots.append((int(path.stem), load_attention(path)))
        for image in snapshots[-1][1]:
            if len(image.labels) and int(image.labels.max()) >= len(train_set.class_names):
                raise DataError(
                    f"snapshot {path} has label {int(image.labels.max())}, but {train_set.name} has only "
                    f"{len(train_set.class_names)} classes; remove the file or pass the DATASETS of the run"
                )
    if not snapshots[-1][1]:
        return None
    places = {image_id: i for i, image_id in enumerate(train_set.image_ids)}

    def read(image_id: str) -> tuple[Tensor, Annotation | None]:
        if image_id not in places:
            raise UserError(f"{train_set.name} has no image {image_id!r}, which {folder / 'snapshots'} shows")
        return train_set.read_image(places[image_id]), train_set.annotation(places[image_id])

    return streams_section(snapshots, train_set.class_names, read)

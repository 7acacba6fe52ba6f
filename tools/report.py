"""Write one HTML page on a run: curves, figures, errors, pictures, and what the streams look at.

    python tools/report.py RUN [--output FILE] [KEY VALUE ...]

RUN is the run folder of tools/train_net.py, after tools/test_net.py. The page, RUN/report.html unless
--output names another, holds all that it shows and asks for nothing from elsewhere. See docs/report.md.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from yacs.config import CfgNode

    from detector.build_data import build_dataset
    from detector.config import get_cfg, load_cfg
    from detector.config_reader import flatten
    from detector.data.annotated import AnnotatedImages
    from detector.engine.snapshots import list_snapshots
    from detector.evaluation.attention import load_attention
    from detector.evaluation.curves import read_curves
    from detector.evaluation.detections_file import load_detections
    from detector.evaluation.errors import confusion, count_fates, count_kinds, judge
    from detector.evaluation.page.document import Section, document
    from detector.evaluation.page.figures_section import (
        classes_section,
        config_section,
        confusion_section,
        curves_section,
        errors_section,
        precision_recall_section,
    )
    from detector.evaluation.page.galleries import galleries_section, unjudged_section
    from detector.evaluation.page.streams_section import streams_section
    from detector.evaluation.pictures import choose_images
    from detector.evaluation.report import MEANS
    from detector.evaluation.voc import precision_recall
    from detector.structures import Detections
    from detector.utils.command_line import run_command
    from detector.utils.errors import DataError, UserError
    from detector.utils.files import read_json, reading
    from detector.utils.outputs import OutputFolder

_KEY = "report"
_CARDS = {"mAP50": "mAP50", "CorLoc": "CorLoc", "AP": "COCO AP", "image_mAP": "image mAP"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write one HTML page on a run.")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder that test_net.py has measured")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="keys of its config to change")
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: RUN/report.html")
    options = parser.parse_intermixed_args(arguments)
    return run_command(lambda: run(options.run, options.overrides, options.output))


def run(folder: Path, overrides: Sequence[str], output: Path | None) -> None:
    if not (folder / "config.yaml").is_file():
        raise FileNotFoundError(f"{folder} is not a run folder: it has no config.yaml; train first")
    output = output or folder / "report.html"
    if not output.parent.is_dir():
        raise FileNotFoundError(f"cannot write {output}: {output.parent} is not a folder")
    outputs = OutputFolder(output.parent, _KEY)
    outputs.check([output.name])
    cfg = load_cfg(folder / "config.yaml", overrides)
    metrics, detections = read_results(folder)
    test_set = build_dataset(cfg, cfg.DATASETS.TEST_SPLIT)
    run_info = read_object(folder / "run.json") if (folder / "run.json").exists() else {}
    page = document(
        f"{folder.resolve().name}: {metrics['method'].upper()} on {test_set.name}",
        f"{metrics['weights']}, after {metrics['iteration']} steps",
        cards(metrics),
        [
            classes_section(metrics, describe_images(cfg, test_set)),
            *results_sections(cfg, metrics, test_set, detections),
            streams(cfg, folder),
            curves_section(read_curves(folder)),
            config_section(changes(cfg), facts(run_info)),
        ],
    )
    outputs.write(output.name, page.encode())
    print(f"report    {output}")


def read_results(folder: Path) -> tuple[dict, list[Detections]]:
    """What tools/test_net.py wrote to a run folder: its metrics and the detections of the test split."""
    if not (folder / "metrics.json").is_file():
        config = folder / "config.yaml"
        raise FileNotFoundError(
            f"{folder} has no test results: run tools/test_net.py --config-file {config} first"
        )
    path = folder / "metrics.json"
    metrics = read_object(path)
    with reading(path, "metrics"):
        check_metrics(metrics)
    return metrics, load_detections(folder / "detections.npz")


def read_object(path: Path) -> dict:
    """The JSON object in a file; a DataError names the file where it holds something else."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a JSON {type(content).__name__}, expected an object")
    return content


def check_metrics(metrics: dict) -> None:
    """Raise a DataError where a value that the page shows is missing, or is not of its type."""
    expected = {
        "method": str,
        "weights": str,
        "iteration": int,
        "train_seconds": (int, float),
        "per_class": dict,
    }
    for key, kind in expected.items():
        if not isinstance(metrics.get(key), kind):
            raise DataError(
                f"{key} is {metrics.get(key)!r}, which tools/test_net.py does not write; run it again"
            )
    means = {key: metrics.get(key) for key in (*_CARDS, *MEANS.values())}
    for name, figures in [("the means", means), *metrics["per_class"].items()]:
        values = figures.values() if isinstance(figures, dict) else [figures]
        if not all(
            value is None or (isinstance(value, (int, float)) and 0 <= value <= 100) for value in values
        ):
            raise DataError(
                f"the figures of {name} are {figures!r}, expected percentages; run tools/test_net.py again"
            )
        lacking = (
            []
            if name == "the means"
            else [k for k, mean in MEANS.items() if means[mean] is not None and k not in figures]
        )
        if lacking:
            raise DataError(f"{name} has no {lacking[0]}; run tools/test_net.py again")


def results_sections(
    cfg: CfgNode, metrics: dict, test_set: AnnotatedImages, detections: Sequence[Detections]
) -> list[Section]:
    """What the detections are worth, where there are boxes to compare with; else pictures of them alone."""
    names, count = test_set.class_names, cfg.TEST.PICTURES
    found = {image.image_id: image for image in detections}
    if found.keys() != set(test_set.image_ids):
        raise UserError(
            f"detections.npz is of {len(found)} images, which are not those of {test_set.name}: "
            "run tools/test_net.py again with the same DATASETS"
        )
    boxed = [i for i in range(len(test_set)) if test_set.annotation(i) is not None]
    if not boxed:
        ordered = [found[image_id] for image_id in test_set.image_ids]
        places = choose_images(ordered, len(names), count)
        return [unjudged_section(ordered, places, names, test_set.read_image, cfg.TEST.PICTURE_SCORE)]
    truth = [test_set.annotation(i) for i in boxed]
    ordered = [found[annotation.image_id] for annotation in truth]
    judged = judge(ordered, truth, len(names))
    if list(metrics["per_class"]) != list(names):
        raise UserError(
            f"metrics.json is of the classes {', '.join(metrics['per_class'])}, the data set has "
            f"{', '.join(names)}: run tools/test_net.py again with the same DATASETS"
        )
    if any((image.labels >= len(names)).any() for image in detections):
        raise UserError(f"detections.npz has a label above {len(names) - 1}: run tools/test_net.py again")
    ap = [metrics["per_class"][name]["AP50"] for name in names]
    return [
        errors_section(names, count_kinds(judged, len(names)), count_fates(judged, len(names))),
        galleries_section(judged, names, lambda place: test_set.read_image(boxed[place]), count),
        precision_recall_section(names, precision_recall(ordered, truth, len(names)), ap),
        confusion_section(names, confusion(judged, len(names))),
    ]


def streams(cfg: CfgNode, folder: Path) -> Section:
    """What the streams saw in the watched training images."""
    train_set = build_dataset(cfg, cfg.DATASETS.TRAIN_SPLIT)
    snapshots = []
    for path in list_snapshots(folder):
        snapshots.append((int(path.stem), load_attention(path)))
        for each in snapshots[-1][1]:
            if len(each.labels) and int(each.labels.max()) >= len(train_set.class_names):
                raise DataError(
                    f"snapshot {path} shows class {int(each.labels.max())}, which the data set lacks"
                )
    places = {image_id: i for i, image_id in enumerate(train_set.image_ids)}

    def read(image_id: str):
        if image_id not in places:
            raise UserError(f"{train_set.name} has no image {image_id!r}, which {folder / 'snapshots'} shows")
        return train_set.read_image(places[image_id]), train_set.annotation(places[image_id])

    return streams_section(snapshots, train_set.class_names, read)


def cards(metrics: dict) -> dict[str, str]:
    shown = {name: f"{metrics[key]:.1f}" for key, name in _CARDS.items() if metrics.get(key) is not None}
    return shown | {
        "steps": f"{metrics['iteration']:,}",
        "training time": str(timedelta(seconds=round(metrics["train_seconds"]))),
    }


def describe_images(cfg: CfgNode, test_set: AnnotatedImages) -> str:
    return (
        f"In percent. AP on the {len(test_set)} images of {test_set.name}, "
        f"CorLoc on the split {cfg.DATASETS.TRAIN_SPLIT}; where only some images have boxes, on those."
    )


def changes(cfg: CfgNode) -> list[tuple[str, object, object]]:
    """(key, default, value) of every key that is not at its default."""
    defaults = dict(flatten(get_cfg()))
    return [(key, defaults[key], value) for key, value in flatten(cfg) if value != defaults[key]]


def facts(run_info: dict) -> dict[str, str]:
    """The facts of run.json that tell runs apart."""
    packages = run_info.get("packages")
    packages = packages if isinstance(packages, dict) else {}
    return {
        "command": str(run_info.get("command", "")),
        "date": str(run_info.get("date", "")),
        "commit": str(run_info.get("commit") or ""),
        "seed": str(run_info.get("seed", "")),
        "device": str(run_info.get("device_name", "")),
        "versions": ", ".join(f"{name} {version}" for name, version in packages.items() if version),
    }


if __name__ == "__main__":
    sys.exit(main())

"""Train and test a recipe on VOC 2007, and compare the figures with the published ones.

    python tools/voc07.py --config-file configs/voc07_pcl_pytorch_vgg16.yaml [--check-only] [KEY VALUE ...]

First checks that the data set is VOC 2007, that the ImageNet weights are those that the recipe wants, and
that the proposals are as many and as good as selective search's; a problem stops it, unless --force is given.
Then trains, tests, prints the figures, and writes RESULT.json to the run folder, OUTPUT_DIR: figures,
versions, GPU, time, what was checked. The same command resumes; a finished training, such as one under
torchrun, is tested.
"""

import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    import numpy as np

    from detector.commands.check import measure_proposals as measure_coverage
    from detector.config import VOC_CLASSES, Settings, load_cfg
    from detector.data.build import build_dataset, build_proposals
    from detector.data.datasets.annotated import AnnotatedImages
    from detector.engine.resuming import list_checkpoints
    from detector.engine.train import train
    from detector.evaluation.coverage import recall
    from detector.evaluation.summary import write_json
    from detector.inference.results import annotations
    from detector.inference.test import evaluate
    from detector.modeling.weights import load_weights
    from detector.utils.command_line import config_parser, parse_config, run_command
    from detector.utils.config_files import find_config
    from detector.utils.distributed import find_device
    from detector.utils.errors import UserError
    from detector.utils.files import file_digest, read_json
    from detector.utils.reproducibility import run_info

# fmt: off
# Of VOC 2007: images, and objects of each class without the difficult ones. Only the totals, 12,608 and
# 12,032 objects, were compared with those that the organizers publish: a difference in one class may be an
# error of this table.
IMAGES = {"trainval": 5011, "test": 4952}
OBJECTS = {
    "trainval": (306, 353, 486, 290, 505, 229, 1250, 376, 798, 259, 215, 510, 362, 339, 4690, 514, 257, 248,
                 297, 324),
    "test": (285, 337, 459, 263, 469, 213, 1201, 358, 756, 244, 206, 489, 348, 325, 4528, 480, 242, 239, 282,
             308),
}
# fmt: on
# Selective search finds about 2,000 proposals in an image of VOC, which cover 95 % of the objects at IoU 0.5.
LEAST_PROPOSALS, MOST_PROPOSALS, LEAST_RECALL = 1000, 4096, 0.9
# Caffe's VGG16 takes values of 0 to 255, torchvision's values of about -2 to 2: to give the same features the
# weights of the first layer differ by a factor of about 58 once both have torchvision's preprocessing.
LEAST_CAFFE_STD = 2.0
FIGURES = {"mAP50_11point": "mAP50 (11 points)", "CorLoc": "CorLoc"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = config_parser("tools/voc07.py", __doc__)
    parser.add_argument("--check-only", action="store_true", help="check the files, do not train")
    parser.add_argument("--force", action="store_true", help="train in spite of problems of the files")
    options = parse_config(parser, arguments)
    return run_command(lambda: run(options.config_file, options.overrides, options.check_only, options.force))


def run(config_file: str, overrides: Sequence[str], check_only: bool, force: bool) -> None:
    cfg = load_cfg(config_file, overrides)
    checks, problems = check_files(cfg, load_cfg(config_file))
    for name, values in checks.items():
        print(f"{name:<10} {', '.join(f'{key} {value}' for key, value in values.items())}")
    for problem in problems:
        print(f"problem    {problem}")
    if problems and not force:
        raise UserError(
            f"{len(problems)} of the files are not those of the recipe: {'; '.join(problems)}. --force "
            "trains in spite of this, and RESULT.json says so"
        )
    if check_only:
        print("next: the same command without --check-only")
        return
    folder = Path(cfg.output_dir)
    if not (folder / "model_final.pt").exists():
        train(config_file, overrides, resume=bool(list_checkpoints(folder)))
    metrics = evaluate(config_file, overrides)
    result = {
        "recipe": Path(config_file).stem,
        "overrides": list(map(str, overrides)),
        "published": published_figures(find_config(config_file)),
        "found": {name: metrics[name] for name in FIGURES},
        "per_class": metrics["per_class"],
        "steps": metrics["iteration"],
        "train_seconds": metrics["train_seconds"],
        "checks": checks,
        "problems": problems,
        "trained_with": read_json(folder / "run.json") if (folder / "run.json").is_file() else None,
        "tested_with": run_info(find_device(cfg.device), cfg.seed),
    }
    write_json(folder / "RESULT.json", result)
    print(report(result))
    print(f"result    {folder / 'RESULT.json'}")


def check_files(cfg: Settings, recipe: Settings) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Facts about the files of a config, by name, and how they differ from the recipe."""
    source = cfg.model.weights
    if source and not source.startswith("pypi:") and not Path(source).is_file():
        raise UserError(  # before the proposals are measured, which takes a while
            f"MODEL.WEIGHTS {source} is not a file: make it with tools/convert_weights.py (docs/voc.md)"
        )
    checks: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    for split in IMAGES:
        dataset = build_dataset(cfg, split)
        checks[split] = {"images": len(dataset), "objects": int(objects_by_class(dataset).sum())}
        problems += voc07_problems(split, dataset)
        if split == "trainval":
            checks["proposals"] = measure_proposals(cfg, dataset)
        else:
            build_proposals(cfg.datasets, dataset)  # refuses proposals of other images
    problems += proposal_problems(checks["proposals"])
    origin = weights_origin(cfg.model.weights)
    digest = file_digest(cfg.model.weights) if origin != "random" else ""
    checks["weights"] = {"of": origin, "sha256": digest}
    wanted = "Caffe" if "caffe" in recipe.model.weights else "torchvision"
    if checks["weights"]["of"] != wanted:
        problems.append(
            f"MODEL.WEIGHTS {cfg.model.weights!r} are {checks['weights']['of']} weights, the recipe has "
            f"those of {wanted} (docs/models.md)"
        )
    return checks, problems


def objects_by_class(dataset: AnnotatedImages) -> np.ndarray:
    """Objects (C,) of each class without the difficult ones."""
    counts = np.zeros(len(dataset.class_names), dtype=int)
    for annotation in annotations(dataset).values():
        counts += np.bincount(annotation.labels[~annotation.difficult], minlength=len(counts))
    return counts


def voc07_problems(split: str, dataset: AnnotatedImages) -> list[str]:
    """How a split differs from VOC 2007's."""
    if dataset.class_names != VOC_CLASSES:
        return [f"{dataset.name} has other classes than VOC: {', '.join(dataset.class_names[:5])} ..."]
    if len(dataset) != IMAGES[split]:
        return [
            f"{dataset.name} has {len(dataset)} images, expected the {IMAGES[split]} of VOC 2007's {split}"
        ]
    triples = zip(VOC_CLASSES, objects_by_class(dataset).tolist(), OBJECTS[split], strict=True)
    differ = [f"{name} {found} for {count}" for name, found, count in triples if found != count]
    return [f"{dataset.name} has other objects than VOC 2007: {', '.join(differ)}"] if differ else []


def measure_proposals(cfg: Settings, dataset: AnnotatedImages) -> dict[str, Any]:
    """Number per image, and recall of the objects at IoU 0.5, of the proposals as a detector gets them."""
    truth, proposals = annotations(dataset), build_proposals(cfg.datasets, dataset)
    counts, overlaps = measure_coverage(cfg, dataset, truth, proposals)
    covered = recall(overlaps, list(truth.values()), len(dataset.class_names), iou_threshold=0.5)[-1]
    return {
        "an image": round(statistics.mean(counts)),
        "least": min(counts),
        "most": max(counts),
        "recall at 0.5": round(float(covered), 4),
    }


def proposal_problems(measured: Mapping[str, Any]) -> list[str]:
    problems = []
    if not LEAST_PROPOSALS <= measured["an image"] <= MOST_PROPOSALS:
        count = measured["an image"]
        problems.append(f"an image has {count} proposals, expected about 2000 of selective search")
    if not measured["recall at 0.5"] >= LEAST_RECALL:
        covered, least = f"{measured['recall at 0.5']:.1%}", f"{LEAST_RECALL:.0%}"
        problems.append(f"the proposals cover {covered} of the objects at IoU 0.5, expected {least}")
    return problems


def weights_origin(source: str) -> str:
    """The origin of VGG16 weights by their first layer: "Caffe", "torchvision", or "random" for none."""
    if source == "":
        return "random"
    first = load_weights(source).tensors.get("features.0.weight")
    if first is None or first.shape != (64, 3, 3, 3):
        raise UserError(f"MODEL.WEIGHTS {source} are no VGG16: features.0.weight is not (64, 3, 3, 3)")
    return "Caffe" if float(first.float().std()) > LEAST_CAFFE_STD else "torchvision"


def published_figures(config_file: Path) -> dict[str, float] | None:
    """The published figures that the header of a recipe names; None: it names none."""
    text = config_file.read_text(encoding="utf-8")
    found = re.search(r"published: (\d+\.\d) / (\d+\.\d)", text)
    return {name: float(found[i]) for i, name in enumerate(FIGURES, start=1)} if found else None


def report(result: Mapping[str, Any]) -> str:
    """The figures next to the published ones, as text."""
    lines = [
        f"{result['recipe']}, {result['steps']} steps, {timedelta(seconds=round(result['train_seconds']))}"
    ]
    lines.append(f"{'':<20}{'found':>8}{'published':>11}")
    for name, title in FIGURES.items():
        found, published = result["found"][name], (result["published"] or {}).get(name)
        shown = (f"{value:.1f}" if value is not None else "-" for value in (found, published))
        lines.append("{:<20}{:>8}{:>11}".format(title, *shown))
    lines.append(
        "Seeds differ: MIST's author calls 1 to 3 points common, and three seeds on our other data span "
        "1 to 15, mostly less than 8. Take a difference of 1 point for noise (docs/recipes.md)."
    )
    if result["problems"]:
        lines.append(f"Not comparable: {'; '.join(result['problems'])}.")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

"""Train and test methods, variants of one and their self-training over several seeds; keep the figures."""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

FIGURES = ("mAP50", "mAP50_11point", "CorLoc", "train_seconds")
ROOT = Path(__file__).resolve().parent.parent

# What is compared: a name and the keys that make it, KEY VALUE KEY VALUE ...
Variants = Mapping[str, Sequence[str]]
# Self-training: a name, the variant whose boxes are learned from, and the keys.
Students = Mapping[str, tuple[str, Sequence[str]]]


def methods(*names: str) -> Variants:
    """The methods as variants that differ in MODEL.METHOD alone."""
    return {name: ("MODEL.METHOD", name) for name in names}


def compare(
    name: str, config: str, variants: Variants | None = None, students: Students | None = None
) -> None:
    """Run each variant with each seed as the command line says, print the table and keep it.

    Args:
        name: of the table, benchmarks/results/methods_NAME.json, and of the folder of the runs.
        config: the one config file that all share.
        variants: what differs; default: WSDDN, OICR and PCL.
        students: self-training, after all variants, each from the variant of its own seed.
    """
    variants, students = variants or methods("wsddn", "oicr", "pcl"), students or {}
    every = [*variants, *students]
    parser = argparse.ArgumentParser(description=f"{', '.join(every)}: {config}, over several seeds")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--only", action="append", choices=every, help="of these; may be repeated")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="keys of the config to change")
    options = parser.parse_intermixed_args()
    names = options.only or every
    folder = f"runs/methods_{name}"

    def one_run(run_name: str, seed: int) -> dict:
        teacher, keys = students.get(run_name, (None, ()))
        keys = [*variants[teacher or run_name], *keys, *options.overrides]
        weights = f"{folder}/{teacher}_{seed}/model_final.pt" if teacher else None
        return run(f"{folder}/{run_name}_{seed}", config, keys, seed, weights)

    table_rows: dict[str, list[dict]] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        for group in (variants, students):  # one after the other: a student needs its teacher's weights
            runs = [(n, seed) for n in names if n in group for seed in range(options.seeds)]
            for (run_name, _), figures in zip(runs, pool.map(lambda r: one_run(*r), runs), strict=True):
                table_rows.setdefault(run_name, []).append(figures)
    print(table(table_rows))
    any_run = json.loads(next((ROOT / folder / f"{names[0]}_0").rglob("run.json")).read_text())
    content = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "config": config,
        "overrides": " ".join(options.overrides),
        "machine": any_run["device_name"],
        "packages": any_run["packages"],
        "commit": any_run["commit"],
        "methods": table_rows,
    }
    path = ROOT / f"benchmarks/results/methods_{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"kept in {path.relative_to(ROOT)}")


def run(output: str, config: str, overrides: Sequence[str], seed: int, teacher: str | None = None) -> dict:
    """Metrics of one new run; the tools refuse a folder that holds one, so no figure is an old one.

    Args:
        teacher: a weak detector's checkpoint, to learn from what it finds; None: train a weak detector.
    """
    keys = [*overrides, "SEED", str(seed), "OUTPUT_DIR", output]
    tools = [["self_train.py", "--weights", teacher]] if teacher else [["train_net.py"], ["test_net.py"]]
    for tool, *options in tools:
        command = [sys.executable, f"tools/{tool}", "--config-file", config, *options, *keys]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    folder = ROOT / output / ("self_train" if teacher else "")
    metrics = json.loads((folder / "metrics.json").read_text())
    print(f"{output}: mAP50 {metrics['mAP50']:.1f}, CorLoc {metrics['CorLoc']:.1f}", flush=True)
    return metrics


def table(rows: Mapping[str, list[dict]]) -> str:
    """Mean over seeds, and the spread from lowest to highest."""
    width = 2 + max(map(len, rows))
    lines = [f"{'':{width}}" + "".join(f"{figure:>26}" for figure in FIGURES)]
    for name, runs in rows.items():
        cells = []
        for figure in FIGURES:
            values = [r[figure] for r in runs]
            cells.append(f"{statistics.mean(values):.1f} ({min(values):.1f} - {max(values):.1f})")
        lines.append(f"{name:{width}}" + "".join(f"{cell:>26}" for cell in cells))
    return "\n".join(lines)

"""Train and test methods, or variants of one, over several seeds, and tabulate what they reach."""

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


def methods(*names: str) -> Variants:
    """The methods as variants that differ in MODEL.METHOD alone."""
    return {name: ("MODEL.METHOD", name) for name in names}


def compare(name: str, config: str, variants: Variants | None = None) -> None:
    """Run each variant with each seed as the command line says, print the table and keep it.

    Args:
        name: of the table, benchmarks/results/methods_NAME.json, and of the folder of the runs.
        config: the one config file that all variants share.
        variants: what differs; default: WSDDN, OICR and PCL.
    """
    variants = variants or methods("wsddn", "oicr", "pcl")
    parser = argparse.ArgumentParser(description=f"{', '.join(variants)}: {config}, over several seeds")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--only", action="append", choices=tuple(variants), help="of these; may be repeated")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="keys of the config to change")
    options = parser.parse_intermixed_args()
    names = options.only or list(variants)
    runs = [(variant, seed) for variant in names for seed in range(options.seeds)]
    folder = f"runs/methods_{name}"
    with ThreadPoolExecutor(options.jobs) as pool:
        figures = pool.map(
            lambda r: run(f"{folder}/{r[0]}_{r[1]}", config, [*variants[r[0]], *options.overrides], r[1]),
            runs,
        )
        results = dict(zip(runs, figures, strict=True))
    table_rows = {variant: [results[variant, seed] for seed in range(options.seeds)] for variant in names}
    print(table(table_rows))
    any_run = json.loads((ROOT / f"{folder}/{names[-1]}_0/run.json").read_text())
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


def run(output: str, config: str, overrides: Sequence[str], seed: int) -> dict:
    """Metrics of one new run; train_net.py refuses a folder that holds one, so no figure is an old one."""
    keys = [*overrides, "SEED", str(seed), "OUTPUT_DIR", output]
    for tool in ("train_net.py", "test_net.py"):
        command = [sys.executable, f"tools/{tool}", "--config-file", config, *keys]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    metrics = json.loads((ROOT / output / "metrics.json").read_text())
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

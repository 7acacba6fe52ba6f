"""Train and test WSDDN, OICR and PCL over several seeds, and tabulate what they reach."""

import argparse
import json
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

METHODS = ("wsddn", "oicr", "pcl")
FIGURES = ("mAP50", "mAP50_11point", "CorLoc", "train_seconds")
ROOT = Path(__file__).resolve().parent.parent


def compare(name: str, config: str) -> None:
    """Run each method with each seed as the command line says, print the table and keep it.

    Args:
        name: of the table, benchmarks/results/methods_NAME.json, and of the folder of the runs.
        config: the one config file that all methods share; only MODEL.METHOD differs.
    """
    parser = argparse.ArgumentParser(description=f"WSDDN, OICR and PCL with {config}, over several seeds")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="keys of the config to change")
    options = parser.parse_intermixed_args()
    runs = [(method, seed) for method in METHODS for seed in range(options.seeds)]
    with ThreadPoolExecutor(options.jobs) as pool:
        pairs = pool.map(lambda r: run(f"runs/methods_{name}", config, *r, options.overrides), runs)
        results = dict(zip(runs, pairs, strict=True))
    methods = {m: [results[m, seed] for seed in range(options.seeds)] for m in METHODS}
    print(table(methods))
    any_run = json.loads((ROOT / f"runs/methods_{name}/pcl_0/run.json").read_text())
    content = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "config": config,
        "overrides": " ".join(options.overrides),
        "machine": any_run["device_name"],
        "packages": any_run["packages"],
        "commit": any_run["commit"],
        "methods": methods,
    }
    path = ROOT / f"benchmarks/results/methods_{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"kept in {path.relative_to(ROOT)}")


def run(folder: str, config: str, method: str, seed: int, overrides: list[str]) -> dict:
    """Metrics of one new run; train_net.py refuses a folder that holds one, so no figure is an old one."""
    output = f"{folder}/{method}_{seed}"
    keys = ["MODEL.METHOD", method, "SEED", str(seed), "OUTPUT_DIR", output, *overrides]
    for tool in ("train_net.py", "test_net.py"):
        command = [sys.executable, f"tools/{tool}", "--config-file", config, *keys]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    metrics = json.loads((ROOT / output / "metrics.json").read_text())
    print(f"{method}, seed {seed}: mAP50 {metrics['mAP50']:.1f}", flush=True)
    return metrics


def table(methods: dict[str, list[dict]]) -> str:
    """Mean over seeds, and the spread from lowest to highest."""
    lines = [f"{'':8}" + "".join(f"{figure:>26}" for figure in FIGURES)]
    for method, runs in methods.items():
        cells = []
        for figure in FIGURES:
            values = [r[figure] for r in runs]
            cells.append(f"{statistics.mean(values):.1f} ({min(values):.1f} - {max(values):.1f})")
        lines.append(f"{method:8}" + "".join(f"{cell:>26}" for cell in cells))
    return "\n".join(lines)

"""What the variant that one half of the test images prefers reaches on the other half.

    python benchmarks/one_recipe.py photos ...  # makes the runs
    python benchmarks/halves.py photos plain views mosaic student [--splits 100]

The test images of photographs chose the keys of the student, so its AP there is too good. Here random halves
of them choose among the named variants, by the mean AP50 of all seeds, and the others measure the chosen one.
"""

import argparse
import json
from collections import Counter
from datetime import datetime, timezone

import numpy as np
from few_boxes import DATA
from methods import ROOT

from detector.config import load_cfg
from detector.data.build import build_dataset
from detector.evaluation.summary import load_detections
from detector.evaluation.voc import voc_ap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data_set", choices=DATA)
    parser.add_argument("variants", nargs="+", help="students of benchmarks/one_recipe.py")
    parser.add_argument("--splits", type=int, default=100, help="number of random halvings")
    options = parser.parse_args()
    name = f"one_recipe_{options.data_set}"
    cfg = load_cfg(ROOT / DATA[options.data_set])
    dataset = build_dataset(cfg, cfg.datasets.test_split)
    truth = [dataset.annotation(i) for i in range(len(dataset))]
    runs = {
        variant: [
            {each.image_id: each for each in load_detections(path)}
            for path in sorted(
                (ROOT / f"runs/methods_{name}").glob(f"{variant}_[0-9]/self_train/detections.npz")
            )
        ]
        for variant in options.variants
    }
    for variant, found in runs.items():
        if not found:
            parser.error(f"no run of {variant} in runs/methods_{name}: make it with benchmarks/one_recipe.py")
    any_run = ROOT / f"runs/methods_{name}/{options.variants[0]}_0/self_train/run.json"
    made_by = json.loads(any_run.read_text())

    def mean_ap(variant: str, images: np.ndarray) -> float:
        """mAP50 on these images in percent, mean over the seeds."""
        chosen = [truth[i] for i in images]
        each = [
            voc_ap([run[t.image_id] for t in chosen], chosen, len(dataset.class_names))
            for run in runs[variant]
        ]
        return 100 * float(np.nanmean(each))

    rng = np.random.default_rng(0)
    preferred, reached, on_half = [], [], {variant: [] for variant in runs}
    for _ in range(options.splits):
        order = rng.permutation(len(dataset))
        choosing, measuring = order[: len(order) // 2], order[len(order) // 2 :]
        best = max(runs, key=lambda variant: mean_ap(variant, choosing))
        measured = {variant: mean_ap(variant, measuring) for variant in runs}
        preferred.append(best)
        reached.append(measured[best])
        for variant, value in measured.items():
            on_half[variant].append(value)
    content = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": made_by["device_name"],
        "packages": made_by["packages"],
        "commit": made_by["commit"],
        "runs": {variant: len(found) for variant, found in runs.items()},
        "splits": options.splits,
        "chosen": Counter(preferred),
        "mAP50 of the chosen on the other half": {
            "mean": np.mean(reached),
            "lowest": min(reached),
            "highest": max(reached),
        },
        "mean mAP50 on a half": {variant: np.mean(values) for variant, values in on_half.items()},
    }
    path = ROOT / f"benchmarks/results/halves_{options.data_set}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()

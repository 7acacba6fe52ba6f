"""How long to train on tags: the weak detector with 150 to 2,000 steps, and with full supervision.

    python benchmarks/steps.py photos [--seeds 3] [--jobs 1] [--resume] [--only NAME] [KEY VALUE ...]

The first argument is a data set of benchmarks/few_boxes.py. "pcl_300": PCL with 300 steps; "mist_300": MIST,
context and ignored covers, as configs/photos_mist_lite0.yaml; "full_300": PCL's network learns from the
ground-truth boxes of all images.
"""

import sys

from cpu_recipe import MIST
from few_boxes import DATA
from methods import compare

STEPS = (150, 300, 600, 1000, 1500, 2000)
FULL = ("DATASETS.BOXED_SHARE", "1", "SOLVER.BOXED_SHARE", "0.5")
METHODS = {"pcl": (), "mist": MIST, "full": FULL}


def variants(keys: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {
        f"{method}_{steps}": (
            *keys,
            *more,
            "SOLVER.MAX_ITER",
            str(steps),
            "SOLVER.WARMUP_ITERS",
            str(steps // 5),
        )
        for method, more in METHODS.items()
        for steps in STEPS
    }


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in DATA:
        sys.exit(f"name a data set first: {', '.join(DATA)}")
    config, keys = DATA[data_set := sys.argv.pop(1)]
    compare(f"steps_{data_set}", config, variants(keys))

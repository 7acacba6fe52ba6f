"""How long to train on tags: the weak detector with 150 to 3,000 steps, and with full supervision.

    python benchmarks/steps.py photos [--seeds 3] [--jobs 1] [--resume] [--only NAME] [KEY VALUE ...]

The first argument is a data set of benchmarks/few_boxes.py. A variant is a method and a number of steps, as
"pcl_300":

* "mist": MIST, context and ignored covers, as configs/photos_mist_lite0.yaml.
* "full": PCL's network learns from the ground-truth boxes of all images.
* "..._few": with the first 500 proposals of an image. "..._fine": with features of stride 8 instead of 16.
"""

from cpu_recipe import MIST
from few_boxes import DATA, take_data_set
from methods import compare

STEPS = (150, 300, 600, 1000, 1500, 2000, 3000)
FULL = ("DATASETS.BOXED_SHARE", "1", "SOLVER.BOXED_SHARE", "0.5")
FEW, FINE = ("PROPOSALS.MAX_COUNT", "500"), ("MODEL.BACKBONE.STRIDE", "8")
METHODS = {
    f"{method}{suffix}": (*keys, *more)
    for method, keys in {"pcl": (), "mist": MIST, "full": FULL}.items()
    for suffix, more in {"": (), "_few": FEW, "_fine": FINE}.items()
}


def variants() -> dict[str, tuple[str, ...]]:
    return {
        f"{method}_{steps}": (
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
    config = DATA[data_set := take_data_set()]
    compare(f"steps_{data_set}", config, variants())

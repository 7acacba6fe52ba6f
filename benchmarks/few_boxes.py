"""What reviewed boxes of some training images add to the tags of all: PCL with 0 to 100 % of them boxed.

    python benchmarks/few_boxes.py toybox [--seeds 3] [--jobs 1] [--resume] [--only NAME] [KEY VALUE ...]

The first argument is a data set of DATA. Its ground-truth boxes stand for those of a person.

* "tags": no boxes. "tags_P": P % of the images are boxed, and half of the draws are of them. "tags_100" is
  full supervision with the same network and schedule.
* "boxes_P": the same boxed images alone; all others, and their tags, are left out.
* "student_...": the Faster R-CNN that learns from the detector of that name and from the reviewed boxes.
"""

import sys

from methods import compare

PCB = "DATASETS.ROOT datasets/pcb DATASETS.PROPOSALS datasets/pcb/proposals.npz DATASETS.CLASSES "
PCB += "['open','short','mousebite','spur','copper','pin-hole'] PROPOSALS.MODE corners"

# Name -> config file and overrides.
DATA = {
    "toybox": ("configs/toybox_pcl.yaml", ()),
    "photos": ("configs/photos_pcl_lite0.yaml", ()),
    "doom": ("configs/doom_pcl_lite0.yaml", ()),
    "pcb": ("configs/photos_pcl_lite0.yaml", PCB.split()),
}
PERCENT = (1, 5, 10, 25, 50, 100)


def boxed(percent: int, draws: float) -> tuple[str, ...]:
    return "DATASETS.BOXED_SHARE", str(percent / 100), "SOLVER.BOXED_SHARE", str(draws)


VARIANTS = {
    "tags": (),
    **{f"tags_{percent}": boxed(percent, 0.5) for percent in PERCENT},
    **{f"boxes_{percent}": boxed(percent, 1) for percent in PERCENT[:-1]},
}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in DATA:
        sys.exit(f"name a data set first: {', '.join(DATA)}")
    data_set = sys.argv.pop(1)
    config, keys = DATA[data_set]
    variants = {name: (*keys, *changes) for name, changes in VARIANTS.items()}
    students = {} if data_set == "toybox" else {f"student_{name}": (name, ()) for name in VARIANTS}
    compare(f"few_boxes_{data_set}", config, variants, students)

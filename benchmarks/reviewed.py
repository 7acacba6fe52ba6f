"""A reviewed file beside the boxes of all training images: AP of the detectors that learn from each.

    detector train configs/toybox_pcl.yaml --to detector --effort 1 OUTPUT_DIR runs/first
    python benchmarks/review_actions.py runs/first --cases boxes --help-first --drawn-share 0.1
    python benchmarks/reviewed.py toybox review_actions/boxes.sqlite --jobs 6

The first argument is a data set of few_boxes.py, the second the file: a path from the root of the repository.
"all" learns the ground-truth boxes of all images with the same network and schedule.
"""

import sys

from few_boxes import DATA, take_data_set
from methods import compare

if __name__ == "__main__":
    data_set = take_data_set()
    if len(sys.argv) < 2:
        sys.exit("name the reviewed file, too")
    variants = {"all": ("DATASETS.BOXED_SHARE", "1"), "reviewed": ("DATASETS.BOXED", sys.argv.pop(1))}
    students = {f"student_{name}": ((name,), ()) for name in variants}
    compare(f"reviewed_{data_set}", DATA[data_set], variants, students)

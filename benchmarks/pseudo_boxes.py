"""Which pseudo boxes self-training learns from, on photographs with the recipe for a machine without a GPU.

python benchmarks/pseudo_boxes.py [--seeds 3] [--jobs 1] [--resume] [--only NAME] [KEY VALUE ...]

* "absolute": boxes that score more than 0.5. "relative": boxes that score more than 0.7 of the best of their
  class in the image, without those of which 85 % lie in a larger one.
* "moved": boxes that score more than 0.85 of the best; groups are dropped before parts, and each box moves to
  the mean of the boxes around it, as in configs/photos_pcl_lite0.yaml.
* "relative_rounds": the student of "relative" finds the boxes, by the same rule, of a second student.
* "relative_teacher": the student of "relative" goes on for 300 steps on what its moving average finds.
* "relative_150", "relative_600": half and twice the steps of the student.

No student has copy-paste, strong views or scale jitter, which the config file now asks for.
"""

from collections.abc import Sequence

from cpu_recipe import INIT, MIST
from few_boxes import PLAIN
from methods import compare

STUDENT: Sequence[str] = (
    "SELF_TRAIN.MAX_ITER",
    "300",
    "SELF_TRAIN.IMAGES_PER_BATCH",
    "4",
    "SELF_TRAIN.CHANNELS",
    "128",
)
STUDENT = (*STUDENT, "SELF_TRAIN.SIZES", "(240,)", "SELF_TRAIN.MAX_SIZE", "320", *PLAIN)
UNMOVED = ("SELF_TRAIN.VOTING_IOU", "0", "SELF_TRAIN.DROP_GROUPS", "0")
RULES = {
    "absolute": (*UNMOVED, "SELF_TRAIN.SCORE_THRESHOLD", "0.5", "SELF_TRAIN.RELATIVE_SCORES", "False"),
    "relative": (*UNMOVED, "SELF_TRAIN.SCORE_THRESHOLD", "0.7"),
    "moved": (),
}
INSIDE = {"absolute": "0", "relative": "0.85", "moved": "0.85"}
STUDENTS: dict[str, tuple[str, Sequence[str]]] = {
    f"{teacher}_{rule}": ((teacher,), (*STUDENT, *keys, "SELF_TRAIN.DROP_INSIDE", INSIDE[rule]))
    for teacher in ("pcl", "mist")
    for rule, keys in RULES.items()
}
MORE = {"teacher": ("TEACHER_STEPS", "300")}
MORE |= {"150": ("MAX_ITER", "150"), "600": ("MAX_ITER", "600")}
STUDENTS |= {
    f"{teacher}_relative_{name}": (
        (teacher,),
        (*STUDENTS[f"{teacher}_relative"][1], f"SELF_TRAIN.{key}", value),
    )
    for teacher in ("pcl", "mist")
    for name, (key, value) in MORE.items()
}

if __name__ == "__main__":
    teachers = {"pcl": INIT, "mist": (*INIT, *MIST)}
    compare("pseudo_boxes_photos", "configs/photos_pcl_lite0.yaml", teachers, STUDENTS)

"""Self-training on photographs, from PCL and from the best ablation, three seeds each.

python benchmarks/self_training_photos.py [--seeds 3] [--jobs 1] [--only NAME] [KEY VALUE ...]

configs/photos_pcl_lite0.yaml documents the origin of photographs, proposals and weights.
"""

from ablations_photos import ABLATIONS
from few_boxes import PLAIN
from methods import compare

VARIANTS = {name: ABLATIONS[name] for name in ("pcl", "mist_context_cover_bounded")}
# All boxes that score more than 0.5; benchmarks/pseudo_boxes.py compares with the rule of the config.
ABSOLUTE = ("SELF_TRAIN.SCORE_THRESHOLD", "0.5", "SELF_TRAIN.RELATIVE_SCORES", "False")
ABSOLUTE = (*ABSOLUTE, "SELF_TRAIN.DROP_INSIDE", "0", "SELF_TRAIN.DROP_GROUPS", "0")
ABSOLUTE = (*ABSOLUTE, "SELF_TRAIN.VOTING_IOU", "0", *PLAIN)
STUDENTS = {f"{name}_self": ((name,), ABSOLUTE) for name in VARIANTS}

if __name__ == "__main__":
    compare("self_training_photos", "configs/photos_pcl_lite0.yaml", VARIANTS, STUDENTS)

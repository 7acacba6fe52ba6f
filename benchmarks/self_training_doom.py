"""Ablations of self-training on Doom, three seeds each.

python benchmarks/self_training_doom.py [--seeds 3] [--jobs 1] [--only NAME] [KEY VALUE ...]

PCL and MIST are trained as in methods_doom.py; "_self" is a Faster R-CNN trained on their detections.
configs/doom_pcl_lite0.yaml documents how to create the images and proposals.
"""

from methods import compare, methods
from self_training_photos import ABSOLUTE

THRESHOLD = "SELF_TRAIN.SCORE_THRESHOLD"
STUDENTS = {
    "pcl_self": (("pcl",), ABSOLUTE),
    "pcl_self_top1": (("pcl",), (*ABSOLUTE, THRESHOLD, "1.0")),
    "pcl_self_low": (("pcl",), (*ABSOLUTE, THRESHOLD, "0.2")),
    "pcl_self_short": (("pcl",), (*ABSOLUTE, "SELF_TRAIN.MAX_ITER", "300")),
    "mist_self": (("mist",), ABSOLUTE),
}

if __name__ == "__main__":
    compare("self_training_doom", "configs/doom_pcl_lite0.yaml", methods("pcl", "mist"), STUDENTS)

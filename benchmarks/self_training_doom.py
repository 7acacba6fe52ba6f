"""Self-training on Doom: which choice decides, three seeds each.

python benchmarks/self_training_doom.py [--seeds 3] [--jobs 1] [--only NAME] [KEY VALUE ...]

PCL and MIST train as in methods_doom.py; each "_self" line is a Faster R-CNN taught by them.
configs/doom_pcl_lite0.yaml says where the pictures and their proposals come from.
"""

from methods import compare, methods

THRESHOLD = "SELF_TRAIN.SCORE_THRESHOLD"
STUDENTS = {
    "pcl_self": ("pcl", ()),
    "pcl_self_top1": ("pcl", (THRESHOLD, "1.0")),
    "pcl_self_low": ("pcl", (THRESHOLD, "0.2")),
    "pcl_self_short": ("pcl", ("SELF_TRAIN.MAX_ITER", "300")),
    "mist_self": ("mist", ()),
}

if __name__ == "__main__":
    compare("self_training_doom", "configs/doom_pcl_lite0.yaml", methods("pcl", "mist"), STUDENTS)

"""The recipe that `detector init` writes where there is no GPU, and what its choices do, on photographs.

python benchmarks/cpu_recipe.py [--seeds 3] [--jobs 1] [--resume] [--only NAME] [KEY VALUE ...]

"init": 300 steps at 320 pixels with the first 500 proposals of an image. The proposals come in the order of
selective search, large segments first, so fewer of them also means fewer small ones. "student" is the Faster
R-CNN that learns from "mist"; "student_300" makes half of the steps and no mosaics.
"""

from methods import compare

INIT = ("SOLVER.MAX_ITER", "300", "SOLVER.WARMUP_ITERS", "60", "INPUT.TRAIN_SIZES", "(320,)")
INIT = (*INIT, "INPUT.TEST_SIZES", "(320,)", "PROPOSALS.MAX_COUNT", "500")
CONTEXT = ("MODEL.BOX_FEATURES.CONTEXT", "1.8")
MIST = ("MODEL.METHOD", "mist", *CONTEXT, "CLUSTERS.IGNORE_COVER", "0.9", "CLUSTERS.COVER_IOU", "0.25")
VARIANTS = {
    "init": INIT,
    "boxes_250": (*INIT, "PROPOSALS.MAX_COUNT", "250"),
    "boxes_1500": (*INIT, "PROPOSALS.MAX_COUNT", "1500"),
    "steps_150": (*INIT, "SOLVER.MAX_ITER", "150"),
    "steps_600": (*INIT, "SOLVER.MAX_ITER", "600"),
    "context": (*INIT, *CONTEXT),
    "mist": (*INIT, *MIST),  # as configs/photos_mist_lite0.yaml
    "mist_boxes_250": (*INIT, *MIST, "PROPOSALS.MAX_COUNT", "250"),
}
STUDENT = "SELF_TRAIN.MAX_ITER 600 SELF_TRAIN.IMAGES_PER_BATCH 4 SELF_TRAIN.SIZES (240,) "
STUDENT += "SELF_TRAIN.MAX_SIZE 320 SELF_TRAIN.CHANNELS 128 SELF_TRAIN.ROIS 128 SELF_TRAIN.TEACHER_STEPS 0"
STUDENTS = {
    "student": (("mist",), STUDENT.split()),
    "student_300": (("mist",), (*STUDENT.split(), "SELF_TRAIN.MAX_ITER", "300", "SELF_TRAIN.MOSAIC", "0")),
}

if __name__ == "__main__":
    compare("cpu_recipe", "configs/photos_pcl_lite0.yaml", VARIANTS, STUDENTS)

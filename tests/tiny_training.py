"""The config of a training that takes seconds, on six drawn images."""

import shutil
from pathlib import Path

from detector.data.toybox import draw_toybox

CONFIG = Path(__file__).parents[1] / "configs" / "toybox_pcl.yaml"


def tiny_words(tmp_path: Path) -> list[str]:
    """KEY VALUE words after CONFIG; draws the images."""
    drawn = tmp_path.parent / "tiny_toybox"  # once for all tests of a process
    if not drawn.exists():
        draw_toybox(drawn, train=4, test=2)
    shutil.copytree(drawn, tmp_path / "toybox")
    keys = {
        "DATASETS.ROOT": tmp_path / "toybox",
        "DATASETS.PROPOSALS": tmp_path / "proposals.npz",
        "DATASETS.WORKERS": 0,
        "PROPOSALS.MODE": "grid",
        "PROPOSALS.MAX_COUNT": 20,
        "INPUT.TRAIN_SIZES": (64,),
        "INPUT.TEST_SIZES": (64,),
        "MODEL.BOX_FEATURES.WIDTHS": (8,),
        "SOLVER.MAX_ITER": 2,
        "SOLVER.WARMUP_ITERS": 0,
        "SOLVER.PICTURE_PERIOD": 0,
        "TEST.PICTURES": 0,
        "SELF_TRAIN.SIZES": (64,),
        "SELF_TRAIN.MAX_ITER": 2,
        "SELF_TRAIN.IMAGES_PER_BATCH": 2,
        "OUTPUT_DIR": tmp_path / "run",
    }
    return [str(word) for pair in keys.items() for word in pair]

"""One class, and as many images without it: the weakest case of tags alone.

    python benchmarks/one_class.py photos [--seeds 3] [--jobs 1] [--resume] [--only NAME] [KEY VALUE ...]

The first argument is a data set of benchmarks/few_boxes.py. For each class, the images that show it and as
many others become a data set of their own. "CLASS_mist" is the recipe of benchmarks/one_recipe.py,
"CLASS_pcl" the same with PCL, "CLASS_background" with a background class in the MIL head,
"CLASS_image_head" with an image head, "CLASS_both" with both, "CLASS_full" with the ground-truth boxes of all
images; "CLASS_config" is the recipe of the config file, "CLASS_config_both" with both. "student_..." is the
Faster R-CNN that learns from the detector of that name, "student_..._three" from the mean of this seed, the
next and the one after it.
"""

from collections.abc import Sequence
from functools import partial

from cpu_recipe import MIST
from few_boxes import DATA, take_data_set
from methods import ROOT, compare
from steps import FULL

from detector.config import load_cfg
from detector.data.build import build_dataset
from detector.data.datasets.voc_writer import new_voc_folder, write_annotation, write_split
from detector.data.labeled_box import LabeledBox

BOTH = "MODEL.IMAGE_HEAD", "True", "MODEL.MIL_BACKGROUND", "True"
RECIPES = {
    "mist": MIST,
    "pcl": (*MIST, "MODEL.METHOD", "pcl"),
    "background": (*MIST, "MODEL.MIL_BACKGROUND", "True"),
    "image_head": (*MIST, "MODEL.IMAGE_HEAD", "True"),
    "both": (*MIST, *BOTH),
    "full": (*MIST, *FULL),
    "config": (),
    "config_both": BOTH,
}


def prepare(data_set: str, names: Sequence[str], overrides: Sequence[str]) -> None:
    """Write the data set of each class."""
    cfg = load_cfg(ROOT / DATA[data_set], overrides)
    for label, class_name in enumerate(cfg.datasets.classes):
        root = ROOT / folder_of(data_set, class_name)
        if root.exists() or not any(name.startswith(f"{class_name}_") for name in names):
            continue
        with new_voc_folder(root) as folder:
            for split in (cfg.datasets.train_split, cfg.datasets.test_split):
                dataset = build_dataset(cfg, split)
                shows = [label in dataset.annotation(i).labels for i in range(len(dataset))]
                others = [i for i, shown in enumerate(shows) if not shown]
                step = max(1, len(others) // sum(shows))
                kept = [i for i, shown in enumerate(shows) if shown] + others[::step][: sum(shows)]
                for i in sorted(kept):
                    path, truth = dataset.image_path(i), dataset.annotation(i)
                    (folder / "JPEGImages" / path.name).symlink_to(path.resolve())
                    boxes = truth.boxes[truth.labels == label].tolist()
                    objects = [LabeledBox(class_name, tuple(box)) for box in boxes]
                    write_annotation(folder, path.name, dataset.image_size(i), objects, folder=class_name)
                write_split(folder, split, [dataset.image_ids[i] for i in sorted(kept)])


def variants(data_set: str) -> dict[str, tuple[str, ...]]:
    """The config overrides of each class and recipe."""
    found = {}
    for name in load_cfg(ROOT / DATA[data_set]).datasets.classes:
        data = "DATASETS.CLASSES", f"['{name}']", "DATASETS.ROOT", folder_of(data_set, name)
        found |= {f"{name}_{recipe}": (*more, *data) for recipe, more in RECIPES.items()}
    return found


def folder_of(data_set: str, class_name: str) -> str:
    return f"runs/one_class_{data_set}/{class_name}"


if __name__ == "__main__":
    config = DATA[data_set := take_data_set()]
    found = variants(data_set)
    students = {f"student_{name}": ((name,), ()) for name in found}
    students |= {f"student_{name}_three": ((name,) * 3, ()) for name in found}
    compare(f"one_class_{data_set}", config, found, students, partial(prepare, data_set))

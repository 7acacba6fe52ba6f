"""The configs of published recipes are equal, key by key, to the authors' own settings."""

import runpy
from pathlib import Path

import pytest
from published_recipes import FREE, PUBLISHED

from detector.config import KEYS, load_cfg
from detector.data.build import build_test_transforms
from detector.engine.build import base_lr, build_lr_factor, images_per_step

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs"
OURS = "voc07_ours_oicr_reg_vgg16"


def load(name):
    return load_cfg(CONFIGS / f"{name}.yaml")


def test_every_config_of_voc_is_published_or_says_that_it_is_ours():
    assert {path.stem for path in CONFIGS.glob("voc*.yaml")} == {*PUBLISHED, OURS}
    assert "not a published one" in (CONFIGS / f"{OURS}.yaml").read_text().splitlines()[0]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_recipe_is_the_published_one(name):
    found, expected = load(name).values(), PUBLISHED[name]
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_key_that_matters_to_a_recipe_is_specified(name):
    """A new key, or one that a recipe does not use yet, cannot slip through."""
    expected, method = PUBLISHED[name], PUBLISHED[name]["MODEL.METHOD"]
    unused = {"SELF_TRAIN"} | ({"MODEL.DROP_BLOCK"} if not expected["MODEL.DROP_BLOCK.ENABLED"] else set())
    unused |= {"MODEL.REGRESSION"} if not expected["MODEL.REGRESSION.ENABLED"] else set()
    mist = {"CLUSTERS.TOP_SHARE", "CLUSTERS.NMS_IOU"}
    block = {"SOLVER.DROP_BLOCK_LR_FACTOR", "SOLVER.DROP_BLOCK_GAMMA"}
    others = (set() if method == "mist_wetectron" else mist | block) | (
        {"MODEL.REGRESSION.LABELS", "MODEL.REGRESSION.SCORE_WEIGHT"} if method == "mist_wetectron" else set()
    )
    free = {key for key in KEYS if key in FREE | others or key.rpartition(".")[0] in unused}
    assert set(KEYS) - free - set(expected) == set()


@pytest.mark.parametrize(
    ("name", "images", "decay"),
    [
        ("voc07_pcl_caffe_vgg16", 100_000, 0.0205),
        ("voc07_pcl_pytorch_vgg16", 100_000, 0.0046),
        ("voc07_oicr_reg_pytorch_vgg16", 140_000, None),
        ("voc07_oicr_reg_longer_vgg16", 150_000, None),
        (OURS, 150_000, None),
    ],
)
def test_images_and_weight_decay_in_all(name, images, decay):
    cfg = load(name)
    factor, solver = build_lr_factor(cfg.solver), cfg.solver
    assert solver.max_iter * images_per_step(cfg.solver) == images
    if decay:
        total = sum(factor(i) for i in range(solver.max_iter)) * base_lr(cfg.solver) * solver.weight_decay
        assert total == pytest.approx(decay, rel=0.02)


def test_ours_takes_the_same_steps_as_the_recipe_that_it_builds_on():
    """A sum over N images is a mean with N times the learning rate and an Nth of the weight decay."""
    ours, published = load(OURS).solver, load("voc07_oicr_reg_longer_vgg16").solver
    assert (ours.gradient_reduction, published.gradient_reduction) == ("mean", "sum")
    assert ours.base_lr == 4 * published.base_lr
    assert ours.weight_decay == published.weight_decay / 4
    assert (ours.max_iter, ours.steps) == (published.max_iter, published.steps)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("voc07_oicr_caffe_vgg16", ["1e-7"]),
        ("voc07_pcl_caffe_vgg16", ["1e-7", "1e-12"]),
        ("voc07_mist_reg_wetectron_vgg16", ["1e-10", "log-softmax"]),
    ],
)
def test_a_config_says_where_its_logarithms_are_clamped_otherwise(name, theirs):
    """A clamp without a gradient is a deviation: a class whose image score is below it learns nothing."""
    deviations = (CONFIGS / f"{name}.yaml").read_text().replace("\n#  ", "").split("\n# * ")
    (bullet,) = [each for each in deviations if each.startswith("Logarithms: ")]
    assert "1e-6" in bullet
    assert all(word in bullet for word in theirs)


def test_mist_tests_in_14_passes():
    assert len(build_test_transforms(load("voc07_mist_reg_wetectron_vgg16").input)) == 14


def test_mist_on_coco_is_that_of_voc_without_its_drop_block():
    name = "coco14_mist_reg_wetectron_vgg16"
    coco, voc = (load(each).values() for each in (name, "voc07_mist_reg_wetectron_vgg16"))
    differ = {key: value for key, value in coco.items() if value != voc[key]}
    assert {key: value for key, value in differ.items() if not key.startswith("DATASETS")} == {
        "OUTPUT_DIR": f"runs/{name}",
        "MODEL.DROP_BLOCK.ENABLED": False,
        "SOLVER.MAX_ITER": 130000,
        "SOLVER.STEPS": (90000, 120000),
        "SOLVER.WARMUP_ITERS": 500,
    }
    assert len(coco["DATASETS.CLASSES"]) == 80


def test_the_table_of_the_recipes_is_generated_from_the_configs():
    script = runpy.run_path(str(ROOT / "docs/make/recipes_table.py"))
    assert script["page"]() == script["PAGE"].read_text(), "run python docs/make/recipes_table.py"


def test_the_table_has_the_published_figures_and_the_settings_behind_them():
    page = (ROOT / "docs/recipes.md").read_text()
    rows = {}
    for line in page.splitlines():
        if line.startswith("| "):
            title, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            rows[title] = cells
    assert rows["mAP50 / CorLoc published"] == [
        "41.2 / 60.6",
        "43.5 / 62.7",
        "49.2 / 65.0",
        "52.9 / 67.2",
        "54.1 / 69.5",
        "54.9 / 68.8",
        "none",
    ]
    assert rows["ignore IoU below"] == ["off", "off", "0.1", "0.1", "0.1", "off", "0.1"]
    assert rows["images in all"] == ["140000", "100000", "100000", "140000", "150000", "240000", "150000"]
    shortest, longest = "shortest, the longer at most 2000", "longest"
    assert rows["of the side"] == [shortest, shortest, longest, longest, longest, shortest, longest]
    assert rows["of which side"] == [*[longest] * 5, "shortest", longest]
    assert rows["cap on the longer side in testing"] == [*["none"] * 5, "2000", "none"]
    assert rows["drop block"][5].endswith("step 1e-06, x 3 at each fall")
    assert rows["test passes"] == ["10", "10", "10", "10", "12", "14", "12"]

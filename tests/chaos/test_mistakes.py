"""The plausible mistakes of a new user: each is answered by name, or works."""

import fcntl
import os
import shutil
import sys
from pathlib import Path

import pytest
from chaos.harness import Case, check
from chaos.results import CHECK, FOUND, NEW, OWN, PREDICT, RUN, TEST, TRAIN, measured, printed

pytestmark = pytest.mark.chaos
RESUME = ("train", "--config-file", "config.yaml", "--resume")
BRIEF = (*TRAIN[:-1], 2)
_locks = []  # files that are locked while the tests run


def edit(name, old, new, count=-1, encoding="utf-8"):
    def change(folder):
        text = (folder / name).read_text()
        assert old in text, f"{name} does not hold {old!r}"
        (folder / name).write_text(text.replace(old, new, count), encoding=encoding)

    return change


def label_every_picture(label):
    def change(folder):
        lines = (folder / "own/train.csv").read_text().splitlines()
        lines[1:] = [f"{line};{label}" for line in lines[1:]]
        (folder / "own/train.csv").write_text("\n".join(lines) + "\n")

    return change


def misspell_once(label, misspelt):
    """Every picture shows the label, and the last one has a misspelling of it."""

    def change(folder):
        label_every_picture(label)(folder)
        text = (folder / "own/train.csv").read_text().rstrip("\n")
        (folder / "own/train.csv").write_text(text.removesuffix(label) + misspelt + "\n")

    return change


def as_if_killed(folder):
    (folder / "run/model_final.pt").unlink()


def in_use(folder):
    """Another process holds the run folder: that of the tests, which calls itself 4711."""
    (folder / "run/.lock").write_text("process 4711 on elsewhere (train_net.py)\n")
    _locks.append(open(folder / "run/.lock", "r+"))  # noqa: SIM115  held until the tests end
    fcntl.lockf(_locks[-1], fcntl.LOCK_EX)


def own_files_in_the_run(folder):
    for name in ("results/mine.jsonl", "pictures/99_mine.png", "pictures/mine.txt"):
        (folder / "run" / name).parent.mkdir(exist_ok=True)
        (folder / "run" / name).write_text("mine")


def evaluate_moved():
    import detector

    detector.evaluate("moved")


def measured_moved(folder, outcome):
    shutil.move(folder / "moved", folder / "run")
    return measured(folder, outcome)


def load(*words, **options):
    def command():
        import detector

        detector.load(*words, device="cpu", **options)

    return command


def without_timm():
    sys.modules["timm"] = None
    sys.modules.pop("detector.modeling.backbones.timm", None)  # an earlier test may have loaded both
    import detector

    keys = {"OUTPUT_DIR": "new", "MODEL.BACKBONE.NAME": "timm", "MODEL.BACKBONE.TIMM_NAME": "resnet10t"}
    detector.train("config.yaml", {**keys, "MODEL.BACKBONE.STRIDE": 16})


def deep_tiff(folder):
    """12 bits in a TIFF of 16, as microscopes write them."""
    import numpy as np
    from PIL import Image

    ramp = np.linspace(0, 4095, 64 * 64).reshape(64, 64).astype(np.uint16)
    Image.fromarray(ramp).save(folder / "deep.tif")


def float_tiff(folder):
    import numpy as np
    from PIL import Image

    ramp = np.linspace(0, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
    Image.fromarray(ramp).save(folder / "deep.tif")


def brightness():
    from detector.data.images import open_image

    image = open_image(Path("deep.tif")).float()
    print(
        "as bright as it is" if 100 < image.mean() < 155 else f"mean {image.mean():.1f} of 255, expected 127"
    )


def permissions(folder, outcome):
    return oct(os.stat(folder / "run/metrics.json").st_mode & 0o777)


def copy(source, target):
    return lambda folder: shutil.copy(folder / source, folder / target)


ERROR, WARNED, EITHER = "error", "warning", "error or warning"
OTHER_ORDER = "['car','bird','fish','flower','house','robot']"
# What is done: command, what has to come of it, what the message names, and what is in the Case besides.
MISTAKES = {
    "classes in another order": ((*TEST, "DATASETS.CLASSES", OTHER_ORDER), ERROR, ("CLASSES|classes",), {}),
    "KEY=VALUE": ((*CHECK, "DATASETS.CLASSES=[]"), "equal", (), {"writes": RUN, "result": printed}),
    "a value without its key": ((*CHECK, "=1"), ERROR, ("''",), {}),
    "an odd number of words": ((*CHECK, "SEED"), ERROR, ("SEED",), {}),
    "a misspelt key": ((*CHECK, "SOLVER.BASE_LRR", 1), ERROR, ("SOLVER.BASE_LRR",), {}),
    "a misspelt tag": (
        (*BRIEF, *OWN),
        EITHER,
        ("roboto",),
        {"prepare": misspell_once("robot", "roboto"), "writes": NEW},
    ),
    "a class that every picture shows": (
        (*BRIEF, *OWN),
        EITHER,
        ("'robot'|robot",),
        {"prepare": label_every_picture("robot"), "writes": NEW},
    ),
    "a class that no picture shows": (
        (*BRIEF, "DATASETS.CLASSES", "['bird','car','fish','flower','house','robot','zebra']"),
        EITHER,
        ("zebra",),
        {"writes": NEW},
    ),
    "classes [] for voc": (
        (*CHECK, "DATASETS.CLASSES", "[]"),
        "equal",
        (),
        {"writes": RUN, "result": printed},
    ),
    "classes without quotes": (
        (*CHECK, "DATASETS.CLASSES", "[bird,car,fish,flower,house,robot]"),
        "equal",
        (),
        {"writes": RUN, "result": printed},
    ),
    "proposals of another data set": (
        (*BRIEF, "DATASETS.PROPOSALS", "own/proposals.npz"),
        ERROR,
        ("own/proposals.npz",),
        {"writes": NEW},
    ),
    "no proposals": ((*BRIEF, "DATASETS.PROPOSALS", "none.npz"), ERROR, ("none.npz",), {"writes": NEW}),
    "load with score_threshold=30": (load("run", score_threshold=30), ERROR, ("score_threshold",), {}),
    "predict --score-threshold 30": ((*PREDICT[:-1], 30, "pictures/png"), ERROR, ("score_threshold",), {}),
    "predict into the pictures": (
        ("predict", "--weights", "run", "--device", "cpu", "--output", ".", "pictures/a.jpg"),
        ERROR,
        ("pictures/a.jpg",),
        {"prepare": copy("pictures/jpg/picture.jpg", "pictures/a.jpg")},
    ),
    "predict into the VOC folder": (
        (
            "predict",
            "--weights",
            "run",
            "--device",
            "cpu",
            "--format",
            "voc",
            "--output",
            "toybox",
            "toybox/JPEGImages/000001.jpg",
        ),
        ERROR,
        (".xml",),
        {},
    ),
    "predict what is not there": ((*PREDICT, "nothing.jpg"), ERROR, ("nothing.jpg",), {"writes": FOUND}),
    "resuming with another batch": (
        (*RESUME, "SOLVER.IMAGES_PER_BATCH", 3),
        ERROR,
        ("IMAGES_PER_BATCH|images per step",),
        {"prepare": as_if_killed, "writes": RUN},
    ),
    "learning rate 1e6": ((*TRAIN, "SOLVER.BASE_LR", "1e6"), ERROR, ("BASE_LR",), {"writes": NEW}),
    "learning rate 1e30": ((*TRAIN, "SOLVER.BASE_LR", "1e30"), ERROR, ("BASE_LR",), {"writes": NEW}),
    "INPUT.STD of 1e-30": (
        (*TRAIN, "INPUT.STD", "(1e-30,1e-30,1e-30)"),
        ERROR,
        ("INPUT.STD",),
        {"writes": NEW},
    ),
    "a run folder in use, train": (
        (*RESUME, "OUTPUT_DIR", "run"),
        ERROR,
        ("run", "process 4711"),
        {"prepare": in_use},
    ),
    "a run folder in use, test": (TEST, ERROR, ("run", "process 4711"), {"prepare": in_use}),
    "a run that was moved": (
        evaluate_moved,
        "equal",
        (),
        {
            "prepare": lambda folder: shutil.move(folder / "run", folder / "moved"),
            "writes": ("moved/*",),
            "result": measured_moved,
        },
    ),
    "a run folder that holds a run": ((*TRAIN, "OUTPUT_DIR", "run"), ERROR, ("--resume", "run"), {}),
    "testing before training": ((*TEST, "OUTPUT_DIR", "none"), ERROR, ("none/model_final.pt",), {}),
    "testing with another model": (
        (*TEST, "MODEL.BOX_FEATURES.WIDTHS", "(32,)"),
        ERROR,
        ("model_final.pt",),
        {"writes": RUN},
    ),
    "load of a yaml": (load("config.yaml"), ERROR, ("config.yaml", "run folder|checkpoint of"), {}),
    "load of a picture": (load("pictures/png/picture.png"), ERROR, ("picture.png",), {}),
    "load of an empty folder": (load("pictures"), ERROR, ("pictures",), {}),
    "timm is not installed": (without_timm, ERROR, ("timm",), {"writes": NEW}),
    "a timm network of the hub": (
        (*BRIEF, "MODEL.BACKBONE.NAME", "timm", "MODEL.BACKBONE.TIMM_NAME", "hf-hub:timm/none"),
        ERROR,
        ("TIMM_NAME",),
        {"writes": NEW},
    ),
    "a CSV that is not UTF-8": (
        (*CHECK, *OWN),
        ERROR,
        ("train.csv", "UTF-8"),
        {"prepare": edit("own/train.csv", "robot", "r\xf6bot", 1, "latin-1")},
    ),
    "labels with |": (
        (*CHECK, *OWN),
        EITHER,
        ("train.csv", "|"),
        {"prepare": edit("own/train.csv", ";", "|"), "writes": RUN},
    ),
    "a CSV with ; between its columns": (
        (*CHECK, *OWN),
        "equal",
        (),
        {"prepare": edit("own/train.csv", ",", ";"), "writes": RUN, "result": printed},
    ),
    "a picture that is missing": (
        (*CHECK, *OWN),
        ERROR,
        ("train.csv", "none.jpg"),
        {"prepare": lambda f: (f / "own/train.csv").open("a").write("none.jpg,robot\n")},
    ),
    "a data set that is missing": ((*CHECK, "DATASETS.ROOT", "toybx"), ERROR, ("toybx",), {}),
    "DROP_CELLS 1.0": (
        (*BRIEF, "MODEL.BOX_FEATURES.DROP_CELLS", 1.0),
        ERROR,
        ("DROP_CELLS",),
        {"writes": NEW},
    ),
    "FROZEN_STAGES of small": (
        (*BRIEF, "MODEL.BACKBONE.FROZEN_STAGES", 1),
        EITHER,
        ("FROZEN_STAGES",),
        {"writes": NEW},
    ),
    "a warm-up longer than the run": (
        (*BRIEF, "SOLVER.WARMUP_ITERS", 100),
        EITHER,
        ("WARMUP_ITERS",),
        {"writes": NEW},
    ),
    "an empty config": (
        CHECK,
        ERROR,
        ("config.yaml",),
        {"prepare": lambda folder: (folder / "config.yaml").write_text("")},
    ),
    "12-bit TIFF": (
        brightness,
        "error or equal",
        ("deep.tif",),
        {"prepare": deep_tiff, "result": printed, "reference": "as bright as it is"},
    ),
    "TIFF of 0 to 1": (
        brightness,
        "error or equal",
        ("deep.tif",),
        {"prepare": float_tiff, "result": printed, "reference": "as bright as it is"},
    ),
    "a report before the test": (
        ("report", "run"),
        ERROR,
        ("metrics.json|detector test",),
        {"prepare": lambda folder: (folder / "run/metrics.json").unlink()},
    ),
    "proposals that exist": (
        ("propose", "--voc", "toybox", "--mode", "grid", "--output", "toybox/proposals.npz"),
        ERROR,
        ("toybox/proposals.npz",),
        {},
    ),
    "one's own files in the run folder": (
        TEST,
        "equal",
        (),
        {
            "prepare": own_files_in_the_run,
            "writes": (
                *RUN,
                "!run/results/mine.jsonl",
                "!run/pictures/99_mine.png",
                "!run/pictures/mine.txt",
            ),
            "result": measured,
        },
    ),
    "figures that are private": (
        TEST,
        "equal",
        (),
        {
            "prepare": lambda folder: (folder / "run/metrics.json").chmod(0o600),
            "writes": RUN,
            "result": permissions,
            "reference": "0o600",
        },
    ),
}
SAME_AS = {printed: CHECK, measured: TEST, measured_moved: TEST}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(world, reference, tmp_path, name):
    command, expect, names, options = MISTAKES[name]
    if expect == "equal" and "reference" not in options:
        result = options["result"]
        undisturbed = measured if result is measured_moved else result
        same_as = (*CHECK, *OWN) if command == (*CHECK, *OWN) else SAME_AS[result]
        options = {**options, "reference": reference(same_as, undisturbed)[0]}
    check([Case("mistake", name, command, expect, names, **options)], world, tmp_path)

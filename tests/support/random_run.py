"""A run folder with random weights, for what is tested after training."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from detector.commands.propose import make_proposals
from detector.config import dump_cfg, load_cfg
from detector.data.toybox import CLASSES as TOYBOX
from detector.data.toybox import draw_toybox
from detector.engine.checkpoint import save_checkpoint
from detector.modeling.build import build_model
from detector.self_training.build import build_student
from detector.self_training.fcos import FCOS

CONFIG = Path(__file__).parents[2] / "configs" / "toybox_pcl.yaml"
CLASSES = ("bird", "<b>car</b> & co", "fish")


def make_run(folder: Path, *words: object, classes: tuple[str, ...] = CLASSES) -> Path:
    """A run folder as training leaves it: small, quick, and with scores that differ much among proposals.

    Args:
        words: KEY VALUE ... of the config.
    """
    quick = {
        "DATASETS.CLASSES": classes,
        "DATASETS.WORKERS": 0,
        "PROPOSALS.MODE": "grid",
        "PROPOSALS.MAX_COUNT": 40,
        "INPUT.TEST_SIZES": (64,),
        "SOLVER.PICTURE_PERIOD": 0,
        "MODEL.BOX_FEATURES.WIDTHS": (16,),
        "MODEL.HEAD_STD": 1.0,
        "MODEL.IMAGE_HEAD": False,
    }
    cfg = load_cfg(CONFIG, [*(word for pair in quick.items() for word in pair), *words])
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(dump_cfg(cfg))
    torch.manual_seed(0)
    path, config = folder / "model_final.pt", cfg.dump()
    save_checkpoint(path, build_model(cfg), None, iteration=1, train_seconds=0.0, config=config)
    return folder


def make_toybox_run(folder: Path, train: int, test: int = 2) -> Path:
    """A run folder for a new small Toybox, with proposals."""
    draw_toybox(folder / "toybox", train=train, test=test)
    words = ("DATASETS.ROOT", str(folder / "toybox"), "DATASETS.PROPOSALS", str(folder / "proposals.npz"))
    run = make_run(folder / "run", *words, "OUTPUT_DIR", str(folder / "run"), classes=TOYBOX)
    make_proposals(config_file=run / "config.yaml", workers=1)
    return run


def make_student(run: Path, *words: object) -> Path:
    """The folder of self-training in a run folder, with random weights whose scores differ much."""
    quick = {"SELF_TRAIN.SIZES": (64,), "SELF_TRAIN.MAX_SIZE": 96}
    cfg = load_cfg(run / "config.yaml", [*(word for pair in quick.items() for word in pair), *words])
    folder = run / "self_train"
    folder.mkdir()
    (folder / "config.yaml").write_text(dump_cfg(cfg))
    torch.manual_seed(0)
    model = build_student(cfg)
    for _ in range(20):
        model.train().backbone(torch.randn(2, 3, 64, 64))  # for the statistics of batch norms
    for head in (
        [model.head.classification_head.cls_logits]
        if isinstance(model, FCOS)
        else [model.rpn.head.cls_logits, model.roi_heads.box_predictor.cls_score]
    ):
        torch.nn.init.normal_(head.weight, std=0.5)
    path, config = folder / "model_final.pt", cfg.dump()
    save_checkpoint(path, model, None, iteration=1, train_seconds=0.0, config=config)
    return folder


def make_pictures(folder: Path, count: int, seed: int = 0) -> Path:
    """A folder of pictures of random sizes and noise, two of five of them thin, two of ten black or white."""
    folder.mkdir()
    generator = np.random.default_rng(seed)
    for number in range(count):
        sides = generator.integers(1, 300, 2)
        if number % 5 < 2:  # thin
            sides[number % 5] = generator.integers(1, 6)
        height, width = sides.tolist()
        noise = generator.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
        image = Image.fromarray(noise).resize((width, height))
        if (color := {3: "black", 4: "white"}.get(number % 10)) is not None:
            image = Image.new("RGB", image.size, color)
        image.save(folder / f"{number}.png")
    return folder

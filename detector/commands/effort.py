"""What `detector train --to detector` does for a better detector than that of one training, without boxes.

Another recipe where the weak detector has not learned the tags: the rule and its thresholds are measured in
docs/RESULTS.md, "Which recipe, by tags alone". Three weak detectors in place of one: "Votes and three
detectors".
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from detector.config import Settings, load_cfg
from detector.evaluation.summary import write_json
from detector.inference.results import LEARNED_WELL
from detector.self_training.pseudo_boxes import found_by
from detector.self_training.pseudo_set import find_pseudo_set
from detector.utils.files import file_digest, read_json

_CHOICE = "choice.json"
_FIRST, _UNFINISHED = "first", "first.part"  # folders of a run, for what the first recipe gave


def choose_recipe(folder: Path) -> dict[str, Any]:
    """The keys of another recipe for a run whose weak detector was tested; {}: it is kept.

    It is kept if a student learns from it already, or if the image AP of the test split, for which no boxes
    are read, is at least LEARNED_WELL. Else all that the run has written is moved to FOLDER/first.
    choice.json says what was seen and chosen.

    Raises:
        OSError: a file could not be written or moved; the next :func:`chosen_before` goes on with it.
    """
    if (folder / "self_train").exists():
        return {}
    cfg = load_cfg(folder / "config.yaml")
    image_ap = read_json(folder / "metrics.json")["image_mAP"]
    chosen = other_recipe(cfg) if image_ap is not None and image_ap < LEARNED_WELL else {}
    reason = _reason(cfg, image_ap, chosen)
    print(f"recipe: {reason}", flush=True)
    write_json(folder / _CHOICE, {"image_mAP": image_ap, "chosen": chosen, "reason": reason})
    if chosen:
        _set_aside(folder)
    return chosen


def chosen_before(folder: Path) -> dict[str, Any]:
    """The keys that :func:`choose_recipe` chose for this run in an earlier call; {}: none."""
    if (folder / _UNFINISHED).exists():
        _set_aside(folder)
    path = folder / _FIRST / _CHOICE
    return dict(read_json(path, "choice of a recipe")["chosen"]) if path.is_file() else {}


def other_recipe(cfg: Settings) -> dict[str, Any]:
    """Twice the steps and the rate, the backbone as fast as the head; {}: it is so already.

    A single class also gets a background class and an image head.

    Args:
        cfg: of a run, with the names of its classes.
    """
    solver, keys = cfg.solver, dict[str, Any]()
    if solver.backbone_lr_factor < 1:
        keys |= {
            "SOLVER.BACKBONE_LR_FACTOR": 1.0,
            "SOLVER.BASE_LR": 2 * solver.base_lr,
            "SOLVER.MAX_ITER": 2 * solver.max_iter,
        }
        if solver.schedule == "step":
            keys["SOLVER.STEPS"] = [2 * step for step in solver.steps]
    if len(cfg.datasets.classes) == 1 and not (cfg.model.mil_background and cfg.model.image_head):
        keys |= {"MODEL.MIL_BACKGROUND": True, "MODEL.IMAGE_HEAD": True}
    return keys


def other_seeds(cfg: Settings, effort: int) -> dict[int, Path]:
    """Run folders, by SEED, of the weak detectors that find the boxes of a run's student beside its own.

    Two if the effort is 2. Once boxes were found, those that have found them, whatever the effort.
    """
    folder = Path(cfg.output_dir)
    runs = {seed: folder / f"seed_{seed}" for seed in (cfg.seed + 1, cfg.seed + 2)}
    known = found_by(folder / "self_train")
    if known or find_pseudo_set(folder / "self_train"):
        return {
            seed: run
            for seed, run in runs.items()
            if (weights := run / "model_final.pt").is_file() and file_digest(weights) in known
        }
    drawn = cfg.datasets.boxed_share and not cfg.datasets.boxed  # by SEED: each would know other boxes
    return {} if effort == 1 or drawn else runs


def as_words(keys: Mapping[str, Any]) -> list[str]:
    """KEY VALUE KEY VALUE ..., as overrides of a config."""
    return [str(word) for pair in keys.items() for word in pair]


def _set_aside(folder: Path) -> None:
    """Move all that is in a run folder to its subfolder first; if stopped, a second call goes on."""
    unfinished = folder / _UNFINISHED
    unfinished.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path != unfinished:
            path.rename(unfinished / path.name)
    shutil.copyfile(unfinished / "config.yaml", folder / "config.yaml")  # a run folder is a config, too
    unfinished.rename(folder / _FIRST)


def _reason(cfg: Settings, image_ap: float | None, chosen: Mapping[str, Any]) -> str:
    split = cfg.datasets.test_split
    if image_ap is None:
        return f"no image of {split} shows a class, so whether the tags are learned cannot be measured"
    found = f"image AP {image_ap:.1f} on {split}"
    if image_ap >= LEARNED_WELL:
        return f"{found}: the tags are learned, so the config is kept"
    if not chosen:
        return f"{found} is below {LEARNED_WELL:g}, but the backbone learns as fast as the head already"
    words = " ".join(as_words(chosen))
    return f"{found} is below {LEARNED_WELL:g}: the tags are not learned; begins again with {words}"

"""`detector train --to weak` and `--to detector`: everything from tagged pictures to a tested detector."""

import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from detector.commands.effort import as_words, choose_recipe, chosen_before, other_seeds
from detector.commands.forecast import announce
from detector.commands.propose import make_proposals
from detector.commands.self_train import self_train_and_test
from detector.config import Settings, check_resumable, load_cfg, parse_cfg, with_values
from detector.data.build import build_splits, build_training_set, name_classes
from detector.data.proposals import load_proposals
from detector.data.training_set import changed_data, describe_truth
from detector.engine.checkpoint import load_checkpoint
from detector.engine.resuming import last_step, load_newest
from detector.engine.run_folder import check_class_names, check_same_data
from detector.engine.train import train
from detector.inference.results import results_key
from detector.inference.test import evaluate
from detector.reporting.build import is_current, write_report
from detector.self_training.pseudo_boxes import found_by
from detector.utils.distributed import LONG_WAIT, find_device, gather, is_main, process_group, sync_errors
from detector.utils.errors import describe_value
from detector.utils.files import file_digest, read_json, reading
from detector.utils.progress import duration

logger = logging.getLogger(__name__)

_CPU = torch.device("cpu")
_ENOUGH = 30.0  # seconds of stages that tell how fast the machine is


def quick(cfg: Settings) -> dict[str, Any]:
    """The keys of a first try: fewer steps, smaller images, fewer proposals of a faster search.

    It has a run folder and a file of proposals of its own, so that the whole recipe can follow.
    """
    own, proposals = f"{cfg.output_dir}_quick", Path(cfg.datasets.proposals)
    size = _smaller(min(cfg.input.train_sizes))
    keys: dict[str, Any] = {
        "OUTPUT_DIR": own,
        "DATASETS.PROPOSALS": str(proposals.with_stem(f"{proposals.stem}_quick")),
        "PROPOSALS.MAX_COUNT": cfg.proposals.max_count * 3 // 5,
        "INPUT.TRAIN_SIZES": (size,),
        "INPUT.TEST_SIZES": (size,),
        "INPUT.TEST_FLIP": False,
        "SOLVER.MAX_ITER": -(-cfg.solver.max_iter // 2),
        "SOLVER.WARMUP_ITERS": cfg.solver.warmup_iters // 2,
        "SELF_TRAIN.MAX_ITER": -(-cfg.self_train.max_iter // 3),
        "SELF_TRAIN.SIZES": (_smaller(cfg.self_train.sizes[-1]),),
        "SELF_TRAIN.MAX_SIZE": _smaller(cfg.self_train.max_size),
        "SELF_TRAIN.TEACHER_STEPS": 0,
    }
    if cfg.solver.schedule == "step":
        keys["SOLVER.STEPS"] = tuple(step // 2 for step in cfg.solver.steps)
    if fast := {"quality": "fast", "opencv_quality": "opencv_fast"}.get(cfg.proposals.mode):
        keys["PROPOSALS.MODE"] = fast
    return keys


def _smaller(side: int) -> int:
    """Four fifths of a side, in steps of 16 pixels: two thirds of the pixels."""
    return max(32, round(side * 4 / 5 / 16) * 16)


class Stage(NamedTuple):
    """One of the commands of `detector train --to detector`."""

    name: str
    result: Path  # shows that it is done
    run: Callable[[], object]


def run_stages(
    config_file: str | Path,
    overrides: Sequence[str] = (),
    to: Literal["weak", "detector"] = "detector",
    *,
    effort: int = 1,
) -> Path:
    """Make proposals, train, test, self-train and write the report; prints one line for each stage.

    What an earlier call has finished is not done again unless what it read has changed since: tags, boxes,
    weights or proposals of a test, or the results that a report shows. What it began is continued. Under
    torchrun the processes share each stage but the report.

    Args:
        to: "weak" ends with the test of the weak detector.
        effort: 2 changes the recipe where the weak detector has not learned the tags, and begins again with
            :func:`detector.commands.effort.other_recipe`; and the student learns what this detector and two
            of other seeds find together. A student that has boxes already keeps them.

    Returns:
        the run folder, which stands for the Faster R-CNN of self-training where that was trained.

    Raises:
        UserError, OSError: of any stage; or the run folder holds a detector of another config.
    """
    cfg = load_cfg(config_file, overrides)
    folder = Path(cfg.output_dir)
    chosen = _of_main_process(lambda: chosen_before(folder)) if effort == 2 else {}
    if chosen:
        overrides = [*overrides, *as_words(chosen)]
        cfg = load_cfg(config_file, overrides)
    find_device(cfg.device)  # an error now rather than after the proposals
    seeds = _of_main_process(lambda: other_seeds(cfg, effort)) if to == "detector" else {}
    with process_group(_CPU, LONG_WAIT), sync_errors():
        for seed, run in {cfg.seed: folder, **seeds}.items():
            check_same_run(with_values(cfg, {"SEED": seed}), run / "model_final.pt")
            if is_main():
                warn_of_changes(cfg, run / "model_final.pt", "SOLVER", "PROPOSALS", "INPUT", "TEST")
        if is_main() and to == "detector":
            warn_of_changes(cfg, folder / "self_train/model_final.pt", "SELF_TRAIN")
    stages = list_stages(cfg, str(config_file), overrides, to, seeds)
    with process_group(_CPU, LONG_WAIT):
        left = gather(_left_to_do({stage.name: stage.result for stage in stages}))[0]
    if is_main() and not all((run / "model_final.pt").exists() for run in seeds.values()):
        numbers = " and ".join(map(str, seeds))
        print(
            f"the student learns what three weak detectors find, of SEED {cfg.seed}, {numbers}; "
            "--effort 1 trains one, in less time"
        )
    seconds = announce(cfg, left, num_weights=1 + len(seeds)) if left else {}
    began, expected = time.perf_counter(), 0.0  # what the stages until now were to take
    for number, stage in enumerate(stages, start=1):
        with process_group(_CPU, LONG_WAIT):  # the main process may still write what another looks for
            done = gather(stage.result.exists() and not _outdated(cfg, stage))[0]
        if is_main():
            what = "done:" if done else "writes"
            later = sum(seconds.get(each.name, 0.0) for each in stages[number - 1 :])
            if expected > _ENOUGH:  # the machine may be faster or slower than when steps were timed
                later *= (time.perf_counter() - began) / expected
            wait = f", {duration(later)} left in all" if later and not done else ""
            print(f"stage {number} of {len(stages)}: {stage.name}, {what} {stage.result}{wait}", flush=True)
        if not done:
            stage.run()
            expected += seconds.get(stage.name, 0.0)
        may_change = stage.name == "test" and effort == 2 and not chosen
        if may_change and _of_main_process(lambda: choose_recipe(folder)):
            return run_stages(config_file, overrides, to, effort=effort)
    return folder


def list_stages(
    cfg: Settings,
    config: str,
    overrides: Sequence[str],
    to: Literal["weak", "detector"],
    seeds: Mapping[int, Path],
) -> list[Stage]:
    """The stages up to `to`, in their order.

    Args:
        seeds: run folders of further weak detectors, by their SEED.
    """
    folder, proposals = Path(cfg.output_dir), Path(cfg.datasets.proposals)
    student = folder / "self_train"

    def train_again(seed: int) -> Path:
        return train(config, [*overrides, "SEED", str(seed), "OUTPUT_DIR", str(seeds[seed])], resume=True)

    def learn() -> Path:
        weights = [str(run / "model_final.pt") for run in (folder, *seeds.values())]
        return self_train_and_test(config, overrides, weights, resume=True)

    def report() -> None:
        if is_main():
            write_report(folder, [], None, "student")

    stages = [
        Stage("propose", proposals, lambda: make_proposals(config_file=config, overrides=overrides)),
        Stage("train", folder / "model_final.pt", lambda: train(config, overrides, resume=True)),
        Stage("test", folder / "metrics.json", lambda: evaluate(folder, model="weak")),
    ]
    if to == "detector":
        for seed, run in seeds.items():
            stages.append(Stage(f"train seed {seed}", run / "model_final.pt", partial(train_again, seed)))
        stages.append(Stage("self-train", student / "metrics.json", learn))
        stages.append(Stage("report", student / "report.html", report))
    return stages


def _of_main_process(find: Callable[[], dict[Any, Any]]) -> dict[Any, Any]:
    """What the main process finds; only it surely sees what it has written."""
    with process_group(_CPU, LONG_WAIT):
        with sync_errors():
            found = find() if is_main() else {}
        return gather(found)[0]


def _left_to_do(results: Mapping[str, Path]) -> dict[str, int]:
    """The stages, but the report, from the first whose result is missing, and how many steps were made."""
    later = itertools.dropwhile(lambda name: results[name].exists(), results)
    return {
        name: last_step(results[name].parent) if "train" in name else 0 for name in later if name != "report"
    }


def _outdated(cfg: Settings, stage: Stage) -> bool:
    """Whether what a stage read has changed since it left its result; of training, check_same_run tells.

    Raises:
        UserError: there are no proposals of some images, which are not made while there is a file of others.
    """
    name, result, folder = stage.name, stage.result, stage.result.parent
    if name == "propose":
        proposals = load_proposals(result)
        for dataset in build_splits(cfg):
            proposals.check(dataset)
    if name == "report":
        return not is_current(folder)
    if name not in ("test", "self-train"):
        return False
    of_weak = folder.parent / "model_final.pt"
    known = found_by(folder) if name == "self-train" and of_weak.is_file() else []
    if known and file_digest(of_weak) not in known:
        return True  # the stage refuses to go on, and says what to do
    own = load_cfg(folder / "config.yaml")
    metrics, key = read_json(result), results_key(own, folder / "model_final.pt", name == "self-train")
    train_set, test_set = build_splits(own)
    truth = describe_truth(test_set, train_set)
    # An older version did not write the key.
    return metrics.get("results_key", key) != key or bool(changed_data(metrics.get("truth"), truth))


def check_same_run(cfg: Settings, weights: Path) -> None:
    """Refuse to go on with a training that began with another config or data; none yet is fine.

    Args:
        weights: what the training writes at its end.

    Raises:
        UserError: names the key or the part of the data that differs.
    """
    found = (weights, load_checkpoint(weights)) if weights.exists() else load_newest(weights.parent)
    if found is None:
        return
    path, checkpoint = found
    training_set = build_training_set(cfg)
    cfg = name_classes(cfg, training_set.dataset)
    check_class_names(cfg.datasets.classes, checkpoint, path)
    with reading(path, "checkpoint"):
        check_resumable(checkpoint["config"], cfg, "weak")
    check_same_data(weights.parent, training_set.describe())


def warn_of_changes(cfg: Settings, weights: Path, *groups: str) -> None:
    """Warn where a detector is finished and keys of its training or test, in `groups`, have changed since."""
    if not weights.exists():
        return
    with reading(weights, "checkpoint"):
        before = parse_cfg(load_checkpoint(weights)["config"], "its config").values()
    changes = [
        f"{key}: {describe_value(before[key])} -> {describe_value(value)}"
        for key, value in cfg.values().items()
        if key.split(".")[0] in groups and before[key] != value
    ]
    if changes:
        logger.warning(
            "%s is finished and is kept, although it was made with other keys: %s; to train a new "
            "one, name another OUTPUT_DIR; detector test %s KEY VALUE tests it with other keys",
            *(weights, "; ".join(changes), weights.parent),
        )

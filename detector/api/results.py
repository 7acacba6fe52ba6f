"""Where the results of a test go: a run's own test, and tests with other weights or keys."""

import hashlib
from pathlib import Path

from yacs.config import CfgNode

from detector.config import load_cfg
from detector.utils.files import archive_digest, file_digest
from detector.utils.outputs import OutputFolder

OWN_TEST = "the run's own test"  # the key of its outputs


def find_run_folder(config_file: Path, cfg: CfgNode) -> Path:
    """The folder of a run's config.yaml, even if the run was moved; for other configs, their OUTPUT_DIR."""
    folder = config_file.parent
    is_run = any((folder / name).exists() for name in ("model_final.pt", "checkpoints", "run.json"))
    overridden = cfg.OUTPUT_DIR != load_cfg(config_file).OUTPUT_DIR
    return folder if config_file.name == "config.yaml" and is_run and not overridden else Path(cfg.OUTPUT_DIR)


def choose_outputs(
    cfg: CfgNode, folder: Path, weights: Path, key: str, student: bool = False
) -> OutputFolder:
    """Where the test of a run in `folder` writes.

    The run folder itself, if the weights are its model_final.pt and no key that changes the results differs
    from its config.yaml, or if it holds no run; else a folder of its own in `tests`, named by the weights and
    by `key`. So the metrics of a run are never replaced by those of another test.
    """
    config, own_weights = folder / "config.yaml", folder / "model_final.pt"
    outputs = OutputFolder(folder, key)
    if not config.exists() or outputs.made("config.yaml"):
        return outputs
    if (
        own_weights.is_file()
        and own_weights.samefile(weights)
        and _relevant(cfg, student) == _relevant(load_cfg(config), student)
    ):
        return OutputFolder(folder, OWN_TEST)
    return OutputFolder(folder / "tests" / f"{weights.stem}-{key[:8]}", key)


def results_key(cfg: CfgNode, weights: Path, student: bool = False) -> str:
    """A hash of what the results of a test depend on: weights, proposals, and the keys that matter.

    Weights and proposals count by their content, not by their paths. A `student` is a Faster R-CNN of
    self-training, which has keys of its own and no proposals.
    """
    return hashlib.sha256((_relevant(cfg, student) + file_digest(weights)).encode()).hexdigest()


def _relevant(cfg: CfgNode, student: bool) -> str:
    """All of a config but the keys of training, speed and pictures; of the proposals, the file's digest."""
    relevant = cfg.clone()
    relevant.defrost()
    for key in ("SOLVER", "PROPOSALS" if student else "SELF_TRAIN", "DISTRIBUTED", "OUTPUT_DIR", "THREADS"):
        del relevant[key]
    for key in ("PICTURES", "PICTURE_SCORE"):
        del relevant.TEST[key]
    del relevant.DATASETS["WORKERS"]
    if student:
        del relevant.DATASETS["PROPOSALS"]
    elif Path(cfg.DATASETS.PROPOSALS).is_file():
        relevant.DATASETS.PROPOSALS = archive_digest(cfg.DATASETS.PROPOSALS)
    return relevant.dump()

"""What a run made, as text that two runs can be compared by: without times and paths."""

import json
from pathlib import Path

import torch
from chaos.harness import Outcome, digest, files_digest

TRAIN = ("train", "--config-file", "config.yaml", "OUTPUT_DIR", "new", "SOLVER.MAX_ITER", 12)
TEST = ("test", "--config-file", "config.yaml")
CHECK = ("check", "--config-file", "config.yaml")
PREDICT = ("predict", "--weights", "run", "--device", "cpu", "--output", "found", "--score-threshold", 0.01)
FORMATS = ("--format", "coco", "--format", "voc", "--format", "pictures")
PROPOSE = ("propose", "--images", "own", "--mode", "grid", "--output", "made.npz", "--workers", 2)
OWN = (
    *("DATASETS.FORMAT", "image_labels", "DATASETS.ROOT", "own", "DATASETS.PROPOSALS", "own/proposals.npz"),
    *("DATASETS.TRAIN_SPLIT", "train", "DATASETS.TEST_SPLIT", "val", "DATASETS.CLASSES", "[]"),
)
COCO = (
    *("DATASETS.FORMAT", "coco", "DATASETS.ROOT", ".", "DATASETS.COCO_JSON", "coco/{split}.json"),
    *("DATASETS.COCO_IMAGES", "toybox/JPEGImages", "DATASETS.CLASSES", "[]"),
)
# What the commands may write.
RUN = ("run/*",)
NEW = ("new/*",)
FOUND = ("found/*",)


def weights(folder: Path, name: str) -> str:
    """The weights of a finished run."""
    path = folder / name / "model_final.pt"
    if not path.is_file():
        return "no model_final.pt"
    model = torch.load(path, weights_only=True)["model"]
    return digest(*(part for key, t in model.items() for part in (key.encode(), t.numpy().tobytes())))


def trained(folder: Path, outcome: Outcome) -> str:
    return weights(folder, "new")


def retrained(folder: Path, outcome: Outcome) -> str:
    return weights(folder, "run")


def measured(folder: Path, outcome: Outcome) -> str:
    try:
        metrics = json.loads((folder / "run/metrics.json").read_text())
    except (OSError, ValueError) as error:
        return f"no metrics: {error}"
    kept = {key: value for key, value in metrics.items() if key not in ("weights", "train_seconds")}
    return json.dumps(kept, sort_keys=True) + files_digest(folder / "run", "detections.npz")


def predicted(folder: Path, outcome: Outcome) -> str:
    """The results, without the hidden record of outputs, whose key depends on the path of the pictures."""
    return files_digest(folder / "found", "**/[!.]*")


def proposed(folder: Path, outcome: Outcome) -> str:
    return files_digest(folder, "made.npz")


def reported(folder: Path, outcome: Outcome) -> str:
    return files_digest(folder, "run/report.html")


def printed(folder: Path, outcome: Outcome) -> str:
    """What was printed, without progress bars and the next command, which repeats the arguments."""
    lines = outcome.output.replace("\r", "\n").splitlines()
    unequal = ("image/s", "it/s", "next: ")
    return "\n".join(line for line in lines if not any(words in line for words in unequal))

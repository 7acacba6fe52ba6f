"""`detector.load`, `train`, `evaluate` and `label`; like the tools above all else."""

from detector.api.labeling import label
from detector.api.loading import load
from detector.api.testing import evaluate
from detector.api.training import train

__all__ = ["evaluate", "label", "load", "train"]

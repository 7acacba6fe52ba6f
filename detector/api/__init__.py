"""`detector.load`, `detector.train` and `detector.evaluate`; like the tools above all else."""

from detector.api.loading import load
from detector.api.testing import evaluate
from detector.api.training import train

__all__ = ["evaluate", "load", "train"]

"""Weakly supervised object detection: image labels in, boxes out.

`detector.load`, `train`, `evaluate`, `label` and `report` are imported when they are first used, so that
`detector.layers` loads alone, without what only configs and data sets need.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from detector.engine.train import train
    from detector.inference.load import load
    from detector.inference.test import evaluate
    from detector.labeling.label import label
    from detector.reporting.inline import report

# An OpenMP thread that waits spins for long by default, which makes training beside other busy processes
# several times slower (benchmarks/bench_busy_core.py). GNU's runtime reads this variable once, when torch is
# loaded: later it has no effect. A value that the user has set stays.
if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

__version__ = "0.1.0"

_MODULES = {
    "evaluate": "detector.inference.test",
    "label": "detector.labeling.label",
    "load": "detector.inference.load",
    "report": "detector.reporting.inline",
    "train": "detector.engine.train",
}
__all__ = ["evaluate", "label", "load", "report", "train"]


def __getattr__(name: str):
    if name in __all__:
        from detector.utils.errors import missing_package

        try:
            return getattr(importlib.import_module(_MODULES[name]), name)
        except ModuleNotFoundError as error:
            raise missing_package(error) or error from error
    raise AttributeError(f"module 'detector' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

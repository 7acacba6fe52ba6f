"""The curves of a training run, read back from its TensorBoard events."""

from pathlib import Path

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

_PREFIX = "train/"


def read_curves(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(steps, values) by name, steps ascending; of a step that was logged twice, after a resume, the last."""
    if not any(folder.glob("events.out.tfevents.*")):
        return {}
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 1})
    events.Reload()
    curves = {}
    for tag in events.Tags()["scalars"]:
        if tag.startswith(_PREFIX):
            last = {event.step: event.value for event in events.Scalars(tag)}
            steps = sorted(last)
            curves[tag.removeprefix(_PREFIX)] = np.array(steps), np.array([last[step] for step in steps])
    return curves

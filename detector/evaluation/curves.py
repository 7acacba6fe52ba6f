"""Reads the training curves of a run from its TensorBoard events."""

from pathlib import Path

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from detector.utils.files import reading

_PREFIX = "train/"


def read_curves(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(steps, values) by name, steps ascending; if a resumed run logged a step twice, the last value.

    Of a damaged file, TensorBoard reads the records before the damage.
    """
    files = sorted(folder.glob("events.out.tfevents.*"))
    if not files:
        return {}
    curves = {}
    with reading(files[-1], "TensorBoard events"):
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 1})
        events.Reload()
        for tag in events.Tags()["scalars"]:
            if tag.startswith(_PREFIX):
                last = {event.step: event.value for event in events.Scalars(tag)}
                steps = sorted(last)
                curves[tag.removeprefix(_PREFIX)] = np.array(steps), np.array([last[step] for step in steps])
    return curves

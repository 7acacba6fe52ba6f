"""Reads the training curves of a run from its TensorBoard events."""

import os
import struct
from pathlib import Path

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from detector.utils.errors import DataError
from detector.utils.files import reading

_PREFIX = "train/"
_REMEDY = "move the file away to omit its curves"


def read_curves(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(steps, values) by name, steps ascending; if a resumed run logged a step twice, the last value.

    Raises:
        DataError: a file is damaged; the message names it.
    """
    files = sorted(folder.glob("events.out.tfevents.*"))
    for path in files:
        with reading(path, "TensorBoard events"):
            _check(path)
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


def _check(path: Path) -> None:
    """Raise a DataError if a record is damaged, since TensorBoard silently skips all records after it.

    A truncated last record is allowed, as a killed run leaves it. A record consists of its length (8 bytes),
    the checksum of the length (4), the content, and the checksum of the content (4).
    """
    whole, size = 0, path.stat().st_size
    with open(path, "rb") as file:
        while file.tell() + 12 <= size:
            header = file.read(12)
            length, checksum = struct.unpack("<QI", header)
            if masked_crc32c(header[:8]) != checksum:
                raise DataError(f"record {whole + 1} is damaged; {_REMEDY}")
            if file.tell() + length + 4 > size:
                break
            file.seek(length + 4, os.SEEK_CUR)
            whole += 1
    readable = sum(1 for _ in EventFileLoader(str(path)).Load())
    if readable < whole:
        raise DataError(f"record {readable + 1} of {whole} is damaged; {_REMEDY}")

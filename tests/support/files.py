"""Folders of pictures and other files."""

import json
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

import numpy as np
from PIL import Image


def draw(folder: Path, *names: str) -> None:
    """Pictures of noise that differ, 20 x 30 pixels."""
    for name in names:
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(crc32(str(path).encode())).integers(0, 255, (20, 30, 3), np.uint8)
        Image.fromarray(noise).save(path)


def write(folder: Path, files: Mapping[str, object]) -> None:
    """Pictures of one color that differ, 80 x 60 pixels, and other files: bytes, text, or content of JSON."""
    for name, content in files.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".jpg", ".png"):
            color = tuple((crc32(str(path).encode()) % 2**24).to_bytes(3, "big"))
            Image.new("RGB", (80, 60), color).save(path)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))

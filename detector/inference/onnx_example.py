"""Find objects in pictures with an exported network. It needs numpy, onnxruntime and Pillow alone.

python example.py onnx.onnx PICTURE ...
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps


def main(network: str, *pictures: str) -> None:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # reads the variable

    about = json.loads(Path(__file__).with_name("preprocess.json").read_text("utf-8"))
    session = onnxruntime.InferenceSession(network, providers=["CPUExecutionProvider"])
    for picture in pictures:
        turned = ImageOps.exif_transpose(Image.open(picture)).convert("RGB")
        images = np.asarray(turned).transpose(2, 0, 1)[None]  # (1, 3, H, W) uint8; see preprocess.json
        inputs = {"images": np.ascontiguousarray(images), "sizes": np.array([images.shape[2:]])}
        for box, score, label, _ in zip(*session.run(None, inputs), strict=True):
            if score > about["thresholds"][name := about["classes"][label]]:
                print(picture, name, f"{score:.2f}", *box.round().astype(int))


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 2 else sys.exit(__doc__)

"""Writer of detections in COCO's format."""

import json
from collections.abc import Sequence
from pathlib import Path

from detector.structures import Detections
from detector.utils.files import atomic_write


class COCOWriter:
    """Collects the detections of images and writes them as one file of images, categories and annotations.

    Each annotation has a `score`. The file can be corrected in a labeling tool, and its list `annotations`
    can be passed to `loadRes` of pycocotools. All ids start at 1; categories are in the order of the classes.
    """

    def __init__(self, class_names: Sequence[str]) -> None:
        self._categories = [{"id": i, "name": name} for i, name in enumerate(class_names, start=1)]
        self._images: list[dict] = []
        self._annotations: list[dict] = []

    def add(self, file_name: str, size: tuple[int, int], detections: Detections) -> None:
        """Add the detections of an image of `size` (height, width) in pixels."""
        height, width = size
        image_id = len(self._images) + 1
        self._images.append({"id": image_id, "file_name": file_name, "height": height, "width": width})
        rows = zip(
            detections.boxes.tolist(), detections.scores.tolist(), detections.labels.tolist(), strict=True
        )
        for (x1, y1, x2, y2), score, label in rows:
            self._annotations.append(
                {
                    "id": len(self._annotations) + 1,
                    "image_id": image_id,
                    "category_id": label + 1,
                    "bbox": [x1, y1, x2 - x1, y2 - y1],
                    "area": (x2 - x1) * (y2 - y1),
                    "iscrowd": 0,
                    "score": score,
                }
            )

    def encode(self) -> bytes:
        """The content of the file."""
        content = {
            "images": self._images,
            "categories": self._categories,
            "annotations": self._annotations,
        }
        return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()

    def write(self, path: Path) -> None:
        with atomic_write(path) as file:
            file.write(self.encode())

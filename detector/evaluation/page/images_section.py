"""The section of the page that lists the test images, with a filter by class and by error type."""

from collections.abc import Container, Sequence
from typing import Any

from detector.evaluation.errors import KINDS, Judged, countable, f1
from detector.evaluation.page.document import Section, render

_MOST = 1000  # images listed, those with the lowest F1; a longer table makes browsers slow


def images_section(judged: Sequence[Judged], class_names: Sequence[str], pictured: Container[int]) -> Section:
    """One line for each image, lowest F1 first, filtered by CSS alone.

    Args:
        pictured: indices of the images that the galleries show, to which their lines link.
    """
    order = sorted(range(len(judged)), key=lambda index: f1(judged[index]))[:_MOST]
    lines = [_line(judged[i], class_names) | {"index": i, "pictured": i in pictured} for i in order]
    results = [*(kind for kind in KINDS if kind != "true positive"), "missed", "all found"]
    values = {
        "lines": lines,
        "total": len(judged),
        "classes": {f"c{label}": name for label, name in enumerate(class_names)},
        "results": {_word(name): name for name in results},
    }
    return Section("Images", render("images", **values))


def _line(image: Judged, class_names: Sequence[str]) -> dict[str, Any]:
    """What the line of an image shows, and the CSS classes by which it is filtered."""
    objects = image.annotation.labels[countable(image.annotation)].tolist()
    kinds = [KINDS[kind] for kind in image.kinds[image.counted].tolist()]
    found = kinds.count("true positive")
    errors = {kind: kinds.count(kind) for kind in KINDS if kind != "true positive" and kind in kinds}
    if found < len(objects):
        errors["missed"] = len(objects) - found
    labels = sorted({*objects, *image.detections.labels[image.counted].tolist()})
    return {
        "name": image.detections.image_id,
        "objects": len(objects),
        "classes": list(dict.fromkeys(class_names[label] for label in objects)),
        "found": found,
        "f1": f1(image),
        "errors": errors,
        "words": [*(f"c{label}" for label in labels), *map(_word, errors or ["all found"])],
    }


def _word(result: str) -> str:
    """The CSS class of the images with a result."""
    return f"r-{result.replace(' ', '-')}"

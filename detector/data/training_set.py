"""The training split as training and checking see it, and a check whether data have changed since."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from detector.data.datasets.annotated import AnnotatedImages
from detector.data.proposals import Proposals
from detector.data.reviewed import label_counts, training_labels
from detector.structures import Hints, ReviewedBoxes, TeacherBoxes

_TOGETHER = 4096  # images whose tags are hashed at a time


@dataclass(frozen=True)
class TrainingSet:
    """All that training reads of a split; `detector.data.build.build_training_set` reads it once.

    Args:
        dataset: images, tags and unknown tags.
        reviewed: boxes that a person has reviewed, by image id.
        hints: points and counts, by image id.
        proposals: None: there is no file of them, which self-training may do without.
        teacher: what a teacher found in the images that it has seen, by image id.
    """

    dataset: AnnotatedImages
    reviewed: Mapping[str, ReviewedBoxes]
    hints: Mapping[str, Hints]
    proposals: Proposals | None
    teacher: Mapping[str, TeacherBoxes] = field(default_factory=dict)

    def labels(self) -> np.ndarray:
        """(N, C) bool: whether the image shows the class, as its tags, hints and reviewed boxes say."""
        return training_labels(self.dataset, self.reviewed, self.hints)

    def label_counts(self) -> dict[str, tuple[int, int]]:
        """The number of images that show each class, and of those that are known not to show it."""
        return label_counts(self.dataset, self.reviewed, self.hints)

    def describe(self) -> dict[str, str]:
        """A count and a hash of each part: images in their order, tags, reviewed boxes, hints, proposals.

        Proposals of images that are not in the split do not count.
        """
        boxes = sum(len(image.boxes) for image in self.reviewed.values())
        parts = {
            "images": _hashed(len(self.dataset), self.dataset.image_ids),
            "tags": _hashed_tags(self.dataset),
            "reviewed boxes": _hashed(boxes, _contents(self.reviewed)),
            "images with hints": _hashed(len(self.hints), _contents(self.hints)),
        }
        if self.teacher:
            found = sum(len(image_boxes) for image_boxes in self.teacher.values())
            parts["boxes of the teacher"] = _hashed(found, _contents(self.teacher))
        if self.proposals is not None:
            checksums = self.proposals.checksums(self.dataset.image_ids)
            parts["proposals"] = _hashed(sum(count for _, count, _ in checksums), checksums)
        return parts


def describe_truth(test_set: AnnotatedImages, train_set: AnnotatedImages) -> dict[str, str]:
    """A count and a hash of each part of the ground truth of a test: tags and boxes.

    The boxes of the training split are included because CorLoc is measured on them.
    """
    found = [test_set.annotation(i) for i in range(len(test_set))]
    boxed = [annotation for annotation in found if annotation is not None]
    boxes = sum(len(annotation.boxes) for annotation in boxed)
    contents = (
        None
        if annotation is None
        else [annotation.boxes.tolist(), annotation.labels.tolist(), annotation.difficult.tolist()]
        for annotation in found
    )
    crowded = [annotation for annotation in boxed if annotation.crowd.any()]
    crowds = sum(int(annotation.crowd.sum()) for annotation in crowded)
    trained = [
        annotation for i in range(len(train_set)) if (annotation := train_set.annotation(i)) is not None
    ]
    return {
        "tags": _hashed_tags(test_set),
        "boxes": _hashed(boxes, contents),
        # A part of its own, as earlier versions did not describe it.
        "iscrowd regions": _hashed(
            crowds, ([annotation.image_id, annotation.crowd.tolist()] for annotation in crowded)
        ),
        "training boxes": _hashed(
            sum(len(annotation.boxes) for annotation in trained),
            (
                [
                    annotation.image_id,
                    annotation.boxes.tolist(),
                    annotation.labels.tolist(),
                    annotation.crowd.tolist(),
                ]
                for annotation in trained
            ),
        ),
    }


def changed_data(before: object, now: Mapping[str, str]) -> str:
    """How data differ from what :meth:`TrainingSet.describe` or :func:`describe_truth` said; "" if equal.

    A part that only one of them has is not compared: an older version did not describe it, or it is not
    needed.
    """
    known = before if isinstance(before, dict) else {}
    lines = []
    for name, new in now.items():
        if (old := str(known.get(name, new))) != new:
            then, count = (text.partition(",")[0] for text in (old, new))
            lines.append(f"{name}: {then} then, {count} now{', not the same' if then == count else ''}")
    return "; ".join(lines)


def _hashed_tags(dataset: AnnotatedImages) -> str:
    tags, unknown = dataset.all_labels(), (dataset.unknown(i) for i in range(len(dataset)))
    digest = hashlib.sha256(b"b'")  # of the repr of all their bytes, of which not all are made at once
    for start in range(0, len(tags), _TOGETHER):
        digest.update(repr(tags[start : start + _TOGETHER].tobytes())[2:-1].encode())
    digest.update(b"'\n")
    rows = (row.tolist() for row in unknown if row is not None)
    return _hashed(int(tags.sum()), rows, digest)


def _contents(
    of_images: Mapping[str, ReviewedBoxes] | Mapping[str, Hints] | Mapping[str, TeacherBoxes],
) -> Iterable[object]:
    for image_id in sorted(of_images):
        values = vars(of_images[image_id]).values()
        yield image_id, *(value.tolist() if isinstance(value, Tensor) else value for value in values)


def _hashed(count: int, parts: Iterable[object], digest: Any = None) -> str:
    """The count, and a hash of the parts, or of what the digest has seen and the parts."""
    digest = digest or hashlib.sha256()
    for part in parts:
        digest.update(f"{part!r}\n".encode())
    return f"{count}, sha256 {digest.hexdigest()}"

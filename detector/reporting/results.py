"""The sections of the page on what the detector finds in the test split."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from detector.data.datasets.annotated import AnnotatedImages
from detector.evaluation.errors import confusion, count_kinds, count_outcomes, judge
from detector.evaluation.thresholds import Threshold
from detector.evaluation.voc import precision_recall, ranked_hits
from detector.inference.results import annotations
from detector.reporting.document import Section
from detector.reporting.galleries import galleries_section, images_section
from detector.reporting.metrics_sections import (
    confusion_section,
    errors_section,
    precision_recall_section,
    with_strict_ap,
)
from detector.reporting.thresholds_section import thresholds_section
from detector.structures import Detections
from detector.utils.errors import UserError

_AGAIN = "run `detector test` again"


class Tested(NamedTuple):
    """The results of a test."""

    metrics: dict[str, Any]
    detections: list[Detections]  # in each image of the test split, in its order
    thresholds: list[Threshold] | None  # of each class; None: none were chosen

    @classmethod
    def ordered(
        cls,
        metrics: dict[str, Any],
        detections: Sequence[Detections],
        thresholds: list[Threshold] | None,
        test_set: AnnotatedImages,
    ) -> "Tested":
        """The results in the order of the test split; with ground truth, the metrics with AP75 and AP50:95.

        Raises:
            UserError: they are of other images or classes.
        """
        names, found = test_set.class_names, {image.image_id: image for image in detections}
        if found.keys() != set(test_set.image_ids):
            raise UserError(
                f"detections.npz has {len(found)} images, which are not those of {test_set.name}: "
                f"{_AGAIN} with the same DATASETS"
            )
        if list(metrics["per_class"]) != list(names):
            raise UserError(
                f"metrics.json has the classes {', '.join(metrics['per_class'])}, the data set has "
                f"{', '.join(names)}: {_AGAIN} with the same DATASETS"
            )
        if any((image.labels >= len(names)).any() for image in detections):
            raise UserError(f"detections.npz has a label above {len(names) - 1}: {_AGAIN}")
        every = [found[image_id] for image_id in test_set.image_ids]
        if truth := annotations(test_set):
            metrics = with_strict_ap(metrics, [every[index] for index in truth], list(truth.values()))
        return cls(metrics, every, thresholds)


def results_sections(
    tested: Tested, test_set: AnnotatedImages, count: int
) -> tuple[np.ndarray | None, list[Section]]:
    """Counts of error types, and the sections on the detections; None and thresholds without ground truth."""
    names, truth = test_set.class_names, annotations(test_set)
    boxed, annotated = list(truth), list(truth.values())
    ordered = [tested.detections[index] for index in boxed]
    hits = ranked_hits(ordered, annotated, len(names)) if truth else []
    sliders = thresholds_section(test_set, tested.detections, hits, tested.thresholds, count)
    if not truth:
        return None, [sliders]
    judged = judge(ordered, annotated, len(names))
    kinds = count_kinds(judged, len(names))
    galleries, pictured = galleries_section(judged, test_set, boxed, count)
    ap = [tested.metrics["per_class"][name]["AP50"] for name in names]
    return kinds, [
        errors_section(names, kinds, count_outcomes(judged, len(names))),
        galleries,
        sliders,
        images_section(judged, names, pictured),
        precision_recall_section(names, precision_recall(ordered, annotated, len(names)), ap),
        confusion_section(names, confusion(judged, len(names))),
    ]

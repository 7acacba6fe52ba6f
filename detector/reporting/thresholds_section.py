"""The section of the page on score thresholds: what each keeps, in figures and on pictures, with sliders."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from detector.data.datasets.annotated import AnnotatedImages
from detector.data.loader import read_shown
from detector.evaluation.pictures import choose_samples
from detector.evaluation.thresholds import FALLBACK, Threshold
from detector.evaluation.voc import RankedHits
from detector.reporting.document import Box, Section, picture, render
from detector.reporting.galleries import Figure, truth_boxes
from detector.structures import Detections

STOPS = (np.arange(101) / 100) ** 2  # of a slider; squared, as a weak detector may have low scores
_MOST = 40  # boxes of a picture, shown or not: those with the highest scores


def thresholds_section(
    test_set: AnnotatedImages,
    detections: Sequence[Detections],
    measured: Sequence[RankedHits],
    chosen: Sequence[Threshold] | None,
    count: int,
) -> Section:
    """A line for each class with a slider, and up to `count` pictures of all classes.

    Args:
        detections: in each image of the test split, in its order.
        measured: the hits of each class in the images with ground-truth boxes; empty if there are none.
        chosen: for each class; None: all are `FALLBACK`.
        count: of pictures.
    """
    names, tags = test_set.class_names, torch.from_numpy(test_set.all_labels())  # (N, C) bool
    values = [FALLBACK] * len(names) if chosen is None else [threshold.value for threshold in chosen]
    hits_or_none: Sequence[RankedHits | None] = list(measured) or [None] * len(names)
    rows = [
        _row(name, value, _scores(detections, label), tags[:, label].tolist(), hits)
        for label, (name, value, hits) in enumerate(zip(names, values, hits_or_none, strict=True))
    ]
    images = choose_samples(list(tags), count)
    return Section(
        "Thresholds",
        render(
            "thresholds",
            rows=rows,
            has_truth=bool(measured),
            chosen=chosen is not None,
            stops=[round(float(stop), 4) for stop in STOPS],
            by_tags=chosen is not None and any(threshold.rule == "tags" for threshold in chosen),
            figures=[_figure(test_set, index, detections[index], values) for index in images],
        ),
    )


def _scores(detections: Sequence[Detections], label: int) -> list[np.ndarray]:
    """The scores (D,) of one class in each image."""
    return [image.scores[image.labels == label].double().numpy() for image in detections]


def _row(
    name: str, value: float, scores: Sequence[np.ndarray], tags: Sequence[bool], hits: RankedHits | None
) -> dict[str, Any]:
    """What the thresholds `STOPS`, and the one that is chosen, keep of one class."""
    tagged = np.concatenate([np.zeros(0), *(own for own, tag in zip(scores, tags, strict=True) if tag)])
    others = np.concatenate([np.zeros(0), *(own for own, tag in zip(scores, tags, strict=True) if not tag)])

    def counts(kept: np.ndarray) -> list[int]:
        ordered = np.sort(kept)
        return (len(kept) - np.searchsorted(ordered, [value, *STOPS], side="right")).tolist()

    # The first of each list is for the threshold that is chosen, the others are for the stops.
    series = {"tagged": counts(tagged), "untagged": counts(others)}
    if hits is not None:
        series |= {"judged": counts(hits.scores), "right": counts(hits.scores[hits.is_tp])}
    return {
        "name": name,
        "value": value,
        "stop": int(np.abs(STOPS - value).argmin()),
        "series": series,
        "images": sum(tags),
        "objects": hits.objects if hits is not None else 0,
    }


def _figure(test_set: AnnotatedImages, index: int, found: Detections, values: Sequence[float]) -> Figure:
    names, boxes = test_set.class_names, []
    for row, (score, label) in enumerate(
        zip(found.scores[:_MOST].tolist(), found.labels[:_MOST].tolist(), strict=True)
    ):
        title, shown = f"{names[label]} {score:.2f}", score > values[label]
        boxes.append(Box(found.boxes[row].tolist(), "found", label, title, score, shown))
    truth = truth_boxes(test_set.annotation(index))
    tags = ", ".join(name for name, tag in zip(names, test_set.labels(index).tolist(), strict=True) if tag)
    size, image_id = test_set.image_size(index), test_set.image_ids[index]
    return Figure(picture(read_shown(test_set, index), size, boxes + truth, image_id), tags or "no tag")

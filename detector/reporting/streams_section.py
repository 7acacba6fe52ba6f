"""The section of the page on what the MIL stream and the refinement streams attend to during training."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from torch import Tensor

from detector.evaluation.attention import Attention, draw_heat, stream_names
from detector.reporting.charts import line_chart
from detector.reporting.document import Box, Picture, Section, picture, render
from detector.reporting.galleries import truth_boxes
from detector.structures import Annotation

_EARLIER = 2  # snapshots before the last that are shown, spread over the run
_RANKS = 100  # proposals in the chart of scores by rank
_MEMBERS = 4  # members drawn per cluster, those with the highest scores

Read = Callable[[str], tuple[Tensor, Annotation | None]]


def streams_section(
    snapshots: Sequence[tuple[int, Sequence[Attention]]], class_names: Sequence[str], read: Read
) -> Section:
    """Score maps and cluster centers at the end of training; earlier steps and scores by rank are folded.

    Args:
        snapshots: (iteration, images), oldest first, one at least. Snapshots of other images than the
            last one shows, as after a resume with another data set, are omitted.
        read: returns the pixels (3, H, W) uint8 and the ground-truth boxes of an image id.
    """
    last = snapshots[-1]
    ids = [seen.image_id for seen in last[1]]
    earlier = [snapshot for snapshot in snapshots[:-1] if [seen.image_id for seen in snapshot[1]] == ids]
    if earlier:
        chosen = np.unique(np.linspace(0, len(earlier) - 1, _EARLIER).round().astype(int))
        earlier = [earlier[place] for place in chosen]
    values = {
        "names": stream_names(len(last[1][0].scores)),
        "last": _snapshot(*last, class_names, read),
        "earlier": [_snapshot(*snapshot, class_names, read) for snapshot in earlier],
        "charts": [(seen.image_id, _ranks(seen)) for seen in last[1]],
    }
    return Section("Streams", render("streams", **values))


def _snapshot(
    step: int, images: Sequence[Attention], class_names: Sequence[str], read: Read
) -> dict[str, Any]:
    """One row for each image of a snapshot, with one panel for each stream."""
    rows = []
    for seen in images:
        pixels, annotation = read(seen.image_id)
        streams = range(len(seen.scores))
        panels = [_panel(pixels, seen, stream, annotation, class_names) for stream in streams]
        classes = [class_names[label] for label in seen.labels.tolist()]
        rows.append({"image_id": seen.image_id, "classes": classes, "panels": panels})
    return {"step": step, "images": rows}


def _panel(
    pixels: Tensor, seen: Attention, stream: int, annotation: Annotation | None, class_names: Sequence[str]
) -> Picture:
    boxes = truth_boxes(annotation)
    centers, clusters = seen.centers[stream], seen.clusters[stream]
    best = seen.scores[stream].amax(dim=1)  # (R,)
    for row in (centers >= 0).nonzero()[:, 0].tolist():
        label = int(centers[row])
        members = (clusters == clusters[row]).nonzero()[:, 0]
        title = f"{class_names[label]}: center of a cluster of {len(members)}"
        boxes.append(Box(seen.boxes[row].tolist(), "found", label, title))
        for member in members[best[members].argsort(descending=True)[:_MEMBERS]].tolist():
            if member != row:
                boxes.append(Box(seen.boxes[member].tolist(), "member", label))
    name = f"{seen.image_id}, {stream_names(stream + 1)[-1]}"
    return picture(draw_heat(pixels, seen, stream), (pixels.shape[1], pixels.shape[2]), boxes, name)


def _ranks(seen: Attention) -> Markup:
    """A chart of each stream's highest scores, divided by the highest one."""
    lines = {}
    for name, scores in zip(stream_names(len(seen.scores)), seen.scores, strict=True):
        ordered = scores.amax(dim=1).sort(descending=True).values[:_RANKS].double().numpy()
        lines[name] = (np.arange(1, len(ordered) + 1), ordered / max(float(ordered[0]), 1e-12))
    return line_chart(lines, x_name="rank", y_name="relative score", size=(230, 170), y_range=(0, 1))

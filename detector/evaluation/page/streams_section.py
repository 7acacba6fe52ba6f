"""The section of the page on what the MIL stream and the refinement streams attend to during training."""

from collections.abc import Callable, Sequence
from html import escape

import numpy as np
from torch import Tensor

from detector.evaluation.attention import Attention, draw_heat, stream_names
from detector.evaluation.page.charts import legend, line_chart
from detector.evaluation.page.document import Section, details, figure, grid, paragraph, warning
from detector.evaluation.page.galleries import truth_boxes
from detector.evaluation.page.pictures import Box, picture
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
        snapshots: (iteration, images), oldest first. Snapshots of other images than the last one shows, as
            after a resume with another data set, are omitted.
        read: returns the pixels (3, H, W) uint8 and the ground-truth boxes of an image id.
    """
    if not snapshots or not snapshots[-1][1]:
        note = "There are no snapshots: SOLVER.PICTURE_PERIOD was 0, or training has not reached it."
        return Section("Streams", warning(note))
    last_step, last = snapshots[-1]
    ids = [seen.image_id for seen in last]
    earlier = [each for each in snapshots[:-1] if [seen.image_id for seen in each[1]] == ids]
    if earlier:
        chosen = np.unique(np.linspace(0, len(earlier) - 1, _EARLIER).round().astype(int))
        earlier = [earlier[place] for place in chosen]
    note = (
        "Training images as the streams score them. Bright: many high-scoring proposals. Boxes: cluster "
        "centers, from which the next stream learns, in the color of their class, and thin the members with "
        "the highest scores. Dashed: ground truth, not used in training."
    )
    names = stream_names(len(last[0].scores))
    body = paragraph(note, "muted") + _rows(last_step, last, class_names, read)
    if earlier:
        body += details("Earlier steps", "".join(_rows(*each, class_names, read) for each in earlier))
    told = "The highest scores of each stream, sorted and divided by the highest one."
    charts = grid((_ranks(seen) for seen in last), "small")
    body += details("Scores by rank", paragraph(told, "muted") + legend(names) + charts)
    return Section("Streams", body)


def _rows(step: int, images: Sequence[Attention], class_names: Sequence[str], read: Read) -> str:
    """One row for each image of a snapshot, with one panel for each stream."""
    names = stream_names(len(images[0].scores))
    cells = [f'<span class="image">step {step}</span>', *(f'<span class="head">{n}</span>' for n in names)]
    for seen in images:
        pixels, annotation = read(seen.image_id)
        shown = ", ".join(class_names[label] for label in seen.labels.tolist())
        cells.append(f'<span class="image"><b>{escape(shown)}</b> {escape(seen.image_id)}</span>')
        cells += [_panel(pixels, seen, stream, annotation, class_names) for stream in range(len(names))]
    return f'<div class="streams" style="--streams:{len(names)}">{"".join(cells)}</div>'


def _panel(
    pixels: Tensor, seen: Attention, stream: int, annotation: Annotation | None, class_names: Sequence[str]
) -> str:
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


def _ranks(seen: Attention) -> str:
    """A chart of each stream's highest scores, divided by the highest one."""
    lines = {}
    for name, scores in zip(stream_names(len(seen.scores)), seen.scores, strict=True):
        ordered = scores.amax(dim=1).sort(descending=True).values[:_RANKS].double().numpy()
        lines[name] = (np.arange(1, len(ordered) + 1), ordered / max(float(ordered[0]), 1e-12))
    chart = line_chart(lines, x_name="rank", y_name="relative score", size=(230, 170), y_range=(0, 1))
    return figure(chart, f"<b>{escape(seen.image_id)}</b>")

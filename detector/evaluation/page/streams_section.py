"""The section of the page on what the MIL stream and the refinement streams look at, over training."""

from collections.abc import Callable, Sequence
from html import escape

import numpy as np
from torch import Tensor

from detector.evaluation.attention import Attention, draw_heat, stream_names
from detector.evaluation.page.charts import legend, line_chart
from detector.evaluation.page.document import Section, figure, grid, paragraph, warning
from detector.evaluation.page.galleries import truth_boxes
from detector.evaluation.page.pictures import Box, picture
from detector.structures import Annotation

_TIMES = 4  # snapshots shown of a run, spread over it
_RANKS = 100  # proposals shown in the chart of scores by rank
_MEMBERS = 4  # of a cluster, the best-scored, drawn thin


def streams_section(
    snapshots: Sequence[tuple[int, Sequence[Attention]]],
    class_names: Sequence[str],
    read: Callable[[str], tuple[Tensor, Annotation | None]],
) -> Section:
    """Heat, cluster centers and scores by rank of each watched image.

    Args:
        snapshots: (iteration, images), oldest first. Those of other images than the last, as after a resume
            with another data set, are left out.
        read: the pixels (3, H, W) uint8 and the true boxes of an image id.
    """
    if not snapshots or not snapshots[-1][1]:
        note = "No snapshots: the run was trained with SOLVER.PICTURE_PERIOD 0, or before there were any."
        return Section("Streams", warning(note))
    last_ids = [seen.image_id for seen in snapshots[-1][1]]
    snapshots = [each for each in snapshots if [seen.image_id for seen in each[1]] == last_ids]
    chosen = np.unique(np.linspace(0, len(snapshots) - 1, _TIMES).round().astype(int))
    times = [snapshots[place] for place in chosen]
    note = (
        "Training images as each stream sees them. Light: where its scores lie. Boxes: the centers of the "
        "clusters that its scores make, which the next stream learns from, in the color of their class, and "
        "thin the best-scored members; dashed: true boxes, which training never sees."
    )
    body = paragraph(note, "muted")
    for place, last in enumerate(times[-1][1]):
        pixels, annotation = read(last.image_id)
        names = stream_names(len(last.scores))
        cells = ['<span class="time"></span>', *(f'<span class="head">{name}</span>' for name in names)]
        for iteration, images in times:
            cells.append(f'<span class="time">step {iteration}</span>')
            cells += [
                _panel(pixels, images[place], stream, annotation, class_names) for stream in range(len(names))
            ]
        shown = ", ".join(class_names[label] for label in last.labels.tolist())
        body += (
            f'<div class="watched"><h3>{escape(last.image_id)}: {escape(shown)}</h3>'
            f'<div class="streams" style="--streams:{len(names)}">{"".join(cells)}</div></div>'
        )
    names = stream_names(len(times[-1][1][0].scores))
    charts = (_ranks(seen) for seen in times[-1][1])
    told = (
        "The scores of the best proposals over that of the first: how many a stream believes in at the end."
    )
    body += f"<h3>Scores by rank</h3>{paragraph(told, 'muted')}{legend(names)}{grid(charts, 'small')}"
    return Section("Streams", body)


def _panel(
    pixels: Tensor,
    seen: Attention,
    stream: int,
    annotation: Annotation | None,
    class_names: Sequence[str],
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
    """A chart of the scores of the best proposals of each stream, over that of its best."""
    lines = {}
    for name, scores in zip(stream_names(len(seen.scores)), seen.scores, strict=True):
        ordered = scores.amax(dim=1).sort(descending=True).values[:_RANKS].double().numpy()
        lines[name] = (np.arange(1, len(ordered) + 1), ordered / max(float(ordered[0]), 1e-12))
    chart = line_chart(lines, label="scores by rank", size=(210, 150), y_range=(0, 1))
    return figure(chart, f"<b>{escape(seen.image_id)}</b>")

"""Draws the pictures of docs/pcl.md from a run on Toybox with a checkpoint every 200 steps:

    python tools/train_net.py --config-file configs/toybox_pcl.yaml SOLVER.CHECKPOINT_PERIOD 200 \
        SOLVER.KEEP_CHECKPOINTS 20
    python docs/make/pictures.py runs/toybox_pcl

The same run gives the same pixels.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from detector.config import load_cfg
from detector.data.build import build_dataset, build_test_loader
from detector.engine.checkpoint import load_checkpoint, restore_model
from detector.engine.resuming import checkpoint_path
from detector.evaluation.pictures import class_color, draw_labeled, outermost_pixels
from detector.layers import proposal_clusters
from detector.layers.reference_clusters import top_ranking
from detector.modeling.build import build_model
from detector.modeling.head import HeadOutputs
from detector.structures import Sample, box_iou, boxes_to_rois
from detector.utils.files import atomic_write

FOLDER = Path(__file__).parents[1] / "images"
CAPTION, GAP = 26, 8  # pixels
GRAY = (150, 150, 150)


class Panel:
    """An enlarged, slightly faded image with a caption above it and boxes on it."""

    def __init__(self, image: Tensor, caption: str, width: int) -> None:
        self.scale = width / image.shape[2]
        size = width, round(image.shape[1] * self.scale)
        picture = Image.fromarray(image.permute(1, 2, 0).numpy()).resize(size, Image.Resampling.BICUBIC)
        faded = Image.blend(picture, Image.new("RGB", size, "white"), 0.25)
        self.whole = Image.new("RGB", (width, size[1] + CAPTION), "white")
        self.picture, self.caption = faded, caption
        self.draw = ImageDraw.Draw(self.picture, "RGBA")

    def box(self, box: Tensor, color: tuple[int, ...], width: int = 1) -> None:
        self.draw.rectangle(outermost_pixels((box * self.scale).tolist()), outline=color, width=width)

    def labeled(self, box: Tensor, text: str, color: tuple[int, int, int]) -> None:
        draw_labeled(self.draw, (box * self.scale).tolist(), text, color, self.picture.width)

    def middle(self, box: Tensor) -> tuple[float, float]:
        x1, y1, x2, y2 = (box * self.scale).tolist()
        return (x1 + x2) / 2, (y1 + y2) / 2

    def finish(self) -> Image.Image:
        font = ImageFont.load_default(size=15)
        ImageDraw.Draw(self.whole).text((4, 5), self.caption, fill="black", font=font)
        self.whole.paste(self.picture, (0, CAPTION))
        return self.whole


def score_color(score: float) -> tuple[int, int, int, int]:
    """From faint blue (0) to strong red (1)."""
    score = min(1.0, max(0.0, score))
    return round(40 + 215 * score), round(90 * (1 - score)), round(220 * (1 - score)), round(60 + 195 * score)


def steps_of_pcl(image: Tensor, sample: Sample, mil: Tensor, label: int, name: str) -> list[Panel]:
    """The steps of PCL for one class of one image, from proposals and MIL scores (R, C) to pseudo labels."""
    boxes, scores = sample.proposals, mil[:, label]
    top = top_ranking(scores.clamp(1e-9, 1 - 1e-9), (float(scores.min()), float(scores.max())))  # (R,)
    found = proposal_clusters(
        boxes, mil, sample.labels[None], torch.tensor([len(boxes)]), method="pcl", graph_iou=0.4
    )
    panels = [Panel(image, f"1. {len(boxes)} proposals", 420)]
    for box in boxes:
        panels[0].box(box, (20, 40, 120, 70))

    panels.append(Panel(image, f"2. scores of '{name}': {int(top.sum())} top-ranking", 420))
    for row in scores.argsort().tolist():
        color = score_color(float(scores[row] / scores.max()))
        panels[1].box(boxes[row], color if top[row] else (*GRAY, 40), 2 if top[row] else 1)

    centers = [row for row in (found.centers >= 0).nonzero()[:, 0].tolist() if found.labels[row] == label + 1]
    panels.append(Panel(image, f"3. graph of the top-ranking, centers: {len(centers)}", 420))
    graph = panels[2]
    edges = torch.triu(box_iou(boxes[top], boxes[top]) > 0.4, diagonal=1).nonzero().tolist()
    middles = [graph.middle(box) for box in boxes[top]]
    for a, b in edges:
        graph.draw.line((middles[a], middles[b]), fill=(30, 30, 30, 70))
    for x, y in middles:
        graph.draw.ellipse((x - 3, y - 3, x + 3, y + 3), fill=(30, 30, 30, 200))
    for number, row in enumerate(centers):
        graph.labeled(boxes[row], f"{float(found.weights[row]):.3f}", class_color(number))

    numbers = {int(found.clusters[row]): number for number, row in enumerate(centers)}  # of each cluster
    members = found.labels == label + 1
    ignored = found.weights == 0
    title = f"4. {int(members.sum())} members, {int(ignored.sum())} ignored, the rest background"
    panels.append(Panel(image, title, 420))
    for row in range(len(boxes)):
        if ignored[row] or not members[row]:
            panels[3].box(boxes[row], (255, 255, 255, 130) if ignored[row] else (*GRAY, 130))
    for row in members.nonzero()[:, 0].tolist():
        panels[3].box(boxes[row], (*class_color(numbers[int(found.clusters[row])]), 220), 2)
    return panels


def streams_over_training(
    image: Tensor, sample: Sample, outputs: Sequence[tuple[int, HeadOutputs]], label: int
) -> list[Panel]:
    """The best proposals of a class by stream (columns) and training step (rows)."""
    panels = []
    for step, output in outputs:
        streams = {"MIL": output.mil[:, label]}
        streams |= {f"stream {k + 1}": probs[:, label + 1] for k, probs in enumerate(output.refinements)}
        for stream, scores in streams.items():
            panels.append(Panel(image, f"step {step}, {stream}", 216))
            best = scores.argsort(descending=True)[:25].tolist()
            for row in reversed(best):
                panels[-1].box(sample.proposals[row], score_color(float(scores[row] / scores.max())), 1)
            panels[-1].box(sample.proposals[best[0]], (255, 220, 0), 3)
    return panels


def save_grid(panels: Sequence[Panel], columns: int, path: Path) -> None:
    pictures = [panel.finish() for panel in panels]
    width, height = pictures[0].size
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * (width + GAP) - GAP, rows * (height + GAP) - GAP), "white")
    for place, picture in enumerate(pictures):
        sheet.paste(picture, (place % columns * (width + GAP), place // columns * (height + GAP)))
    with atomic_write(path) as file:
        sheet.save(file, format="jpeg", quality=68, optimize=True)
    print(f"{path}: {sheet.width} x {sheet.height}, {path.stat().st_size / 1e3:.0f} kB")


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/pcl.md.")
    parser.add_argument("run", type=Path, help="run folder of configs/toybox_pcl.yaml with its checkpoints")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder (default: docs/images)")
    options = parser.parse_args()
    cfg = load_cfg(options.run / "config.yaml", ["INPUT.TEST_FLIP", "False", "DATASETS.WORKERS", "0"])
    dataset = build_dataset(cfg, cfg.datasets.train_split)

    def look(image_id: str, step: int) -> tuple[Tensor, Sample, HeadOutputs]:
        """An image as read, its sample, and the outputs of the network after a training step."""
        index = dataset.image_ids.index(image_id)
        (views,) = build_test_loader(cfg, dataset, [index])
        sample, path = views.samples[0], checkpoint_path(options.run, step)
        model = build_model(cfg).eval()
        restore_model(model, load_checkpoint(path), path)
        rois = boxes_to_rois([sample.proposals])
        output = model(sample.image[None], rois, torch.tensor([len(rois)]))
        image = dataset.read_image(index)
        return image, Sample(image, views.proposals, sample.labels, image_id), output

    # This step has three correct centers and a wrong one, a box around all flowers.
    image, sample, output = look("000058", 1000)
    label = dataset.class_names.index("flower")
    save_grid(steps_of_pcl(image, sample, output.mil, label, "flower"), 2, options.output / "pcl_steps.jpg")

    looks = [(step, *look("000049", step)) for step in (200, 600, 1800)]
    _, image, sample, output = looks[0]
    label = dataset.class_names.index("house")
    streams = streams_over_training(image, sample, [(step, out) for step, _, _, out in looks], label)
    save_grid(streams, 1 + len(output.refinements), options.output / "pcl_streams.jpg")


if __name__ == "__main__":
    main()

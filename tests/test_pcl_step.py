"""Three training steps of the PCL recipe against a second implementation, written from the papers alone.

The other side of the comparison is plain PyTorch and Python: VGG16 as a list of convolutions, RoI max pooling
by loops over cells, 3-means by trying every pair of thresholds, the graph and the losses by their formulas
(Tang et al., arXiv 1807.03342; Bilen and Vedaldi, arXiv 1511.02853) and SGD written out. It shares no code
with the package; it starts from the same weights and sees the same two images and proposals.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from detector.config import load_cfg
from detector.engine.build import build_lr_factor, build_optimizer
from detector.engine.loop import TrainOptions, make_steps
from detector.engine.precision import Precision
from detector.modeling.build import build_criterion, build_model
from detector.structures import Batch, boxes_to_rois

RECIPE = Path(__file__).parents[1] / "configs/voc07_pcl_pytorch_vgg16.yaml"
STEPS, CLASSES, STREAMS = 3, 20, 3
PIXEL_MEAN, PIXEL_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MOMENTUM, WEIGHT_DECAY, WARMUP_FACTOR = 0.9, 5e-4, 1 / 3
LEARNING_RATE, WARMUP_STEPS = 0.1, 2  # 5e-4 and 500 in the recipe: three steps would move little


def conv_names() -> list[tuple[str, int, bool]]:
    """Of VGG16's 13 convolutions the name, the dilation and whether a 2 x 2 pooling precedes it; no pool4."""
    positions = {0: 0, 2: 0, 5: 1, 7: 0, 10: 1, 12: 0, 14: 0, 17: 1, 19: 0, 21: 0, 24: 0, 26: 0, 28: 0}
    return [(f"backbone.features.{p}", 2 if p >= 24 else 1, bool(pool)) for p, pool in positions.items()]


def backbone(weights: dict[str, Tensor], x: Tensor) -> Tensor:
    for name, dilation, pool in conv_names():
        if pool:
            x = F.max_pool2d(x, 2)
        x = F.conv2d(
            x, weights[f"{name}.weight"], weights[f"{name}.bias"], padding=dilation, dilation=dilation
        )
        x = x.relu()
    return x


def roi_max_pool(features: Tensor, box: list[float], size: int = 7) -> Tensor:
    """Features (D, H, W) of one box, at stride 8, as Fast R-CNN pools them: (D, size, size)."""
    (x1, y1, x2, y2), (_, height, width) = (int(v / 8 + 0.5) for v in box), features.shape
    cells = []
    for row in range(size):
        for column in range(size):
            top = row * max(y2 - y1 + 1, 1) // size + y1
            bottom = -(-(row + 1) * max(y2 - y1 + 1, 1) // size) + y1
            left = column * max(x2 - x1 + 1, 1) // size + x1
            right = -(-(column + 1) * max(x2 - x1 + 1, 1) // size) + x1
            cell = features[:, max(top, 0) : min(bottom, height), max(left, 0) : min(right, width)]
            cells.append(cell.flatten(1).amax(1) if cell.numel() else features.new_zeros(len(features)))
    return torch.stack(cells, dim=1).view(-1, size, size)


def iou(a: list[float], b: list[float]) -> float:
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(wide, 0) * max(high, 0)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def top_cluster(scores: list[float]) -> float:
    """The least score of the highest of three clusters of least squares, by trying all thresholds."""
    ordered = sorted(set(scores))
    if len(ordered) < 3:
        return ordered[-1]

    def spread(part: list[float]) -> float:
        mean = sum(part) / len(part)
        return sum((value - mean) ** 2 for value in part)

    def cost(low: float, high: float) -> float:
        parts = (
            [s for s in scores if s < low],
            [s for s in scores if low <= s < high],
            [s for s in scores if s >= high],
        )
        return sum(spread(part) for part in parts)

    pairs = [(low, high) for i, low in enumerate(ordered[1:], 1) for high in ordered[i + 1 :]]
    return min(pairs, key=lambda pair: cost(*pair))[1]


def pcl_stream_loss(boxes: list[list[float]], sources: Tensor, probs: Tensor, shown: list[int]) -> Tensor:
    """The loss of one stream for one image: sources (R, C) detached, probs (R, C + 1)."""
    pool, centers = set(range(len(boxes))), []  # centers: (proposal, class, score)
    for c in shown:
        scores = {r: float(sources[r, c]) for r in pool}
        least = top_cluster(list(scores.values()))
        remaining = sorted(r for r in pool if scores[r] >= least)
        found = []
        while not found or len(remaining) > 5:
            near = {r: [s for s in remaining if s == r or iou(boxes[r], boxes[s]) > 0.4] for r in remaining}
            center = max(remaining, key=lambda r: len(near[r]))  # the first of several
            found.append((center, c, max(scores[r] for r in near[center])))
            remaining = [r for r in remaining if r not in near[center]]
        found = sorted(found, key=lambda each: -each[2])[:5]
        centers += found
        pool -= {center for center, _, _ in found}
    loss, members = probs.new_zeros(()), {k: [] for k in range(len(centers))}
    for r, box in enumerate(boxes):
        overlaps = [iou(box, boxes[center]) for center, _, _ in centers]
        best = overlaps.index(max(overlaps))
        weight = centers[best][2] if overlaps[best] >= 0.1 else 0.0
        if overlaps[best] >= 0.5:
            members[best].append((r, weight))
        else:
            loss = loss - weight * probs[r, 0].log()
    for k, rows in members.items():
        if rows:
            mean = torch.stack([probs[r, centers[k][1] + 1] for r, _ in rows]).mean()
            loss = loss - sum(weight for _, weight in rows) * mean.log()
    return loss / len(boxes)


def image_loss(
    weights: dict[str, Tensor], image: Tensor, boxes: list[list[float]], shown: list[int]
) -> Tensor:
    mean, std = (torch.tensor(values)[:, None, None] for values in (PIXEL_MEAN, PIXEL_STD))
    features = backbone(weights, ((image / 255 - mean) / std)[None])[0]
    x = torch.stack([roi_max_pool(features, box) for box in boxes]).flatten(1)
    for name in ("box_features.layers.0", "box_features.layers.3"):
        x = F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"]).relu()

    def layer(name: str) -> Tensor:
        return F.linear(x, weights[f"head.{name}.weight"], weights[f"head.{name}.bias"])

    mil = layer("classes").softmax(1) * layer("proposals").softmax(0)  # (R, C)
    score, label = mil.sum(0), torch.zeros(CLASSES)
    label[shown] = 1
    loss = -(label * score.log() + (1 - label) * (1 - score).log()).mean()
    source = mil.detach()
    for k in range(STREAMS):
        probs = layer(f"refinements.{k}").softmax(1)  # (R, C + 1)
        loss = loss + pcl_stream_loss(boxes, source, probs, shown)
        source = probs[:, 1:].detach()
    return loss


def train_by_hand(weights: dict[str, Tensor], images: Tensor, boxes: list, shown: list) -> None:
    frozen = [name for name, _, _ in conv_names()[:4]]  # conv1_1 to conv2_2
    trained = {n: w.requires_grad_() for n, w in weights.items() if n.rpartition(".")[0] not in frozen}
    speed = {name: torch.zeros_like(w) for name, w in trained.items()}
    for step in range(STEPS):
        losses = [image_loss(weights, *each) for each in zip(images, boxes, shown, strict=True)]
        gradients = torch.autograd.grad(torch.stack(losses).sum(), list(trained.values()))
        lr = LEARNING_RATE * (WARMUP_FACTOR + (1 - WARMUP_FACTOR) * step / WARMUP_STEPS)
        with torch.no_grad():
            for (name, w), gradient in zip(trained.items(), gradients, strict=True):
                bias = name.endswith("bias")
                speed[name] = MOMENTUM * speed[name] + gradient + (0 if bias else WEIGHT_DECAY) * w
                w -= (2 if bias else 1) * lr * speed[name]


def test_three_steps_equal_an_independent_implementation(tmp_path: Path) -> None:
    # Narrow fully connected layers, for time; a larger spread of the heads, so that scores differ.
    words = ["MODEL.BOX_FEATURES.DROPOUT", 0.0, "MODEL.BOX_FEATURES.WIDTHS", [64, 48], "MODEL.HEAD_STD", 0.3]
    words += ["SOLVER.BASE_LR", LEARNING_RATE, "SOLVER.WARMUP_ITERS", WARMUP_STEPS, "DEVICE", "cpu"]
    cfg = load_cfg(RECIPE, words)
    generator = torch.Generator().manual_seed(2)  # 0 has a near tie, which rounding decides
    images = torch.randint(256, (2, 3, 96, 128), generator=generator).byte()
    corners = torch.randint(0, 64, (2, 24, 2), generator=generator).float()
    sides = torch.randint(16, 64, (2, 24, 2), generator=generator).float()
    boxes = torch.cat([corners, (corners + sides).clamp(max=96)], dim=2)  # (2, 24, 4)
    shown = [[3, 11], [7]]
    labels = torch.zeros(2, CLASSES)
    for row, classes in zip(labels, shown, strict=True):
        row[classes] = 1
    torch.manual_seed(0)
    model = build_model(cfg)
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    by_hand = {name: tensor.clone() for name, tensor in start.items()}

    rois = boxes_to_rois(list(boxes))
    batch = Batch(images, rois, labels, torch.tensor([24, 24]), ("a", "b"))
    make_steps(
        model,
        build_criterion(cfg),
        build_optimizer(cfg.solver, model),
        [batch] * STEPS,
        TrainOptions(
            seed=0,
            max_iter=STEPS,
            lr_factor=build_lr_factor(cfg.solver),
            gradient_factor=2.0,  # the recipe sums gradients over images; here they come in one batch of two
        ),
        folder=tmp_path,
        precision=Precision("float32", torch.device("cpu")),
    )
    train_by_hand(by_hand, images, boxes.tolist(), shown)

    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, by_hand[name].detach(), rtol=0, atol=1e-5, msg=name)
    moved = {name for name, tensor in model.state_dict().items() if (tensor - start[name]).abs().max() > 3e-4}
    assert {"head.classes.weight", "head.refinements.2.weight", "backbone.features.28.weight"} <= moved
